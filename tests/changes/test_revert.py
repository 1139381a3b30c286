"""`evolver revert N`: one accepted iteration undone later, by a new commit that names it."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from support import Repo

from .conftest import snapshot


@pytest.fixture
def repo(tmp_path: Path) -> Repo:
    made = Repo.make(tmp_path / "r")
    done = made.run('echo "line $EVOLVER_ITERATION" >"f$EVOLVER_ITERATION"', "true", "--max-iters", "3")
    assert done.code == 0, done.text
    return made


def accepted(repo: Repo, number: int) -> dict[str, str]:
    (event,) = [e for e in repo.events("iteration.accepted") if e["iteration"] == number]
    data: dict[str, str] = event["data"]
    return data


def test_one_iteration_is_undone_by_a_new_commit_with_a_trailer_and_an_event(repo: Repo) -> None:
    head = repo.head()
    done = repo.evolver("revert", "2")
    assert done.code == 0, done.text
    data = accepted(repo, 2)
    assert repo.sh("git rev-parse HEAD^").strip() == head  # never by moving HEAD back
    assert not (repo.root / "f2").exists() and (repo.root / "f1").exists() and (repo.root / "f3").exists()
    assert repo.status().strip() == ""
    trailers = repo.sh("git log -1 --format='%(trailers:key=Evolver-Reverts,valueonly)'").strip()
    assert trailers == data["iteration_id"]
    assert f"This reverts commit {data['commit']}" in repo.sh("git log -1 --format=%B")
    (event,) = repo.events("iteration.reverted")
    assert event["data"] == {
        "iteration_id": data["iteration_id"],
        "commit": data["commit"],
        "revert_commit": repo.head(),
        "conflicts": [],
    }
    assert event["iteration"] == 2 and event["subject"] == data["iteration_id"]
    assert repo.evolver("audit", "verify").code == 0
    assert "reverted by" in repo.evolver("log").out
    assert not (repo.root / ".git/REVERT_HEAD").exists()


@pytest.mark.parametrize("name", ["last", "3", "full"])
def test_an_iteration_is_named_in_every_way(repo: Repo, name: str) -> None:
    wanted = accepted(repo, 3)["iteration_id"] if name == "full" else name
    assert repo.evolver("revert", wanted).code == 0
    assert not (repo.root / "f3").exists()


def test_conflicts_are_aborted_and_named_and_nothing_is_announced(tmp_path: Path) -> None:
    repo = Repo.make(tmp_path / "r")
    assert repo.run('echo "$EVOLVER_ITERATION" >src/a.py; echo x >>src/pkg/b.py', "true", "--max-iters", "2").code == 0
    (repo.root / "untracked").write_text("mine")
    before, index, head = snapshot(repo.root), repo.sh("git ls-files -s"), repo.head()
    done = repo.evolver("revert", "1")
    assert done.code == 1
    assert "Merge conflict in src/a.py" in done.err and "Traceback" not in done.err
    assert (snapshot(repo.root), repo.sh("git ls-files -s"), repo.head()) == (before, index, head)
    assert not (repo.root / ".git/REVERT_HEAD").exists() and not (repo.root / ".git/sequencer").exists()
    assert repo.events("iteration.reverted") == []
    assert repo.evolver("revert", "2").code == 0  # undone from the end, both go
    assert repo.evolver("revert", "1").code == 0
    assert repo.sh("git diff HEAD~4").strip() == ""


def test_twice_is_said_and_makes_no_second_commit(repo: Repo) -> None:
    assert repo.evolver("revert", "2").code == 0
    head = repo.head()
    done = repo.evolver("revert", "2")
    assert done.code == 0 and "was reverted before" in done.out
    assert repo.head() == head and len(repo.events("iteration.reverted")) == 1


def test_a_revert_that_was_itself_reverted_can_be_made_again(repo: Repo) -> None:
    assert repo.evolver("revert", "2").code == 0
    repo.sh("git revert --no-edit HEAD")
    assert (repo.root / "f2").exists()
    assert repo.evolver("revert", "2").code == 0
    assert not (repo.root / "f2").exists() and len(repo.events("iteration.reverted")) == 2


@pytest.mark.parametrize(
    ("dirt", "told"),
    [
        ("echo x >>src/a.py", "src/a.py"),
        ("echo x >>src/a.py; git add src/a.py; git checkout -q HEAD -- src/pkg", "src/a.py"),
        ("echo x >new; git add new", "new"),
        ("git rm -q --cached src/a.py", "src/a.py"),
    ],
)
def test_a_dirty_tree_is_refused(repo: Repo, dirt: str, told: str) -> None:
    repo.sh(dirt)
    before, index, head = snapshot(repo.root), repo.sh("git ls-files -s"), repo.head()
    done = repo.evolver("revert", "2")
    assert done.code == 5 and told in done.err, done.text
    assert (snapshot(repo.root), repo.sh("git ls-files -s"), repo.head()) == (before, index, head)


def test_untracked_files_do_not_block_unless_in_the_way(tmp_path: Path) -> None:
    repo = Repo.make(tmp_path / "r")
    assert repo.run("git rm -q src/a.py", "true").code == 0
    (repo.root / "src").mkdir(exist_ok=True)
    (repo.root / "other").write_text("mine")
    (repo.root / "src/a.py").write_text("mine, in the way")
    done = repo.evolver("revert", "1")
    assert done.code == 1 and "src/a.py" in done.err
    assert (repo.root / "src/a.py").read_text() == "mine, in the way" and (repo.root / "other").read_text() == "mine"
    (repo.root / "src/a.py").unlink()
    assert repo.evolver("revert", "1").code == 0
    assert (repo.root / "src/a.py").read_text() == "a\nc\n"


def test_a_half_done_merge_is_refused(repo: Repo) -> None:
    repo.sh(
        "git checkout -q -b side HEAD~1; echo s >>src/a.py; git commit -qam s; git checkout -q main; echo m >>src/a.py; git commit -qam m"
    )
    repo.sh("git merge side", check=False)
    done = repo.evolver("revert", "2")
    assert done.code == 5 and "in progress" in done.err
    assert (repo.root / ".git/MERGE_HEAD").exists()


def test_what_was_not_accepted_cannot_be_reverted(tmp_path: Path) -> None:
    repo = Repo.make(tmp_path / "r")
    assert repo.evolver("revert", "1").code == 2  # there was no run
    repo.run("echo x >>src/a.py", "false")
    done = repo.evolver("revert", "1")
    assert done.code == 2 and "not accepted" in done.err
    assert repo.evolver("revert", "7").code == 2
    assert repo.evolver("revert", "x").code == 2


def test_a_run_at_work_is_not_disturbed_and_an_agent_cannot_revert(repo: Repo) -> None:
    from evolver.layout import locate
    from evolver.lock import run_lock

    with run_lock(locate(repo.root)):
        assert repo.evolver("revert", "2").code == 6


def test_a_held_worktree_is_refused(repo: Repo) -> None:
    assert repo.run("echo x >>src/a.py", "false", "--rollback", "none").code == 3
    assert repo.evolver("revert", "last").code == 3


def test_rebased_commits_are_found_by_their_trailer(repo: Repo) -> None:
    repo.sh(
        "git checkout -q -b other HEAD~3; echo o >o; git add o; git commit -qm o; git checkout -q main; git rebase -q other"
    )
    done = repo.evolver("revert", "2")
    assert done.code == 0, done.text
    assert not (repo.root / "f2").exists()
    assert repo.events("iteration.reverted")[0]["data"]["commit"] != accepted(repo, 2)["commit"]


def test_the_last_commit_of_a_shallow_clone_is_not_reverted(repo: Repo, tmp_path: Path) -> None:
    """git knows no parent of it, so a revert would delete every file."""
    wanted = accepted(repo, 3)["iteration_id"]
    shallow = Repo(tmp_path / "shallow", env=repo.env)
    repo.sh(f"git clone -q --depth 1 file://$PWD {shallow.root}")
    head = shallow.sh("git rev-parse HEAD")
    done = shallow.evolver("revert", wanted)
    assert done.code == 1 and "a shallow clone" in done.text
    assert shallow.sh("git rev-parse HEAD") == head and shallow.sh("git status --porcelain") == ""


def test_the_stream_may_be_lost_when_the_full_id_is_known(repo: Repo) -> None:
    wanted = accepted(repo, 2)["iteration_id"]
    repo.sh('rm -rf .git/evolver "$XDG_STATE_HOME"')
    assert repo.evolver("revert", "2").code == 2
    done = repo.evolver("revert", wanted)
    assert done.code == 0, done.text
    assert not (repo.root / "f2").exists()


def test_a_forged_trailer_is_not_preferred_to_the_stream(repo: Repo) -> None:
    wanted = accepted(repo, 2)["iteration_id"]
    repo.sh(f"echo forged >forged; git add forged; git commit -qm 'x\n\nEvolver-Iteration: {wanted}'")
    assert repo.evolver("revert", "2").code == 0
    assert (repo.root / "forged").exists() and not (repo.root / "f2").exists()


def test_the_agents_own_commits_that_were_kept_go_as_one(tmp_path: Path) -> None:
    repo = Repo.make(tmp_path / "r")
    (repo.root / "loops").mkdir()
    (repo.root / "loops/default.toml").write_text(
        '[codegen]\ncommand = "echo 1 >one; git add .; git commit -qm one; echo 2 >two; git add .; git commit -qm two; echo 3 >three"\n'
        '[accept]\ncommits = "keep"\n[[validator]]\nname = "v"\ncommand = "true"\n'
    )
    repo.sh("git add -A; git commit -qm loop")
    before = repo.sh("git rev-parse HEAD^{tree}")
    assert repo.evolver("run", "--max-iters", "1").code == 0
    assert (repo.root / "one").exists()
    done = repo.evolver("revert", "1")
    assert done.code == 0, done.text
    assert repo.sh("git rev-parse HEAD^{tree}") == before


def test_no_hook_and_no_signature_program_runs(repo: Repo) -> None:
    for hook in ("pre-commit", "commit-msg", "post-commit", "prepare-commit-msg"):
        path = repo.root / ".git/hooks" / hook
        path.parent.mkdir(exist_ok=True)
        path.write_text("#!/bin/sh\ntouch ../hooked hooked; exit 1\n")
        path.chmod(0o755)
    evil = repo.root.parent / "evil"
    evil.write_text(f"#!/bin/sh\ntouch {repo.root.parent}/signed\n")
    evil.chmod(0o755)
    repo.sh(f"git config gpg.program {evil}; git config commit.gpgSign true; git config log.showSignature true")
    assert repo.evolver("revert", "2").code == 0
    assert not (repo.root / "hooked").exists() and not (repo.root.parent / "signed").exists()


def test_no_identity_leaves_the_tree_as_it_was(repo: Repo) -> None:
    repo.sh("git config user.useConfigOnly true")
    head = repo.head()
    home = repo.root.parent / "nobody"
    home.mkdir()
    done = repo.evolver("revert", "2", env={"HOME": str(home)})
    assert done.code not in (0, 70), done.text
    assert repo.head() == head and repo.sh("git status --porcelain").strip() == ""
    assert not (repo.root / ".git/REVERT_HEAD").exists()


def test_killed_after_the_commit_the_event_is_written_by_the_next_call(repo: Repo) -> None:
    done = repo.evolver("revert", "2", env={"EVOLVER_CRASH_AT": "revert.committed"})
    assert done.code == -signal.SIGKILL
    assert repo.events("iteration.reverted") == []
    head = repo.head()
    assert repo.evolver("revert", "2").code == 0
    (event,) = repo.events("iteration.reverted")
    assert event["data"]["revert_commit"] == head == repo.head()


def test_odd_names_in_conflicts_are_shown_escaped(tmp_path: Path) -> None:
    repo = Repo.make(tmp_path / "r")
    code = 'printf "$EVOLVER_ITERATION\\n" >"$(printf \'od\\033d\\tn\')"'
    assert repo.run(code, "true", "--max-iters", "2").code == 0
    done = repo.evolver("revert", "1")
    assert done.code == 1 and "od\\x1bd\\tn" in done.err and "\x1b" not in done.err
