"""An attempt commits in a submodule and is accepted: the commit is the submodule's own then, and the tree is clean for the next run.

Shows: on a branch, detached, on a new branch, refs packed, in a linked worktree, after a kill behind the accepting commit, and with
validators that move the submodule meanwhile. What is no part of the commit is the baseline's again.
"""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from support import Repo

COMMIT = "cd m1; echo a >>f; git commit -qam ours"


@pytest.fixture
def repo(tmp_path: Path) -> Repo:
    repo = Repo.make(tmp_path / "r")
    repo.sh("git config --global protocol.file.allow always; git init -q ../sm; cd ../sm; echo 1 >f; git add f; git commit -qm s1")
    repo.sh("for m in m1 m2; do git submodule --quiet add ../sm $m; done; git commit -qm modules")
    return repo


def stands(repo: Repo, path: str = "m1") -> bool:
    """The submodule stands at the committed gitlink, on something that gc keeps, and nothing shows as changed."""
    at = repo.sh(f"git -C {path} rev-parse HEAD").strip()
    assert repo.sh(f"git rev-parse HEAD:{path}").strip() == at
    assert at in repo.sh(f"git -C {path} rev-list --all HEAD")
    assert repo.sh("git status --porcelain") == ""
    return True


@pytest.mark.parametrize(
    "agent",
    [
        COMMIT,
        "cd m1; git checkout -q --detach; echo a >>f; git commit -qam ours",
        "cd m1; git checkout -qb new; echo a >>f; git commit -qam ours; git pack-refs --all; git branch more",
        f"{COMMIT}; cd ..; git add m1; git commit -qm gitlink",
    ],
)
def test_what_was_committed_in_a_submodule_stays_there(repo: Repo, agent: str) -> None:
    branch = "new" if "-qb new" in agent else "" if "detach" in agent else "main"
    assert repo.run(agent, "test -s m1/f").code == 0
    assert stands(repo) and repo.sh("git -C m1 branch --show-current").strip() == branch
    assert repo.run("cd m1; echo b >>f; git commit -qam again", "true", "--max-iters", "2").code == 0 and stands(repo)
    before = repo.sh("git -C m1 for-each-ref; git -C m1 symbolic-ref -q HEAD || true")
    assert repo.run("cd m1; echo c >>f; git commit -qam rejected; git branch x").code == 1
    assert stands(repo) and repo.sh("git -C m1 for-each-ref; git -C m1 symbolic-ref -q HEAD || true") == before


def test_what_is_no_part_of_the_commit_is_put_back(repo: Repo) -> None:
    assert repo.run(f"({COMMIT}); git -C m2 checkout -qb agents; git -C m2 tag agents", "true").code == 0
    assert stands(repo) and stands(repo, "m2")
    assert repo.sh("git -C m2 branch --show-current").strip() == "main" and not repo.sh("git -C m2 tag -l")


@pytest.mark.parametrize("validator", ["git checkout -qb v; echo v >w; git add w", "git commit -q --allow-empty -m v; git tag v", "git status"])
def test_what_validators_did_to_it_is_undone(repo: Repo, validator: str) -> None:
    assert repo.run(COMMIT, f"cd m1; {validator}").code == 0
    assert stands(repo) and not repo.sh("git -C m1 tag -l")
    assert repo.sh("git -C m1 log -1 --format=%s").strip() == "ours" and repo.sh("git -C m1 branch --show-current").strip() == "main"


def test_a_validator_that_alters_what_was_committed_there(repo: Repo) -> None:
    """Its bytes of before are nowhere: the attempt is rejected, and says why."""
    assert repo.run(COMMIT, "git submodule --quiet update --force").code == 1 and stands(repo)
    assert "m1/f in a submodule" in repo.events("rollback.finished")[-1]["data"]["reason"]


def test_in_a_linked_worktree(repo: Repo) -> None:
    repo.sh("git worktree add -q ../wt -b w; cd ../wt; git submodule --quiet update --init; git -C m1 checkout -qB work")
    side = Repo(repo.root.parent / "wt")
    assert side.run(COMMIT, "true").code == 0
    assert stands(side) and side.sh("git -C m1 branch --show-current").strip() == "work" and repo.sh("git status --porcelain") == ""


@pytest.mark.parametrize("point", ["accept.ref", "restore.refs", "accept.after"])
def test_killed_behind_the_accepting_commit(repo: Repo, point: str) -> None:
    done = repo.run(f"{COMMIT}; git pack-refs --all", "true", env={"EVOLVER_CRASH_AT": point})
    assert done.code == -signal.SIGKILL
    assert repo.run("true", "true").code == 1 and "acceptance_recorded" in str(repo.events("run.recovered"))
    assert stands(repo)


def test_kept_by_a_person(repo: Repo) -> None:
    assert repo.run(COMMIT, "false", "--rollback", "none").code == 3
    assert repo.evolver("resume", "--keep").code == 0 and stands(repo)


def test_a_submodule_that_the_attempt_added(repo: Repo) -> None:
    (repo.root / "loops").mkdir()
    (repo.root / "loops/default.toml").write_text(
        "[codegen]\ncommand = 'git submodule --quiet add ../sm a/m3; cd a/m3; echo a >>f; git commit -qam ours'\n"
        "[[validator]]\nname = 'v'\ncommand = 'true'\n[guard]\nallow_config = true\n"
    )
    repo.sh("git add loops; git commit -qm loop")
    assert repo.evolver("run", "--max-iters", "1").code == 0 and stands(repo, "a/m3")
