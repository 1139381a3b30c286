"""A repository that is somewhere else, or something else, when the run that died or was held in it is finished.

Moved, copied, restored from a backup, mounted, with another home: restored exactly. Another repository in its place: refused, untouched.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from oracle import Snapshot, differences
from support import Repo

AGENT = "echo z >>src/a.py; git commit -qam z; git branch agents; echo new >new; rm -f mine; git config a.b c; git stash clear"
DIES = {"EVOLVER_CRASH_AT": "iteration.codegen_done"}


@pytest.fixture
def repo(tmp_path: Path) -> Repo:
    home = tmp_path / "home"
    home.mkdir()
    repo = Repo.make(tmp_path / "r")
    repo.env |= {"EVOLVER_STATE_DIR": str(tmp_path / "state")}
    repo.sh("echo s >>src/a.py; git stash -q; echo mine >mine; git remote add origin https://example.org/x")
    return repo


def die(repo: Repo, agent: str = AGENT) -> None:
    assert repo.run(agent, "true", "--dirty", "keep", env=DIES).code == -9


def changed(before: Snapshot, root: Path) -> list[str]:
    """But where the worktrees are, which git says in full paths."""
    return [d for d in differences(before, Snapshot.of(root)) if not d.startswith("git worktrees")]


def moved(repo: Repo, to: Path) -> None:
    repo.root.rename(to)


def copied(repo: Repo, to: Path) -> None:
    shutil.copytree(repo.root, to, symlinks=True)


def copied_and_removed(repo: Repo, to: Path) -> None:
    shutil.copytree(repo.root, to, symlinks=True)
    shutil.rmtree(repo.root)


def by_tar(repo: Repo, to: Path) -> None:
    to.mkdir()
    repo.sh(f"tar cf - . | tar xf - -C '{to}'")
    shutil.rmtree(repo.root)


@pytest.mark.parametrize("way", [copied, by_tar], ids=lambda way: way.__name__)
def test_after_a_kill(repo: Repo, tmp_path: Path, way: Callable[[Repo, Path], None]) -> None:
    before = Snapshot.of(repo.root)
    die(repo)
    way(repo, tmp_path / "elsewhere")
    other = Repo(tmp_path / "elsewhere", repo.env)
    done = other.evolver("resume")
    assert done.code == 0, done.text
    assert changed(before, other.root) == []
    other.sh("git fsck --strict")
    assert other.run("echo ok >ok", "true", "--dirty", "keep").code == 0


def test_held(repo: Repo, tmp_path: Path) -> None:
    before = Snapshot.of(repo.root)
    assert repo.run(AGENT, "false", "--dirty", "keep", "--rollback", "none").code == 3
    copied(repo, tmp_path / "elsewhere")
    for place, mode in ((tmp_path / "elsewhere", "hard"), (repo.root, "stash")):  # the copy first; the original is not concerned
        here = Repo(place, repo.env)
        done = here.evolver("resume", "--rollback", mode)
        assert done.code == 0, done.text
        if mode == "stash":
            here.sh("git stash drop -q")
        assert changed(before, place) == []


def test_a_backup_in_the_same_place(repo: Repo, tmp_path: Path) -> None:
    before = Snapshot.of(repo.root)
    die(repo)
    copied_and_removed(repo, tmp_path / "backup")
    copied_and_removed(Repo(tmp_path / "backup"), repo.root)
    assert repo.evolver("resume").code == 0
    assert changed(before, repo.root) == []


def test_another_state_folder(repo: Repo, tmp_path: Path) -> None:
    before = Snapshot.of(repo.root)
    die(repo)
    assert repo.evolver("resume", env={"EVOLVER_STATE_DIR": str(tmp_path / "other")}).code == 0
    assert changed(before, repo.root) == []


def test_moved_without_a_head(repo: Repo, tmp_path: Path) -> None:
    """git would take the repository above it for the one that is meant."""
    before = Snapshot.of(repo.root)
    die(repo, AGENT + "; rm .git/HEAD")
    Repo.make(tmp_path / "above")
    moved(repo, tmp_path / "above/r")
    assert Repo(tmp_path / "above/r", repo.env).evolver("resume").code == 0
    assert changed(before, tmp_path / "above/r") == []


def test_a_linked_worktree(repo: Repo, tmp_path: Path) -> None:
    repo.sh("git worktree add -q ../linked -b linked; echo mine >../linked/mine")
    linked = Repo(tmp_path / "linked", repo.env)
    before, main = Snapshot.of(linked.root), Snapshot.of(repo.root)
    die(linked, "echo z >>src/a.py; git commit -qam z; echo new >new; rm mine")
    repo.sh("git worktree move ../linked ../elsewhere")
    linked = Repo(tmp_path / "elsewhere", repo.env)
    done = linked.evolver("resume")
    assert done.code == 0, done.text
    assert changed(before, linked.root) == []
    assert str(linked.root) in repo.sh("git worktree list") and "prunable" not in repo.sh("git worktree list --porcelain")
    assert (linked.root / "mine").read_text() == "mine\n"
    assert linked.sh("git status --porcelain") == "?? mine\n"
    assert [d for d in differences(main, Snapshot.of(repo.root)) if "linked" not in d and "worktree" not in d] == []


def test_the_repository_of_a_linked_worktree_moved(repo: Repo, tmp_path: Path) -> None:
    repo.sh("git worktree add -q ../linked -b linked; echo mine >../linked/mine")
    linked = Repo(tmp_path / "linked", repo.env)
    die(linked, "echo z >>src/a.py; git commit -qam z; echo new >new; rm mine")
    moved(repo, tmp_path / "elsewhere")
    Repo(tmp_path / "elsewhere").sh(f"git worktree repair '{linked.root}'")
    done = linked.evolver("resume")
    assert done.code == 0, done.text
    assert linked.sh("git status --porcelain; cat mine; git log --format=%s -1") == "?? mine\nmine\nsecond\n"
    assert not repo.root.exists()


# ------------------------------------------------------------ another repository


def check_refused(repo: Repo, before: Snapshot, *words: str) -> None:
    for command in (("resume",), ("run", "--codegen", "true", "--validate", "true")):
        done = repo.evolver(*command)
        assert done.code == 4 and str(repo.root) in done.err and all(w in done.err for w in words), done.text
        assert changed(before, repo.root) == []


def boat(repo: Repo) -> Path:
    return next(p.parent for p in Path(repo.env["EVOLVER_STATE_DIR"]).glob("*/owner"))


@pytest.mark.parametrize("removed", [True, False], ids=["inode used again", "another inode"])
def test_a_new_repository_in_its_place(repo: Repo, tmp_path: Path, removed: bool) -> None:
    die(repo)
    if removed:
        shutil.rmtree(repo.root)
    else:
        repo.root.rename(tmp_path / "old")
    fresh = Repo.make(repo.root)
    fresh.env = repo.env
    fresh.sh("echo other >other; git add other; git commit -qm other; echo unsaved >unsaved")
    before = Snapshot.of(fresh.root)
    check_refused(fresh, before, fresh.head()[:12], str(boat(repo)))
    boat(repo).rename(tmp_path / "boat")  # what the hint says
    assert fresh.run("echo ok >ok", "true").code == 0
    assert (fresh.root / "unsaved").read_text() == "unsaved\n"


def test_the_old_one_comes_back_when_git_is_moved_away(repo: Repo, tmp_path: Path) -> None:
    before = Snapshot.of(repo.root)
    agent = "rm -rf .git; git init -q -b main; git add -A; git commit -qm mine; kill -9 $PPID"
    assert repo.run(agent, "true", "--dirty", "keep").code == -9
    check_refused(repo, Snapshot.of(repo.root))
    (repo.root / ".git").rename(tmp_path / "theirs")
    assert repo.evolver("resume").code == 0
    assert changed(before, repo.root) == []


def test_a_dead_run_of_its_own_moved_to_the_place_of_another(repo: Repo, tmp_path: Path) -> None:
    other = Repo.make(tmp_path / "other")
    other.env = repo.env
    other.sh("echo o >o; git add o; git commit -qm o; echo mine >mine")
    was = Snapshot.of(other.root)
    die(other)
    left = boat(repo)
    die(repo)
    moved(repo, tmp_path / "old")
    moved(other, repo.root)
    now = Snapshot.of(repo.root)
    check_refused(repo, now)
    next(p.parent for p in left.parent.glob("*/owner") if p.parent != left).rename(tmp_path / "boat")
    assert repo.evolver("resume").code == 0
    assert changed(was, repo.root) == []


def test_a_lifeboat_without_the_objects_builds_nothing(repo: Repo) -> None:
    die(repo)
    shutil.rmtree(boat(repo) / "stores")
    copied_and_removed(Repo(repo.root / ".git"), repo.root.parent / "saved")
    before = sorted(p for p in repo.root.rglob("*"))
    done = repo.evolver("resume")
    assert done.code == 4 and "does not hold" in done.err, done.text
    assert sorted(p for p in repo.root.rglob("*") if ".git" not in p.parts) == before
    shutil.rmtree(repo.root / ".git", ignore_errors=True)
    (repo.root.parent / "saved").rename(repo.root / ".git")
    assert repo.evolver("resume").code == 0


def test_held_with_a_repository_of_the_attempts_own(repo: Repo) -> None:
    before = Snapshot.of(repo.root)
    agent = "rm -rf .git; git init -q -b main; git add -A; git commit -qm mine"
    assert repo.run(agent, "false", "--dirty", "keep", "--rollback", "none").code == 3
    assert repo.sh("git log --format=%s") == "mine\n"
    assert repo.evolver("resume").code == 3
    assert repo.evolver("resume", "--rollback", "hard").code == 0
    assert changed(before, repo.root) == []


def test_killed_after_evolvers_folder_was_removed(repo: Repo) -> None:
    before = Snapshot.of(repo.root)
    die(repo, AGENT + "; rm -rf .git/evolver")
    assert repo.evolver("resume").code == 0
    assert changed(before, repo.root) == []


def test_a_newline_in_the_path(tmp_path: Path) -> None:
    repo = Repo.make(tmp_path / "a\nb\n")
    repo.env |= {"EVOLVER_STATE_DIR": str(tmp_path / "state")}
    before = Snapshot.of(repo.root)
    die(repo, AGENT + "; rm -rf .git")
    assert repo.evolver("resume").code == 0
    assert changed(before, repo.root) == []
