"""The branch an attempt works on is not this worktree's alone: a person checked it out elsewhere meanwhile, or it is another name of one.

Shows: a branch that is checked out in another worktree now is never moved back under them, held, after a crash or in a running loop; the
run stops loudly and goes on once they have left it. A symbolic branch is refused before the agent is started.
"""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from support import Repo, ended

THEIRS = "git checkout -q --ignore-other-worktrees main; echo mine >theirs; git add theirs; git commit -qm theirs"


@pytest.fixture
def repo(tmp_path: Path) -> Repo:
    repo = Repo.make(tmp_path / "r")
    repo.sh("git branch other HEAD~1; git worktree add -q -b side ../side")
    return repo


@pytest.fixture
def side(repo: Repo) -> Repo:
    return Repo(repo.root.parent / "side")


def untouched(repo: Repo, side: Repo) -> bool:
    assert side.sh("git status --porcelain; git log -1 --format=%s; git branch --show-current") == "theirs\nmain\n"
    return repo.sh("git branch --show-current").strip() != "main"


def goes_on(repo: Repo, side: Repo) -> None:
    """Once the other worktree has left the branch, the rollback can be finished; what was committed there is not lost."""
    theirs, held = side.head(), repo.events("run.held")[-1]["data"]
    side.sh("git checkout -q side")
    done = repo.evolver("resume", "--rollback", "hard")
    assert done.code == 0, done.text
    assert repo.sh("git status --porcelain; git branch --show-current").strip() == "main" and repo.head() == held["pre_ref"]
    assert theirs in repo.sh("git log --all --format=%H")


def test_taken_over_while_held(repo: Repo, side: Repo) -> None:
    assert repo.run("echo x >new; git add new; git commit -qm agents", "false", "--rollback", "none").code == 3
    repo.sh("git checkout -q other")
    side.sh(THEIRS)
    done = repo.evolver("resume", "--rollback", "hard")
    assert done.code == 4 and f"checked out in another worktree now: {side.root}" in done.text
    assert untouched(repo, side)
    goes_on(repo, side)


def test_taken_over_after_a_crash(repo: Repo, side: Repo) -> None:
    assert repo.run("echo x >new", env={"EVOLVER_CRASH_AT": "iteration.codegen_done"}).code == -signal.SIGKILL
    repo.sh("git checkout -q other")
    side.sh(THEIRS)
    done = repo.run("true")
    assert done.code in (3, 4) and "checked out in another worktree now" in done.text and untouched(repo, side)
    goes_on(repo, side)


@pytest.mark.parametrize("validate", ["true", "false"])
def test_taken_over_while_it_runs(repo: Repo, side: Repo, validate: str) -> None:
    box = repo.root.parent
    agent = "echo x >new; touch ../ready; until [ -e ../go ]; do sleep 0.02; done"
    process = repo.start("run", "--max-iters", "1", "--codegen", agent, "--validate", validate)
    repo.wait_for((box / "ready").exists)
    repo.sh("git checkout -q other")
    side.sh(THEIRS)
    (box / "go").touch()
    assert ended(process).code == 4 and untouched(repo, side)


def test_a_symbolic_branch(repo: Repo) -> None:
    repo.sh("git symbolic-ref refs/heads/alias refs/heads/main; git symbolic-ref HEAD refs/heads/alias")
    before = repo.sh("git for-each-ref --format='%(refname) %(objectname) %(symref)'")
    done = repo.run("echo x >new", "true")
    assert done.code == 5 and "git symbolic-ref HEAD refs/heads/main" in done.text
    assert repo.sh("git for-each-ref --format='%(refname) %(objectname) %(symref)'") == before
    repo.sh("git symbolic-ref HEAD refs/heads/main")
    assert repo.run("echo x >new", "true").code == 0 and repo.sh("git rev-parse main") == repo.sh("git rev-parse alias")
