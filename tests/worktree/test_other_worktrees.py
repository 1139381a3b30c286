"""Somebody works in another worktree of the same repository while an attempt is under way here: his work stays, the attempt's goes.

Shows: what is told apart by git's own notes in each worktree, what is left and named, and what is put back but kept.
"""

from __future__ import annotations

import json
import subprocess
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from oracle import Snapshot, differences
from support import Done, Repo, ended

AGENT = "echo z >>src/a.py; git commit -qam z; git branch agents; git tag agents; echo s >>run.sh; git stash -q; echo z >>src/a.py"
ENDS = [("false", "hard", 1), ("false", "stash", 1), ("true", "hard", 0)]  # validator, mode, exit status


@pytest.fixture
def repo(tmp_path: Path) -> Repo:
    repo = Repo.make(tmp_path / "r")
    repo.sh("git branch other HEAD~1; git worktree add -q -b side ../side; echo mine >>src/pkg/b.py; git stash -q")
    return repo


@pytest.fixture
def side(repo: Repo) -> Repo:
    return Repo(repo.root.parent / "side")


def during(repo: Repo, act: Callable[[], object], validate: str, *words: str, agent: str = AGENT) -> Done:
    """`act` while the attempt has done its work and is still running."""
    done, go = repo.root.parent / "agent-done", repo.root.parent / "go-on"
    for sign in (done, go):
        sign.unlink(missing_ok=True)
    waiting = f"{agent}; touch '{done}'; until [ -e '{go}' ]; do sleep 0.02; done"
    process = repo.start("run", "--max-iters", "1", "--codegen", waiting, "--validate", validate, *words)
    repo.wait_for(lambda: done.exists() or process.poll() is not None)
    assert done.exists(), ended(process).text
    try:
        act()
    finally:
        go.touch()
        result = ended(process)
    return result


def told(repo: Repo, kind: str) -> list[dict[str, Any]]:
    lines = repo.evolver("events", "-o", "json", "--type", kind).out.splitlines()
    return [json.loads(line)["data"] for line in lines]


def refs(repo: Repo) -> set[str]:
    return set(repo.sh("git for-each-ref --format='%(refname)' refs/heads refs/tags refs/remotes").split())


# ------------------------------------------------------------ files


@pytest.mark.parametrize(("validate", "mode", "code"), ENDS)
def test_edits_in_a_worktree_below_ours_stay(repo: Repo, validate: str, mode: str, code: int) -> None:
    repo.sh("git worktree add -q -b below build/below; echo draft >build/below/draft; echo lost >build/below/lost")
    below = Repo(repo.root / "build/below")

    def work() -> None:
        below.sh("echo hours >work; git add work; echo edit >>src/a.py; echo more >>draft")

    agent = "rm build/below/lost; echo z >>src/a.py"
    assert during(repo, work, validate, "--rollback", mode, agent=agent).code == code
    assert below.status() == " M src/a.py\nA  work\n?? draft\n"
    assert (below.root / "draft").read_text() == "draft\nmore\n"
    if code:  # what differs there is named, with where its bytes are kept: nobody can tell whose doing it was
        left = told(repo, "rollback.finished")[0]["left"]
        assert "build/below" in left
        place = next(line for line in left if line.startswith("build/below/lost")).partition("earlier: ")[2].removesuffix(")")
        assert Path(place).read_text() == "lost\n"


def test_a_build_that_never_rests_in_a_worktree_below_ours(repo: Repo) -> None:
    repo.sh("git worktree add -q -b below build/below")
    build = "while :; do mkdir -p d/e; for i in 1 2 3 4 5 6; do echo $RANDOM >d/e/$i; done; rm -rf d; sleep 0.01; done"
    process = subprocess.Popen(["bash", "-c", build], cwd=repo.root / "build/below")
    try:
        done = repo.run("echo z >>src/a.py", "false", "--max-iters", "3")
        assert done.code == 1, done.text
    finally:
        process.kill()
        process.wait()


def test_a_worktree_below_ours_comes_back_when_the_attempt_removes_it(repo: Repo) -> None:
    repo.sh("git worktree add -q -b below build/below; echo draft >build/below/draft; echo edit >>build/below/src/a.py")
    before = Snapshot.of(repo.root)
    for agent in ("rm -rf build", "git worktree remove --force build/below", "rm -rf build .git/worktrees"):
        assert repo.run(f"{agent}; echo z >>src/a.py", "false").code == 1
        assert differences(before, Snapshot.of(repo.root)) == [], agent


def test_a_worktree_that_is_moved_meanwhile_stays_where_it_is(repo: Repo) -> None:
    repo.sh("git worktree add -q -b below build/below; echo draft >build/below/draft")
    moves = "mkdir new && git worktree move build/below new/below && git worktree move ../side ../aside"
    assert during(repo, lambda: repo.sh(moves), "false").code == 1
    assert (repo.root / "new/below/draft").read_text() == "draft\n"
    assert not (repo.root / "build/below").exists()
    for place in ("new/below", "../aside"):
        repo.sh(f"git -C {place} status")
    assert "prunable" not in repo.sh("git worktree list")


