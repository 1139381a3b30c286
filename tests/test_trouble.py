"""Git, the disk or a program of the user's fails in the middle of an iteration: the attempt is undone or held, never left behind."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from evolver.worktree.manifest import Entry
from evolver.worktree.verify import worktree
from oracle import Snapshot, differences
from support import Repo

# A clean filter that fails on what the attempt wrote, as a missing git-lfs does.
FILTER = (
    "git config filter.strict.required true && git config filter.strict.clean 'if grep -q BROKEN; then exit 1; else cat src/a.py; fi' && "
    "echo 'src/new.py filter=strict' >.gitattributes && git add .gitattributes && git commit -qm filter && echo mine >mine"
)
AGENT = "echo BROKEN >src/new.py; echo z >>src/pkg/b.py; rm mine"


@pytest.fixture
def repo(tmp_path: Path) -> Repo:
    repo = Repo.make(tmp_path / "r")
    repo.sh(FILTER)
    return repo


def test_hard_undoes_an_attempt_that_git_cannot_read_and_goes_on(repo: Repo) -> None:
    before = Snapshot.of(repo.root)
    done = repo.run(AGENT, "true", "--max-iters", "2", "--dirty", "keep")
    assert done.code == 1, done.text
    assert differences(before, Snapshot.of(repo.root)) == []
    assert len(repo.events("rollback.finished")) == 2 and not repo.events("run.held")


@pytest.mark.parametrize(("mode", "codes"), [("stash", (1, 4)), ("none", (3,))])
def test_the_other_modes_keep_it_for_a_person(repo: Repo, mode: str, codes: tuple[int, ...]) -> None:
    before = Snapshot.of(repo.root)
    done = repo.run(AGENT, "true", "--dirty", "keep", "--rollback", mode)
    assert done.code in codes, done.text
    if done.code != 1:
        assert (repo.root / "src/new.py").read_text() == "BROKEN\n"
        assert repo.run("true", "true").code == 3
        assert repo.evolver("resume", "--rollback", "hard").code == 0
    assert differences(before, Snapshot.of(repo.root), stash=mode != "stash") == []


def test_a_dead_run_with_such_an_attempt_is_finished_or_held_and_a_person_can_end_it(repo: Repo) -> None:
    before = Snapshot.of(repo.root)
    done = repo.run(AGENT, "true", "--dirty", "keep", env={"EVOLVER_CRASH_AT": "iteration.codegen_done"})
    assert done.code == -9, done.text
    again = repo.run("true", "true", "--dirty", "keep")
    assert again.code in (1, 3, 4), again.text
    if again.code != 1:
        assert repo.evolver("resume", "--rollback", "hard").code == 0
    assert differences(before, Snapshot.of(repo.root)) == []


def test_what_a_formatter_writes_keeps_to_the_guards_as_well(tmp_path: Path) -> None:
    repo = Repo.make(tmp_path / "r")
    repo.sh("mkdir -p tests loops && echo 'assert x' >tests/t.py && git add . && git commit -qm tests")
    (repo.root / "loops/k.toml").write_text(
        """[codegen]
