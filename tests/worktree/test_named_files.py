"""Files of the worktree that git's configuration includes or runs: an attempt's version is never read or run, the user's goes on working."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from oracle import Snapshot, differences
from support import Repo

UPPER = "#!/bin/sh\ntr a-z A-Z\n"


@pytest.fixture
def repo(tmp_path: Path) -> Repo:
    repo = Repo.make(tmp_path / "r")
    repo.env |= {"PLANTED": str(tmp_path / "planted")}
    write(repo, "tools/up", UPPER)
    repo.sh("chmod +x tools/up; echo '*.up filter=up' >.gitattributes; echo tools/kept >>.gitignore; git add -A; git commit -qm tools")
    return repo


def write(repo: Repo, name: str, text: str) -> None:
    (repo.root / name).parent.mkdir(parents=True, exist_ok=True)
    (repo.root / name).write_text(text)


def planting(name: str) -> str:
    script = '#!/bin/sh\ntouch "$PLANTED"\ncat\n'
    return f"rm -rf {name}; printf %s {shlex.quote(script)} >{name}; chmod +x {name}; echo hello >x.up"


def planted_filter(name: str) -> str:
    return f"git config --file {name} filter.up.clean 'touch \"$PLANTED\"; cat'; echo hello >x.up"


def check(repo: Repo, agent: str, *told: str, mode: str = "hard") -> None:
    """Rejected, told, restored; and the user's own filter still works in the iteration after."""
    before = Snapshot.of(repo.root)
    done = repo.run(agent, "true", "--rollback", mode)
    assert not Path(repo.env["PLANTED"]).exists(), done.text
    assert done.code == (3 if mode == "none" else 1), done.text
    changed = [path for e in repo.events("alert.control_changed") for path in e["data"]["paths"]]
    assert all(path in changed for path in told), changed
    if mode == "none":
        held = repo.root / told[0]
        assert "PLANTED" in held.read_text()
        assert repo.evolver("resume").code == 3 and "PLANTED" in held.read_text()
        assert repo.evolver("resume", "--rollback", "hard").code == 0
    if mode == "stash":
        assert "PLANTED" in repo.sh(f"git show 'stash@{{0}}:{told[0]}'")
        repo.sh("git stash drop -q")
    assert not Path(repo.env["PLANTED"]).exists()
    assert differences(before, Snapshot.of(repo.root)) == []


def works(repo: Repo) -> None:
    done = repo.run("echo hello >x.up", "true")
    assert done.code == 0 and repo.sh("git cat-file -p HEAD:x.up") == "HELLO\n", done.text


COMMANDS = {
    "./tools/up": "tools/up",
    "sh tools/up %f": "tools/up",
    '"$(git rev-parse --show-toplevel)/tools/up"': "tools/up",
    "way/up": "tools/up",
    "sh -c 'cat | tools/up'": "tools/up",
}


@pytest.mark.parametrize(("command", "scope"), list(zip(COMMANDS, ["--local", "--global"] * 3, strict=False)))
def test_a_filter(repo: Repo, command: str, scope: str) -> None:
    if command.startswith("way"):
        repo.sh("ln -s tools way; git add -A; git commit -qm way")
    repo.sh(f"git config {scope} filter.up.clean {shlex.quote(command)}")
    check(repo, planting("tools/up"), COMMANDS[command])
    works(repo)


@pytest.mark.parametrize("mode", ["stash", "none"])
def test_a_filter_in_other_modes(repo: Repo, mode: str) -> None:
    repo.sh("git config filter.up.clean ./tools/up")
    check(repo, planting("tools/up"), "tools/up", mode=mode)


@pytest.mark.parametrize("agent", ["mv tools/up x; ln -s ../x tools/up", "mkdir other; mv tools/up other; rmdir tools; ln -s other tools"])
def test_a_link_in_its_place(repo: Repo, agent: str) -> None:
    repo.sh("git config filter.up.clean ./tools/up")
    check(repo, f"{agent}; {planting('x')}; cp x other/up 2>/dev/null")


@pytest.mark.parametrize("name", ["tools/up", "tools/kept"], ids=["untracked", "ignored"])
def test_one_that_is_not_tracked(repo: Repo, name: str) -> None:
    repo.sh("git rm -q --cached tools/up; git commit -qm untrack; cp tools/up tools/kept")
    repo.sh(f"git config filter.up.clean ./{name}")
    check(repo, planting(name), name)


def test_one_that_was_not_there(repo: Repo) -> None:
    repo.sh("git config filter.up.clean ./tools/new")
    check(repo, planting("tools/new"), "tools/new")