@pytest.mark.parametrize("validate", ["false", "true"])
def test_a_worktree_added_meanwhile_by_somebody_who_is_in_it(repo: Repo, validate: str) -> None:
    lodgers: list[subprocess.Popen[bytes]] = []

    def move_in() -> None:
        repo.sh("git -C ../side worktree add -q -b hotfix ../hotfix; cd ../hotfix; echo f >f; git add f; git commit -qm f; echo g >g; git add g")
        lodgers.append(subprocess.Popen(["sleep", "60"], cwd=repo.root.parent / "hotfix"))

    try:
        during(repo, move_in, validate, agent=f"{AGENT}; git worktree add -q -b theirs ../theirs")
    finally:
        for lodger in lodgers:
            lodger.kill()
            lodger.wait()
    hotfix = Repo(repo.root.parent / "hotfix")
    assert hotfix.sh("git log -1 --format=%s; git status --porcelain") == "f\nA  g\n"
    assert "theirs" not in repo.sh("git worktree list; git branch")
    if validate == "false":
        assert ".git/worktrees/hotfix/" in told(repo, "rollback.finished")[0]["left"]


# ------------------------------------------------------------ git's own state


def test_what_is_half_done_in_the_main_worktree_is_none_of_ours(repo: Repo, side: Repo) -> None:
    repo.sh("git checkout -q other; echo o >src/a.py; git commit -qam o; git checkout -q main")
    begun = "git bisect start; git bisect bad; git bisect good HEAD~1"

    def work() -> None:
        repo.sh("git rebase other", check=False)
        repo.sh(f"touch .git/index.lock; echo m >.git/COMMIT_EDITMSG; git update-ref refs/worktree/mine HEAD; {begun}", check=False)

    for validate, code in (("true", 0), ("false", 1)):
        assert during(side, work, validate, agent="echo z >>src/a.py").code == code
        assert not told(side, "alert.control_changed")
        assert (repo.root / ".git/rebase-merge").is_dir()
        assert (repo.root / ".git/index.lock").exists()
        assert repo.sh("git rev-parse --verify refs/worktree/mine")


def test_a_bisection_in_the_main_worktree_goes_on(repo: Repo, side: Repo) -> None:
    assert during(side, lambda: repo.sh("git bisect start; git bisect bad; git bisect good HEAD~1"), "false").code == 1
    assert "refs/bisect/bad" in repo.sh("git for-each-ref")
    repo.sh("git bisect reset")


def test_a_lock_that_another_git_holds_for_a_moment_is_waited_for(repo: Repo, side: Repo) -> None:
    lock = repo.root / ".git/refs/heads/side.lock"

    def work() -> None:
        lock.touch()
        threading.Timer(0.4, lock.unlink).start()

    assert during(repo, work, "true", agent="echo z >>src/a.py").code == 0
    assert not told(repo, "alert.control_changed")
    time.sleep(0.5)
    assert not lock.exists()


# ------------------------------------------------------------ refs and the stash list

PERSON = (
    "echo p >>src/a.py; git stash -q; git switch -q -c topic; echo t >t; git add t; git commit -qm topic; git tag v1; git branch topic2; "
    "git switch -q side; echo c >c; git add c; git commit -qm on-side; git switch -q other; echo q >>src/a.py; git stash -q -m words"
)


@pytest.mark.parametrize(("validate", "mode", "code"), ENDS)
def test_branches_and_stash_entries_made_in_another_worktree_stay(repo: Repo, side: Repo, validate: str, mode: str, code: int) -> None:
    mine = repo.sh("git stash list --format=%H")
    assert during(repo, lambda: side.sh(PERSON), validate, "--rollback", mode).code == code
    assert refs(repo) == {f"refs/heads/{n}" for n in ("main", "other", "side", "topic", "topic2")} | {"refs/tags/v1"}
    assert repo.sh("git log -1 --format=%s side; git log -1 --format=%s topic") == "on-side\ntopic\n"
    subjects = repo.sh("git stash list --format=%gs").splitlines()
    ours = [line for line in subjects if line.startswith("evolver ")]
    assert len(ours) == (mode == "stash")
    assert [line.partition(": ")[0] for line in subjects if line not in ours] == ["On other", "WIP on side", "WIP on main"]
    assert repo.sh("git stash list --format=%H").endswith(mine)
    assert repo.sh("git stash list 2>&1 >/dev/null; git reflog show --date=iso stash 2>&1 >/dev/null") == ""
    alert = told(repo, "alert.refs_left")[0]
    assert set(alert["refs"]) == {"refs/heads/side", "refs/heads/topic", "refs/heads/topic2", "refs/tags/v1", "refs/stash"}
    side.sh("git stash drop -q; git stash pop -q" if ours else "git stash pop -q")


def test_a_rebase_that_ends_meanwhile_keeps_its_branch(repo: Repo, side: Repo) -> None:
    repo.sh("git checkout -q other; echo o >run.sh; git commit -qam o; git checkout -q main")
    side.sh("echo s >run.sh; git commit -qam s; git rebase other || :")
    end = "git add -A; GIT_EDITOR=true git rebase --continue; git switch -q --detach; git branch -m side renamed"
    assert during(repo, lambda: side.sh(end), "false").code == 1
    assert side.sh("git log --format=%s renamed") == "s\nsecond\no\nbase\n"
    assert "refs/heads/side" not in refs(repo)


