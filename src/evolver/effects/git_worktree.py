"""The loop's own worktree: a command, such as a generator, that changes only files of the worktree, its index or its HEAD.

What it did is taken back to the attempt as it stood before the command, so that `stash` keeps and `none` shows the attempt
alone; when the iteration is rejected, the loop then restores its baseline as always.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence

from evolver.effects.host import Host
from evolver.effects.snapshot import Snapshot, TooLargeError
from evolver.effects.spec import ActionSpec, Arguments, Recorded, RollbackSpec, Undoing, Undone, UndoneKind
from evolver.errors import GitError
from evolver.git import Git

REF = "git worktree as before"


def _no_argv(args: Arguments) -> tuple[str, ...]:
    return ()  # the effect's own `run` is all there is


def _git(host: Host) -> Git:
    return Git.at(host.layout.root, host.layout.git_dir)


def _head(git: Git) -> tuple[str, str]:
    """Branch (the empty string when detached) and commit."""
    return git.run("symbolic-ref", "--quiet", "HEAD", check=False).text, git.text("rev-parse", "--verify", "HEAD")


def _record(host: Host, args: Mapping[str, str], earlier: Sequence[Mapping[str, str]]) -> Recorded:
    git = _git(host)
    try:
        branch, commit = _head(git)
        ignored = git.run("ls-files", "-z", "--others", "--ignored", "--exclude-standard", "--directory").fields()
        Snapshot(host.layout.root, host.scratch / "before").take(tuple(path.rstrip(b"/") for path in ignored))
        index = host.layout.git_dir / "index"
        if index.exists():
            shutil.copyfile(index, host.scratch / "index")
    except TooLargeError as large:
        return Recorded({}, f"the worktree cannot be kept aside: {large}")
    except (GitError, OSError) as error:
        return Recorded({}, f"the worktree cannot be kept aside: {error}")
    return Recorded({"branch": branch, "commit": commit})


def _undo(host: Host, undoing: Undoing) -> Undone:
    git = _git(host)
    try:
        moved = _head_back(git, undoing.recorded["branch"], undoing.recorded["commit"])
        touched = Snapshot(host.layout.root, host.scratch / "before").put_back()
        staged = _index_back(host)
    except (GitError, OSError) as error:
        return Undone(UndoneKind.FAILED, f"the worktree could not be put back: {error}", REF)
    if not (moved or touched or staged):
        return Undone(UndoneKind.UNCHANGED, "the worktree is as it was before the command")
    return Undone(UndoneKind.DONE, f"{touched} paths put back", REF)


def _head_back(git: Git, branch: str, commit: str) -> bool:
    """HEAD and its branch, by compare-and-swap against what is read now."""
    why = "evolver: effect rolled back"
    now_branch, now_commit = _head(git)
    if (now_branch, now_commit) == (branch, commit):
        return False
    if now_branch == branch:
        git.run("update-ref", "-m", why, branch or "HEAD", commit, now_commit)
    elif branch:
        git.run("update-ref", "-m", why, branch, commit)
        git.run("symbolic-ref", "-m", why, "HEAD", branch)
    else:
        git.run("update-ref", "--no-deref", "-m", why, "HEAD", commit)
    return True


def _index_back(host: Host) -> bool:
    kept, index = host.scratch / "index", host.layout.git_dir / "index"
    if not kept.exists():
        return False
    if index.exists() and index.read_bytes() == kept.read_bytes():
        return False
    temporary = index.with_name("index.evolver-new")
    shutil.copyfile(kept, temporary)
    temporary.replace(index)
    return True


ACTION = ActionSpec(
    name="git-worktree",
    family="git-worktree",
    summary="run a command that changes only the worktree",
    argv=_no_argv,
    risk="low",
    takes_run=True,
    in_worktree=True,
    rollback=RollbackSpec(ref=REF, record=_record, undo=_undo),
    note="ignored files that were there before, and nested repositories, are left to the loop's own restore",
)
