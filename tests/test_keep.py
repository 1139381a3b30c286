"""`resume --keep`: what is uncommitted becomes a commit where the person stands, and whatever else they did since stays."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from oracle import Snapshot, differences
from support import Repo


@pytest.fixture
def repo(tmp_path: Path) -> Repo:
    made = Repo.make(tmp_path / "repo")
    made.sh("git branch other HEAD~1; echo mine >untracked.txt")
    return made


def hold(repo: Repo, agent: str = "echo x >>src/a.py; echo new >new.txt", *words: str) -> None:
    held = repo.run(agent, "false", "--rollback", "none", *words)
    assert held.code == 3, held.text


def keep(repo: Repo, *words: str, code: int = 0) -> str:
    done = repo.evolver("resume", "--keep", *words)
    assert done.code == code, done.text
    return done.text


def test_what_a_person_did_in_the_held_tree_stays(repo: Repo) -> None:
    hold(repo)
    repo.sh(
        "git branch mine; git tag marked; git config user.extra yes; git remote add origin /nowhere; git branch -D other;"
        "echo stashed >>src/pkg/b.py; git stash push -q src/pkg/b.py; echo notes >>.git/info/exclude;"
        "printf '#!/bin/sh\\n' >.git/hooks/pre-push; git update-index --assume-unchanged run.sh;"
        "git worktree add -q ../beside -b beside; git -C ../beside commit -q --allow-empty -m there;"
        "git checkout -q -b fix; git add -N new.txt; git notes add -m noted HEAD"
    )
    before = Snapshot.of(repo.root)
    keep(repo)
    moved = differences(before, Snapshot.of(repo.root))
    assert {line.split(":")[0] for line in moved} <= {"git HEAD commit", "git refs", "git index", "git worktrees"}, moved
    assert repo.sh("git symbolic-ref HEAD").strip() == "refs/heads/fix"
    assert repo.sh("git rev-parse HEAD~1 main").split()[0] == repo.sh("git rev-parse main").strip()
    assert repo.sh("git show --name-only --format= HEAD").split() == ["new.txt", "src/a.py"]
    assert repo.sh("git status --porcelain") == "?? untracked.txt\n"
    assert repo.sh("git ls-files -v run.sh").startswith("h ")
    assert repo.sh("git branch --list mine beside").split() == ["+", "beside", "mine"]
    assert "stash@{0}" in repo.sh("git stash list")
    assert repo.sh("git notes show main") == "noted\n"


def test_a_person_on_another_branch_gets_the_commit_there(repo: Repo) -> None:
    hold(repo, "echo x >>run.sh")
    main = repo.sh("git rev-parse main")
    repo.sh("git checkout -q other")
    keep(repo)
    assert repo.sh("git rev-parse main") == main
    assert repo.sh("git rev-parse HEAD~1") == repo.sh("git rev-parse main~1")
    assert repo.sh("git show --name-only --format= HEAD").split() == ["run.sh"]
    assert repo.sh("git symbolic-ref HEAD").strip() == "refs/heads/other"


def test_what_is_stashed_elsewhere_is_not_dropped(repo: Repo) -> None:
    hold(repo, "echo x >>run.sh")
    repo.sh("git stash -q; git checkout -q other")
    head = repo.head()
    keep(repo)
    assert repo.head() == head
    assert "+x" in repo.sh("git stash show -p")


def test_a_merge_in_progress_has_to_be_finished_first(repo: Repo) -> None:
    repo.sh("git checkout -q -b side; echo s >side.txt; git add side.txt; git commit -qm side; git checkout -q main")
    hold(repo)
    repo.sh("git merge -q --no-commit --no-ff side")
    before = Snapshot.of(repo.root)
    assert "a merge is in progress" in keep(repo, code=2)
    assert differences(before, Snapshot.of(repo.root)) == []
    assert (repo.root / ".git/MERGE_HEAD").exists()
    assert repo.evolver("run", "--codegen", "true", "--validate", "true").code == 3
    repo.sh("git add -A -- src new.txt; git commit -qm merged")
    head = repo.head()
    keep(repo)
    assert repo.head() == head
    assert len(repo.sh("git rev-parse HEAD^@").split()) == 2


def test_unmerged_paths_are_never_committed(repo: Repo) -> None:
    hold(repo, "echo theirs >>src/a.py")
    repo.sh("git stash -q; echo ours >>src/a.py; git commit -qam ours; git stash pop || true")
    assert "unmerged" in keep(repo, code=2)
    assert "<<<<<<<" in (repo.root / "src/a.py").read_text()
    assert "UU src/a.py" in repo.sh("git status --porcelain")


@pytest.mark.parametrize(
    "taken",
    [
        "git add -A && git commit -qm taken",  # with the file that had been untracked
        "git commit -qam taken && git add new.txt && git commit -qm more",
        "git add src new.txt && git commit -q --amend -m amended",
        "git checkout -q -b elsewhere && git add src new.txt && git commit -qm taken && git branch -f backup",
    ],
)
def test_head_is_adopted_when_the_person_committed_it(repo: Repo, taken: str) -> None:
    hold(repo)
    repo.sh(taken)
    before = Snapshot.of(repo.root)
    assert f"kept as {repo.head()}" in keep(repo)
    assert differences(before, Snapshot.of(repo.root)) == []
    assert repo.evolver("run", "--max-iters", "1", "--codegen", "echo y >>src/a.py", "--validate", "true").code == 0


def test_the_agents_own_commits_stay_and_what_it_took_back_is_committed_too(repo: Repo) -> None:
    was = (repo.root / "src/a.py").read_text()
    hold(repo, "echo x >>src/a.py; git commit -qam agent; git show HEAD~1:src/a.py >src/a.py; echo new >new.txt")
    keep(repo)
    assert repo.sh("git log -3 --format=%s").splitlines()[1:] == ["agent", "second"]
    assert repo.sh("git show HEAD:src/a.py") == was
    assert repo.sh("git status --porcelain") == "?? untracked.txt\n"


def test_what_the_user_had_uncommitted_stays_uncommitted(repo: Repo) -> None:
    repo.sh("echo wip >>src/pkg/b.py; echo half >>run.sh; git add run.sh; echo more >>run.sh")
    hold(repo, "echo x >>src/a.py; echo changed >untracked.txt", "--dirty", "keep")
    keep(repo)
    assert repo.sh("git show --name-only --format= HEAD").split() == ["src/a.py"]
    assert repo.sh("git status --porcelain").splitlines() == ["MM run.sh", " M src/pkg/b.py", "?? untracked.txt"]
    assert (repo.root / "untracked.txt").read_text() == "changed\n"


def test_edits_mixed_with_the_users_own_are_for_the_person_to_commit(repo: Repo) -> None:
    repo.sh("echo wip >>src/pkg/b.py")
    hold(repo, "echo x >>src/pkg/b.py", "--dirty", "keep")
    assert "'src/pkg/b.py'" in keep(repo, code=2)
    repo.sh("git commit -qam both")
    head = repo.head()
    keep(repo)
    assert repo.head() == head


def test_commits_in_a_submodule_stay_there(repo: Repo) -> None:
    repo.sh(
        "git init -q ../lib; git -C ../lib commit -q --allow-empty -m one;"
        "git -c protocol.file.allow=always submodule add -q ../lib lib; git commit -qam lib"
    )
    hold(repo, "cd lib && echo x >f && git add f && git commit -qm inside")
    inside = repo.sh("git -C lib rev-parse HEAD")
    keep(repo)
    assert repo.sh("git -C lib rev-parse HEAD") == inside == repo.sh("git rev-parse HEAD:lib")
    assert repo.sh("git status --porcelain") == "?? untracked.txt\n"


def test_config_and_hooks_of_the_attempt_go_and_a_persons_stay(repo: Repo) -> None:
    hold(
        repo,
        "echo x >>src/a.py; git config core.pager planted; printf '#!/bin/sh\ntouch ran\n' >.git/hooks/pre-commit;"
        "chmod +x .git/hooks/pre-commit; echo theirs >.git/info/attributes",
    )
    repo.sh("printf '#!/bin/sh\n' >.git/hooks/pre-push; echo mine >.git/info/attributes")
    told = keep(repo)
    assert told.endswith("those that only the attempt had changed are as before it:\n  config\n  hooks/pre-commit\n"), told
    assert repo.sh("git config core.pager || echo none") == "none\n"
    assert not (repo.root / ".git/hooks/pre-commit").exists()
    assert (repo.root / ".git/hooks/pre-push").exists()
    assert (repo.root / ".git/info/attributes").read_text() == "mine\n"


@pytest.mark.parametrize("point", ["vouched.index", "vouched.ref", "hold.before", "hold.after", "release.before"])
def test_killed_and_repeated_it_makes_one_commit(repo: Repo, point: str) -> None:
    hold(repo, "echo x >>src/a.py; git tag theirs; git config a.b c")
    count = int(repo.sh("git rev-list --count HEAD"))
    assert repo.evolver("resume", "--keep", env={"EVOLVER_CRASH_AT": point}).code == -signal.SIGKILL
    keep(repo)
    assert int(repo.sh("git rev-list --count HEAD")) == count + 1
    assert repo.sh("git status --porcelain") == "?? untracked.txt\n"
    assert repo.sh("git tag").split() == ["theirs"]
    assert repo.evolver("audit", "verify").code == 0


def test_a_dry_run_names_what_would_be_committed_and_changes_nothing(repo: Repo) -> None:
    hold(repo, "echo x >>src/a.py; echo new >new.txt; git config a.b c")
    before = Snapshot.of(repo.root)
    told = keep(repo, "--dry-run", code=3)
    assert "keeping would commit 2 paths" in told
    assert "  new.txt\n  src/a.py\n" in told
    back = repo.evolver("resume", "--dry-run").text
    assert "put 1 of git's own files back:\n  config\n" in back
    assert differences(before, Snapshot.of(repo.root)) == []
