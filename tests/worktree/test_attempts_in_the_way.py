"""`evolver attempts apply` where something of the user's stands in the way: kept aside, or refused before anything is changed."""

from __future__ import annotations

from pathlib import Path

import pytest

from oracle import Snapshot, differences
from support import Repo


@pytest.fixture
def repo(tmp_path: Path) -> Repo:
    return Repo.make(tmp_path / "box" / "r")


def kept(repo: Repo, agent: str) -> None:
    done = repo.run(agent, "false", "--rollback", "stash")
    assert done.code == 1, done.text


COMMITTED = "mkdir d && echo new >d/f && git add d && git commit -qm d"


@pytest.mark.parametrize("agent", [COMMITTED, "mkdir d && echo new >d/f", "mkdir -p d/empty; echo x >>src/a.py"])
@pytest.mark.parametrize("merged", [False, True])
@pytest.mark.parametrize("what", ["file", "link"])
def test_a_file_of_the_user_where_the_attempt_has_a_folder_is_kept_aside(
    repo: Repo, tmp_path: Path, agent: str, merged: bool, what: str
) -> None:
    (tmp_path / "outside").mkdir()
    kept(repo, agent)
    if merged:
        repo.sh("echo later >later && git add later && git commit -qm later")
    repo.sh("printf 'mine' >d" if what == "file" else f"ln -s {tmp_path}/outside d")
    done = repo.evolver("attempts", "apply", "last")
    assert done.code == 0, done.text
    assert (repo.root / "d").is_dir() and not (repo.root / "d").is_symlink()
    (ref,) = repo.sh("git for-each-ref --format='%(refname)' refs/evolver/replaced").split()
    assert f"git show {ref}:d" in done.text
    assert repo.sh(f"git show {ref}:d") == ("mine" if what == "file" else f"{tmp_path}/outside")
    assert list((tmp_path / "outside").iterdir()) == []


def test_a_folder_of_the_user_where_the_attempt_has_a_file_is_refused_before_anything_is_changed(repo: Repo) -> None:
    kept(repo, "rm src/pkg/b.py; echo new >x; git add -A; git commit -qm x; echo loose >y")
    repo.sh("mkdir x y && echo mine >x/f && echo mine >y/f")
    before = Snapshot.of(repo.root)
    for name in ("x", "y"):
        done = repo.evolver("attempts", "apply", "last")
        assert done.code == 2 and f"the folder {name!r} stands where the attempt has a file" in done.text
        assert differences(before, Snapshot.of(repo.root)) == []
        repo.sh(f"rm -r {name}")
        before = Snapshot.of(repo.root)
    assert repo.evolver("attempts", "apply", "last").code == 0
    assert (repo.root / "y").read_text() == "loose\n"


def test_a_folder_where_the_attempt_removed_a_file_is_left_alone(repo: Repo) -> None:
    repo.sh("echo n >notes")
    kept(repo, "rm notes; echo x >>src/a.py")
    repo.sh("rm notes && mkdir notes && echo mine >notes/f")
    assert repo.evolver("attempts", "apply", "last").code == 0
    assert (repo.root / "notes/f").read_text() == "mine\n"


def test_a_folder_that_the_attempt_itself_replaced_by_a_file_is_replaced_again(repo: Repo) -> None:
    kept(repo, "rm -r src/pkg && echo file >src/pkg")
    done = repo.evolver("attempts", "apply", "last")
    assert done.code == 0, done.text
    assert (repo.root / "src/pkg").read_text() == "file\n"


@pytest.mark.parametrize("flag", ["assume-unchanged", "skip-worktree"])
def test_edits_that_git_is_told_not_to_see_are_not_written_over(repo: Repo, flag: str) -> None:
    kept(repo, "echo agent >>src/a.py")
    repo.sh(f"git update-index --{flag} src/a.py && echo mine >src/a.py")
    done = repo.evolver("attempts", "apply", "last")
    assert done.code == 5 and "git is told not to see: 'src/a.py'" in done.text
    assert (repo.root / "src/a.py").read_text() == "mine\n"
    repo.sh("git cat-file -p HEAD:src/a.py >src/a.py")
    assert repo.evolver("attempts", "apply", "last").code == 0
    assert (repo.root / "src/a.py").read_text().endswith("agent\n")


def test_a_conflict_spares_the_index_flags_and_what_they_hide(repo: Repo) -> None:
    kept(repo, "echo x >>src/a.py; echo new >new")
    repo.sh("echo other >>src/a.py; git commit -qam other; git update-index --assume-unchanged run.sh; git update-index --skip-worktree link")
    repo.sh("echo MINE >>run.sh; git update-index --assume-unchanged src/pkg/b.py")
    before = Snapshot.of(repo.root)
    done = repo.evolver("attempts", "apply", "last")
    assert done.code == 2 and "nothing was changed here" in done.text
    assert differences(before, Snapshot.of(repo.root)) == []
    assert (repo.root / "run.sh").read_text().endswith("MINE\n")


BEGUN = {
    "merge": "git merge -q --no-ff --no-commit -s ours side",
    "rebase": "GIT_SEQUENCE_EDITOR='sed -i 1s/^pick/edit/' git rebase -q -i --keep-empty HEAD~1",
    "cherry-pick": "git cherry-pick --no-commit side; git rev-parse side >.git/CHERRY_PICK_HEAD",
    "revert": "git revert --no-commit HEAD~1; git reset -q HEAD; git checkout -q .; git rev-parse HEAD >.git/REVERT_HEAD",
    "bisect": "git bisect start -q; git bisect bad; git bisect good HEAD~2",
}


@pytest.mark.parametrize("what", BEGUN)
def test_what_a_person_is_in_the_middle_of_is_not_ended(repo: Repo, what: str) -> None:
    kept(repo, "echo x >>src/a.py")
    repo.sh("git checkout -q -b side; git commit -q --allow-empty -m side; git checkout -q main; echo other >>src/a.py; git commit -qam other")
    repo.sh(f"({BEGUN[what]}) >/dev/null 2>&1", check=False)
    assert repo.sh("git status --porcelain").strip() == ""
    before = Snapshot.of(repo.root)
    done = repo.evolver("attempts", "apply", "last")
    assert done.code == 5 and f"a {what} is in progress" in done.text, done.text
    assert differences(before, Snapshot.of(repo.root)) == []


def test_a_folder_renamed_since_does_not_draw_the_attempts_file_over_another(repo: Repo) -> None:
    repo.sh("seq 50 >src/pkg/c.py; git add .; git commit -qm c")
    kept(repo, "echo agent >src/pkg/data; git add src/pkg/data; git commit -qm data")
    repo.sh("git mv src/pkg src/moved; echo data >.gitignore; git commit -qam moved; echo SECRET >src/moved/data")
    repo.evolver("attempts", "apply", "last")
    assert (repo.root / "src/moved/data").read_text() == "SECRET\n"
