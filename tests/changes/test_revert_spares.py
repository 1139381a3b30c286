"""What a revert may not take along: files that git does not track where paths come back, and other iterations in the same commit."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from oracle import Snapshot, differences
from support import Repo

from .conftest import Place, snapshot

SECRET = "mkdir -p {0} && echo SECRET >{0}/{1}"
# What the commit did, what the user did then, and the file of his that is named.
IN_THE_WAY = {
    "a file, ignored": ("git rm -q src/a.py; echo a.py >>.gitignore", "mkdir -p src; echo SECRET >src/a.py", "src/a.py"),
    "a folder, ignored": ("git rm -q run.sh; echo run.sh >>.gitignore", SECRET.format("run.sh", "mine"), "run.sh/mine"),
    "a file where a folder comes back": ("git rm -qr src/pkg; echo pkg >>.gitignore", "echo SECRET >src/pkg", "src/pkg"),
    "a link where a folder comes back": ("git rm -qr src/pkg; echo pkg >>.gitignore", "ln -s ../build src/pkg", "src/pkg"),
    "a file in a folder that becomes one": (
        "git rm -q run.sh; mkdir run.sh; echo x >run.sh/x",
        "echo SECRET >run.sh/mine.log",  # ignored from the start
        "run.sh/mine.log",
    ),
}


@pytest.mark.parametrize("case", IN_THE_WAY)
def test_what_git_does_not_track_is_not_overwritten(tmp_path: Path, case: str) -> None:
    attempt, mine, named = IN_THE_WAY[case]
    repo = Repo.make(tmp_path / "r")
    repo.sh("mkdir build; echo SECRET >build/b.py")
    assert repo.run(attempt, "true").code == 0
    repo.sh(mine)
    before = Snapshot.of(repo.root)
    done = repo.evolver("revert", "1")
    assert done.code == 1 and f"in the way, move them away first: {named}\n" in done.err, done.text
    assert differences(before, Snapshot.of(repo.root)) == []
    repo.sh(f"rm -r '{named}'")
    done = repo.evolver("revert", "1")
    assert done.code == 0, done.text
    assert repo.sh("git diff HEAD~2") == "" and (repo.root / "build/b.py").read_text() == "SECRET\n"


def test_a_folder_renamed_since_does_not_draw_the_file_over_another(tmp_path: Path) -> None:
    """Git would guess that what comes back to `src/pkg` belongs to `src/moved`, where nobody looked."""
    repo = Repo.make(tmp_path / "r")
    repo.sh("seq 50 >src/pkg/c.py; git add .; git commit -qm c")
    assert repo.run("git rm -q src/pkg/b.py", "true").code == 0
    repo.sh("git mv src/pkg src/moved; echo b.py >>.gitignore; git add .; git commit -qm moved; echo SECRET >src/moved/b.py")
    done = repo.evolver("revert", "1")
    assert (repo.root / "src/moved/b.py").read_text() == "SECRET\n", done.text
    assert done.code == 0 and (repo.root / "src/pkg/b.py").read_text() == "b\n"


def test_the_folder_of_a_submodule_that_comes_back_is_not_in_the_way(tmp_path: Path) -> None:
    repo = Repo.make(tmp_path / "r")
    repo.sh("git init -q sub; git -C sub commit -q --allow-empty -m s; git add sub 2>/dev/null; git commit -qm sub")
    repo.sh("git rm -q --cached sub; echo /sub >>.gitignore; git commit -qam 'no sub'; echo x >sub/x")
    done = _named_by_hand(repo)
    assert done.code == 0, done.text
    assert (repo.root / "sub/x").exists() and (repo.root / "sub/.git").exists()


def _named_by_hand(repo: Repo):  # type: ignore[no-untyped-def]
    """The newest commit, given a trailer as of an iteration that the stream does not know."""
    wanted = f"{'0' * 36}/1"
    repo.sh(f"git commit -q --amend -m x -m 'Evolver-Iteration: {wanted}'")
    return repo.evolver("revert", wanted)


def test_a_changes_log_does_not_overwrite_an_ignored_file_either(repo: Place) -> None:
    repo.write("conf", "tracked\n")
    repo.commit("Conf")
    repo.sh("git rm -q conf; echo conf >>.gitignore; git add .; git commit -qm 'No conf'")
    sha = repo.git("rev-parse", "HEAD")
    repo.write("conf", "SECRET\n")
    before = snapshot(repo.root)
    report = repo.rollback(repo.log(git_commits=[sha]))
    assert report["errors"] == [
        f"Failed to revert commit {sha}: files that git does not track are in the way, move them away first: conf"
    ]
    assert {k: v for k, v in snapshot(repo.root).items() if k != ".bug-changes.json"} == before
    (repo.root / "conf").unlink()
    assert repo.rollback(repo.log(git_commits=[sha]))["errors"] == [] and repo.read("conf") == "tracked\n"


# ---------------------------------------------------------------- several iterations in one commit


@pytest.fixture
def three(tmp_path: Path) -> Repo:
    made = Repo.make(tmp_path / "r")
    assert made.run('echo "$EVOLVER_ITERATION" >"f$EVOLVER_ITERATION"', "true", "--max-iters", "3").code == 0
    return made


SQUASHED = {
    "merge --squash": "git checkout -q -b by HEAD~3; git merge -q --squash main >/dev/null; git commit -q --no-edit",
    "rebase": "GIT_SEQUENCE_EDITOR=\"sed -i '2,$ s/^pick/squash/'\" GIT_EDITOR=true git rebase -q -i HEAD~3",
    "one message": 'git log --reverse --format=%B HEAD~3.. >.git/m; git reset -q --soft HEAD~3; git commit -qF .git/m',
    "a forge": "git log --reverse --format='* %B' HEAD~3.. >.git/m; git reset -q --soft HEAD~3; git commit -qF .git/m",
}


@pytest.mark.parametrize("how", SQUASHED)
def test_iterations_squashed_by_a_person_are_not_undone_one_for_all(three: Repo, how: str) -> None:
    three.sh(SQUASHED[how])
    assert three.sh("git rev-list --count HEAD").strip() == "3"
    before, sha = Snapshot.of(three.root), three.head()
    ids = [e["data"]["iteration_id"] for e in three.events("iteration.accepted")]
    for number in (1, 2, 3):
        done = three.evolver("revert", str(number))
        assert done.code == 2 and all(i in done.err for i in ids) and f"`git revert {sha[:12]}`" in done.err, done.text
    assert differences(before, Snapshot.of(three.root)) == []


def test_iterations_landed_as_one_commit_are_not_undone_one_for_all(tmp_path: Path) -> None:
    repo = Repo.make(tmp_path / "r")
    repo.env["EVOLVER_STATE_DIR"] = str(tmp_path / "state")
    repo.sh("echo mine >f1")  # in the way, so that nothing lands by itself
    flags = ("--isolation", "clone", "--max-iters", "2")
    repo.run('echo "$EVOLVER_ITERATION" >"f$EVOLVER_ITERATION"', "true", *flags)
    repo.sh("rm f1")
    assert repo.evolver("land", "--squash").code == 0
    done = repo.evolver("revert", "1")
    assert done.code == 2 and "2 iterations in one commit" in done.err and (repo.root / "f2").exists(), done.text


def test_rebased_one_by_one_they_are_undone_one_by_one(three: Repo) -> None:
    three.sh("git checkout -q -b by HEAD~3; git commit -q --allow-empty -m before; git cherry-pick -x main~2 main~1 main >/dev/null")
    assert three.evolver("revert", "2").code == 0
    assert not (three.root / "f2").exists() and (three.root / "f1").exists() and (three.root / "f3").exists()


def test_a_killed_revert_is_given_up_and_begun_again(three: Repo) -> None:
    assert three.evolver("revert", "2", env={"EVOLVER_CRASH_AT": "revert.merged"}).code == -signal.SIGKILL
    for words in (("revert", "2"), ("run", "--codegen", "true", "--validate", "true")):
        done = three.evolver(*words)
        assert done.code == 5 and "`git revert --abort`" in done.err and "give it up, then revert again" in done.err, done.text
    three.sh("git revert --abort")
    assert three.evolver("revert", "2").code == 0
    assert three.sh("git log -1 --format='%(trailers:key=Evolver-Reverts,valueonly)'").strip().endswith("/2")