@pytest.mark.parametrize("program", ["up", "tr"], ids=["the user's own", "before the system's"])
def test_a_program_found_by_path(repo: Repo, program: str) -> None:
    """A virtual environment is active: its folder comes first, and an attempt can write there."""
    repo.env |= {"PATH": f"{repo.root}/tools:" + repo.environment()["PATH"]}
    repo.sh(f"git config filter.up.clean {'up' if program == 'up' else shlex.quote('tr a-z A-Z')}")
    check(repo, planting(f"tools/{program}"), f"tools/{program}")
    works(repo)


def test_git_itself(repo: Repo) -> None:
    repo.env |= {"PATH": f"{repo.root}/tools:" + repo.environment()["PATH"]}
    before = Snapshot.of(repo.root)
    fake = f'#!/bin/sh\ntouch "$PLANTED"\nexec {repo.sh("command -v git").strip()} "$@"\n'
    done = repo.run(f"printf %s {shlex.quote(fake)} >tools/git; chmod +x tools/git", "false")
    assert done.code == 1 and not Path(repo.env["PLANTED"]).exists(), done.text
    assert differences(before, Snapshot.of(repo.root)) == []


# ------------------------------------------------------------ included files


@pytest.mark.parametrize(("key", "there"), [("include.path", True), ("include.path", False), ("includeIf.gitdir:/nowhere/.path", False)])
def test_an_included_file(repo: Repo, key: str, there: bool) -> None:
    write(repo, "common", '[filter "up"]\n clean = ./tools/up\n')
    repo.sh("git add common; git commit -qm common" if there else "git config --file .git/config filter.up.clean ./tools/up; rm common")
    repo.sh(f"git config {key} ../common")
    check(repo, planted_filter("common"), "common")


def test_one_that_an_included_file_includes(repo: Repo) -> None:
    write(repo, "common", "[include]\n path = tools/more\n")
    write(repo, "tools/more", '[filter "up"]\n clean = ./tools/up\n')
    repo.sh("git add -A; git commit -qm common; git config include.path ../common")
    check(repo, planted_filter("tools/more"), "tools/more")
    works(repo)


def test_one_that_git_cannot_read(repo: Repo) -> None:
    write(repo, "common", "[alias]\n st = status\n")
    repo.sh("git add -A; git commit -qm common; git config include.path ../common")
    before = Snapshot.of(repo.root)
    for agent in ("echo '[core' >>common", "rm common; mkfifo common", "rm common; mkdir -p common/x; echo >common/x/y"):
        done = repo.run(agent, "true")
        assert done.code == 1, done.text
        assert differences(before, Snapshot.of(repo.root)) == []


def test_what_a_person_wrote_there_after_a_crash_is_kept(repo: Repo) -> None:
    write(repo, "common", "[alias]\n st = status\n")
    repo.sh("git add -A; git commit -qm common; git config include.path ../common")
    assert repo.run("echo x >y", "true", env={"EVOLVER_CRASH_AT": "iteration.codegen_done"}).code == -9
    repo.sh("git config --file common alias.mine log")
    assert repo.evolver("resume", env={"EVOLVER_CRASH_AT": "guard.after"}).code == -9
    assert repo.evolver("resume").code == 0
    ref = repo.sh("git for-each-ref --format='%(refname)' refs/evolver/attempts").split()[0]
    assert "mine = log" in repo.sh(f"git show {ref}:common")


# ------------------------------------------------------------ hooks


@pytest.mark.parametrize(
    ("folder", "changed"), [(".husky", ".husky/pre-commit"), (".husky/_", ".husky/pre-commit"), ("", "tools/check")]
)
def test_hooks_in_the_worktree(repo: Repo, folder: str, changed: str) -> None:
    ran = repo.root.parent / "ran"
    if folder:
        write(repo, f"{folder}/pre-commit", f"#!/bin/sh\ntouch '{ran}'\n")
        repo.sh(f"chmod +x {folder}/*; git config core.hooksPath {folder}")
    else:
        write(repo, "tools/check", f"#!/bin/sh\ntouch '{ran}'\n")
        repo.sh("chmod +x tools/check; ln -s ../../tools/check .git/hooks/pre-commit")
    write(repo, "loops/default.toml", '[codegen]\ncommand = "sh $AGENT"\n[[validator]]\nname = "v"\ncommand = "true"\n[accept]\nhooks = true\n')
    repo.sh("git add -A; git commit -qm hooks --no-verify")
    agent = repo.root.parent / "agent"
    before = Snapshot.of(repo.root)
    agent.write_text(planting(changed))
    done = repo.evolver("run", "--max-iters", "1", env={"AGENT": str(agent)})
    assert done.code == 1 and not Path(repo.env["PLANTED"]).exists() and changed in done.text, done.text
    assert differences(before, Snapshot.of(repo.root)) == []
    agent.write_text("echo y >y")
    done = repo.evolver("run", "--max-iters", "1", env={"AGENT": str(agent)})
    assert done.code == 0 and ran.exists(), done.text