command = "echo z >>src/a.py"
[guard]
protected = ["tests/"]
[[validator]]
name = "format"
command = "echo 'assert True' >tests/t.py"
writes = true
[[validator]]
name = "check"
command = "true"
"""
    )
    repo.sh("git add . && git commit -qm loop")
    head = repo.head()
    done = repo.evolver("run", "k", "--max-iters", "1")
    assert done.code == 1, done.text
    assert "protected path: tests/t.py" in repo.events("rollback.finished")[0]["data"]["reason"]
    assert repo.head() == head and (repo.root / "tests/t.py").read_text() == "assert x\n"


KEY = "AKIA" + "ABCDEFGHIJ234567"


@pytest.mark.parametrize(
    "write",
    [
        f"seq -f 'line %.0f of much' 700000 >a-big.txt; echo 'key = {KEY}' >z.py",  # behind 12 MB of other lines
        f"head -c 5000000 /dev/zero | tr '\\0' x >z.py; echo ' {KEY} ' >>z.py",  # far into one line
        f"head -c 1048572 /dev/zero | tr '\\0' - >z.py; echo ' {KEY} ' >>z.py",  # across two pieces of it
    ],
)
def test_a_secret_is_found_however_far_into_the_diff(tmp_path: Path, write: str) -> None:
    repo = Repo.make(tmp_path / "r")
    done = repo.run(write, "true")
    assert done.code == 1, done.text
    reason = repo.events("rollback.finished")[0]["data"]["reason"]
    assert "looks like a secret was added to z.py" in reason and KEY not in reason


def can_pin(folder: Path) -> bool:
    """Whether a file can be made that nobody removes."""
    probe = folder / "probe"
    probe.write_text("")
    done = subprocess.run(["chattr", "+i", str(probe)], capture_output=True, check=False)
    subprocess.run(["chattr", "-i", str(probe)], capture_output=True, check=False)
    return done.returncode == 0


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to make a file that cannot be removed")
class TestIrremovable:
    """`chattr +i` makes what validators or the agent leave irremovable; a person lifts it."""

    @pytest.fixture
    def repo(self, tmp_path: Path) -> Repo:
        if not can_pin(tmp_path):
            pytest.skip("no immutable files on this file system")
        return Repo.make(tmp_path / "r")

    def release_and_resume(self, repo: Repo, before: Snapshot) -> None:
        assert repo.run("true", "true").code == 3
        repo.sh("chattr -i $(find . -path ./.git -prune -o -type f -print)")
        assert repo.evolver("resume", "--rollback", "hard").code == 0
        assert differences(before, Snapshot.of(repo.root)) == []
        assert repo.evolver("audit", "verify").code == 0

    def test_left_by_the_validators_of_the_baseline(self, repo: Repo) -> None:
        before = Snapshot.of(repo.root)
        judge = "test -e drop || { echo x >drop; chattr +i drop; }"
        done = repo.run("echo z >>src/a.py", judge)
        assert done.code == 4, done.text
        assert (repo.root / ".git/evolver/resume.lock").exists()
        self.release_and_resume(repo, before)

    @pytest.mark.parametrize("left", ["echo x >drop; chattr +i drop", "echo evil >src/a.py; chattr +i src/a.py"])
    def test_left_by_the_validators_of_a_passing_attempt(self, repo: Repo, left: str) -> None:
        before = Snapshot.of(repo.root)
        done = repo.run("echo z >>src/pkg/b.py", f"test $EVOLVER_ITERATION = 0 || {{ {left}; }}")
        assert done.code == 4, done.text
        assert not repo.events("iteration.accepted")
        self.release_and_resume(repo, before)

    def test_an_attempt_that_also_tampers_with_the_stream_is_not_restored_rather_than_a_broken_log(self, repo: Repo) -> None:
        before = Snapshot.of(repo.root)
        agent = "echo x >drop; chattr +i drop; sed -i 's/codegen/CODEGEN/' .git/evolver/events.jsonl"
        done = repo.run(agent, "true")
        assert done.code == 4, done.text
        assert repo.run("true", "true").code in (3, 8)
        repo.sh("chattr -i drop")
        assert repo.evolver("resume", "--rollback", "hard").code == 0
        assert differences(before, Snapshot.of(repo.root)) == []


def test_json_that_is_nested_without_end_is_no_report_and_no_score(repo: Repo, tmp_path: Path) -> None:
    nested = tmp_path / "nested"
    nested.write_text('{"a":' * 50_000 + "1" + "}" * 50_000 + "\n")
    claude = tmp_path / "bin/claude"
    claude.parent.mkdir()
    claude.write_text(f"#!/bin/sh\ncat >/dev/null; cat {nested}; echo z >>src/pkg/b.py; rm mine\n")
    claude.chmod(0o755)
    (repo.root / "loops").mkdir()
    (repo.root / "loops/default.toml").write_text(
        f"""[loop]
max_iters = 1
goal = "g"
[codegen]
agent = "claude"
on_error = "validate"
[[validator]]
name = "v"
command = "cat {nested}"
[score]
validator = "v"
json = "a.b"
"""
    )
    repo.sh("git add loops && git commit -qm loop")
    before = Snapshot.of(repo.root)
    done = repo.evolver("run", env={"PATH": f"{claude.parent}:{os.environ['PATH']}"})
    assert done.code == 1, done.text
    assert differences(before, Snapshot.of(repo.root)) == []


def test_how_a_file_differs_is_said_so_that_a_person_can_put_it_right() -> None:
    """A group, say, that this user may not set: the bytes are equal, and `git status` is clean."""
    was = Entry(0o100644, 2, 0, 0, 1, 1000, 12345, b"sabc")
    now = {
        "group": was._replace(gid=1000),
        "owner": was._replace(uid=0),
        "mode": was._replace(mode=0o100755),
        "type": was._replace(mode=0o120777, content=b"lx"),
        "both": was._replace(gid=1000, content=b"sdef"),
    }
    assert worktree({name: (was, entry) for name, entry in now.items()} | {"new": (None, was), "gone": (was, None)}) == [
        "both differs (group 12345, now 1000; content)",
        "gone is missing",
        "group differs (group 12345, now 1000)",
        "mode differs (mode 644, now 755)",
        "new is new",
        "owner differs (owner 1000, now 0)",
        "type differs (another type)",
    ]