def test_what_is_fetched_or_pushed_elsewhere_stays(repo: Repo, side: Repo) -> None:
    repo.sh("git clone -q --bare . ../origin.git; git remote add origin ../origin.git; git clone -q ../origin.git ../colleague")
    repo.sh("cd ../colleague; echo n >n; git add n; git commit -qm n; git tag v2; git push -q origin HEAD:news v2")
    during(repo, lambda: side.sh("git fetch -q; echo c >c; git add c; git commit -qm c; git push -q origin side"), "false")
    assert {"refs/remotes/origin/news", "refs/remotes/origin/side", "refs/tags/v2"} <= refs(repo)


def test_what_nothing_tells_of_is_put_back_and_kept(repo: Repo, side: Repo) -> None:
    made = "git commit-tree -p HEAD -m loose HEAD^{tree}"
    assert during(repo, lambda: side.sh(f"git branch loose $({made}); git tag -a -m note noted; git branch -D other"), "false").code == 1
    assert refs(repo) == {"refs/heads/main", "refs/heads/other", "refs/heads/side"}
    kept = repo.sh("git for-each-ref --format='%(refname) %(contents:subject)' refs/evolver/attempts/moved").splitlines()
    assert sorted(line.split("/", 6)[6] for line in kept) == ["heads/loose loose", "tags/noted note"]
    assert told(repo, "alert.refs_left")[0]["put_back"] == ["refs/heads/loose", "refs/heads/other", "refs/tags/noted"]


def test_a_worktree_removed_with_its_branch_comes_back_and_is_named(repo: Repo) -> None:
    assert during(repo, lambda: repo.sh("git worktree remove ../side; git branch -qD side"), "false").code == 1
    assert "refs/heads/side" in refs(repo)
    assert told(repo, "alert.refs_left")[0]["put_back"] == ["refs/heads/side"]


def test_an_attempt_alone_is_undone_and_not_kept(repo: Repo, side: Repo) -> None:
    before, beside = Snapshot.of(repo.root), Snapshot.of(side.root)
    assert repo.run(AGENT, "false").code == 1
    assert differences(before, Snapshot.of(repo.root)) == []
    assert differences(beside, Snapshot.of(side.root)) == []
    assert repo.sh("git for-each-ref refs/evolver/attempts") == ""
    assert not told(repo, "alert.refs_left")


def test_another_run_and_an_open_editor_in_linked_worktrees(repo: Repo, side: Repo) -> None:
    repo.sh("git worktree add -q -b third ../third")

    def work() -> None:
        (repo.root / ".git/worktrees/third/index.lock").touch()
        assert side.run("echo s >>src/a.py; git commit -qam s; git branch sides", "false", "--rollback", "stash").code == 1

    assert during(repo, work, "true", "--rollback", "stash").code == 0
    assert not told(repo, "alert.control_changed")
    assert (repo.root / ".git/worktrees/third/index.lock").exists()
    assert refs(repo) == {f"refs/heads/{n}" for n in ("main", "other", "side", "third")}  # each undid its own
    assert side.evolver("audit", "verify").code == 0  # its locks and its stream stayed
    assert "evolver" in repo.sh("git stash list")


# ------------------------------------------------------------ after a kill; a bare repository


def test_recovery_leaves_what_was_done_elsewhere_since(repo: Repo, side: Repo) -> None:
    started = repo.root.parent / "started"
    process = repo.start("run", "--codegen", f"{AGENT}; touch '{started}'; sleep 60", "--validate", "false")
    repo.wait_for(started.exists)
    process.kill()
    process.communicate()
    side.sh(PERSON)
    assert repo.evolver("resume").code == 0
    assert {"refs/heads/topic", "refs/heads/topic2", "refs/tags/v1"} <= refs(repo)
    assert not {"refs/heads/agents", "refs/tags/agents"} & refs(repo)
    assert repo.sh("git log -1 --format=%s side") == "on-side\n"
    assert repo.sh("git stash list --format=%gs").splitlines()[0] == "On other: words"


def test_worktrees_of_a_bare_repository(repo: Repo, tmp_path: Path) -> None:
    repo.sh("git clone -q --bare . ../all/.bare; cd ../all; echo 'gitdir: ./.bare' >.git")
    repo.sh("cd ../all; git worktree add -q one main; git worktree add -q two other")
    one, two = Repo(tmp_path / "all/one"), Repo(tmp_path / "all/two")
    before = Snapshot.of(one.root)
    work = "echo p >>src/a.py; git stash -q; git switch -q -c topic; echo t >t; git add t; git commit -qm topic"
    assert during(one, lambda: two.sh(work), "false").code == 1
    assert one.sh("git log -1 --format=%s topic; git stash list --format=%gs").startswith("topic\nWIP on other")
    one.sh("git stash drop -q; git -C ../two switch -q other; git branch -qD topic")
    assert differences(before, Snapshot.of(one.root)) == []
