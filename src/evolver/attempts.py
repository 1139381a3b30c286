"""Failed attempts that were kept: found, shown, brought back.

Two places: this tool's entries of the stash list (mode stash), and refs under refs/evolver/attempts/ (`[rollback] keep_attempts`, and
whatever recovery removed). Both are commits of the shape that `git stash` uses; see worktree/preserve.py.
"""

from __future__ import annotations

import os
import re
import stat
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from evolver.errors import EvolverError, GitError, PreflightError, UsageError
from evolver.git import Git
from evolver.layout import Layout
from evolver.outside import temporary_base
from evolver.resume_lock import write_atomic
from evolver.worktree import copies
from evolver.worktree.anchor import Anchor
from evolver.worktree.hidden import hidden_edits
from evolver.worktree.kept import KeptAttempt, drop, listed, prune
from evolver.worktree.manifest import entry_of, split
from evolver.worktree.objects import Staged, TemporaryIndex, commit_tree, empty_tree, hash_files
from evolver.worktree.preflight import in_progress
from evolver.worktree.remove import remove
from evolver.worktree.room import blockers

HINT = "`evolver attempts list` shows them. Give RUN_ID/N, N (of the newest run), `last`, a commit id, or a ref."
REPLACED = "refs/evolver/replaced/"
_DIFF = ("--no-ext-diff", "--no-textconv", "--no-color", "--binary", "--no-renames")


def repository(layout: Layout) -> Git:
    """git for the worktree, pinned. Nothing foreign may be at work: these commands are a person's."""
    return Git.at(layout.root, layout.git_dir)


def find(git: Git, wanted: str) -> KeptAttempt:
    """Raise `UsageError` when there is none such, or more than one."""
    kept = listed(git)
    if not kept:
        raise UsageError("no attempts are kept", "--rollback stash keeps them, and so does [rollback] keep_attempts = N.")
    if wanted == "last":
        return kept[0]
    if wanted.isdigit() and len(wanted) < 7:
        newest = max(k.iteration_id.rpartition("/")[0] for k in kept)  # UUIDv7: the greatest is the newest
        matches = [k for k in kept if k.iteration_id == f"{newest}/{wanted}"]
    elif wanted.startswith("refs/"):
        matches = [k for k in kept if k.ref == wanted]
    elif "/" in wanted:
        run, _, number = wanted.rpartition("/")
        matches = [k for k in kept if k.iteration_id.startswith(run) and k.iteration_id.endswith(f"/{number}")]
    else:
        matches = [k for k in kept if re.fullmatch(r"[0-9a-f]{6,64}", wanted) and k.commit.startswith(wanted)]
    unique = {k.commit: k for k in matches}
    if len(unique) != 1:
        raise UsageError(f"{wanted}: {'no kept attempt' if not unique else 'more than one kept attempt'}", HINT)
    return next(iter(unique.values()))


def show(git: Git, attempt: KeptAttempt) -> bytes:
    """A unified diff against pre_ref: tracked files, then the untracked ones, then what no tree can hold, as comments."""
    out = git.run("diff", *_DIFF, attempt.pre_ref, attempt.commit, "--").out
    untracked = _untracked_tree(git, attempt)
    if untracked:
        out += git.run("diff", *_DIFF, empty_tree(git), untracked, "--").out
    lines = [f"# removed an untracked file: {name}\n" for name in attempt.removed]
    lines += [f"# made an empty folder: {name}\n" for name in attempt.folders]
    if attempt.copies:
        folder = copies.folder_of(git.git_dir, attempt.copies)
        lines.append(f"# copies of what no commit can hold: {folder or f'{attempt.copies}, not found in this repository'}\n")
        lines += [f"#   {line}\n" for line in (copies.listed_in(folder) if folder is not None else ())]
    return out + os.fsencode("".join(lines))


def _untracked_tree(git: Git, attempt: KeptAttempt) -> str | None:
    done = git.run("rev-parse", "--verify", "--quiet", f"{attempt.commit}^3^{{tree}}", check=False)
    return done.text if done.ok else None


# ---------------------------------------------------------------- bringing one back


@dataclass(frozen=True, slots=True)
class Applied:
    """What `apply` did. `replaced`: the user's untracked files that stood in the way; their bytes are under `replaced_ref`."""

    paths: tuple[str, ...]
    replaced: tuple[str, ...] = ()
    replaced_ref: str = ""
    merged: bool = False  # HEAD was not the attempt's pre_ref: it was merged onto what is there


def apply(layout: Layout, git: Git, attempt: KeptAttempt) -> Applied:
    """Put the attempt into the worktree: files and index as the agent left them, what it committed staged. HEAD stays. The caller holds
    the run lock. Raise `PreflightError` for a tree with uncommitted changes, `UsageError` when it does not merge; then nothing changed."""
    begun = in_progress(layout.git_dir)
    if begun is not None:  # undoing a merge that conflicts would end it
        raise PreflightError(f"{begun.what} is in progress", begun.hint)
    dirty = git.run("status", "--porcelain", "-z", "--untracked-files=no", "--ignore-submodules=all").fields()
    if dirty:
        raise PreflightError(
            f"there are uncommitted changes: {os.fsdecode(dirty[0][3:])!r}", "Commit or stash them; an attempt is applied to a clean tree."
        )
    exact = git.text("rev-parse", "HEAD^{tree}") == git.text("rev-parse", f"{attempt.pre_ref}^{{tree}}")
    tracked = _changes(git, attempt.pre_ref, attempt.commit)
    untracked = _untracked_tree(git, attempt)
    loose = _changes(git, empty_tree(git), untracked) if untracked else {}
    _refuse_hidden(git, {*tracked, *loose, *attempt.removed})
    written = [p for p, s in (*tracked.items(), *loose.items()) if s.mode]
    standing = blockers(layout.root, written, attempt.folders, {p for p, s in tracked.items() if not s.mode})
    for path in standing:
        if _tracked(git, path):
            raise UsageError(f"the file {path!r} stands where the attempt has a folder", "HEAD has it; apply where the attempt began.")
    with tempfile.TemporaryDirectory(prefix="evolver-apply-", dir=temporary_base(layout)) as scratch, Anchor(layout.root) as anchor:
        in_the_way = [p for p, s in tracked.items() if s.mode and not _tracked(git, p)] + list(loose)
        saved = _save(git, anchor, Path(scratch), [*in_the_way, *standing, *attempt.removed])
        for path in standing:
            _unlink(anchor, path, folders=False)
        if exact:
            _write(git, anchor, Path(scratch), attempt.commit, tracked)
            _stage(git, _changes(git, attempt.pre_ref, f"{attempt.commit}^2"))
        else:
            _merge(git, anchor, Path(scratch), attempt, saved)
        if untracked:
            _write(git, anchor, Path(scratch), untracked, loose)
        for path in attempt.removed:
            status = anchor.lstat(path)
            if status is not None and not stat.S_ISDIR(status.st_mode):  # a folder is not what the attempt removed
                _unlink(anchor, path)
    for folder in attempt.folders:
        (layout.root / folder).mkdir(parents=True, exist_ok=True)
    return Applied(tuple(sorted({*tracked, *loose})), saved.paths, saved.ref, not exact)


def _refuse_hidden(git: Git, touched: set[str]) -> None:
    """`git status` does not know of them, and nothing would keep them."""
    hidden = sorted(touched & {os.fsdecode(path) for path in hidden_edits(git)})
    if hidden:
        raise PreflightError(
            f"there are uncommitted changes that git is told not to see: {hidden[0]!r}",
            "`git update-index --no-assume-unchanged` or `--no-skip-worktree` shows them to git; then commit or stash them.",
        )


@dataclass(frozen=True, slots=True)
class _Saved:
    paths: tuple[str, ...] = ()
    ref: str = ""


def _changes(git: Git, old: str, new: str) -> dict[str, Staged]:
    """Path -> what `new` says of it (mode 0: nothing), for paths on which they differ."""
    fields = git.run("diff-tree", "-r", "-z", "--raw", "--no-renames", "--no-abbrev", old, new, "--").out.split(b"\0")
    found: dict[str, Staged] = {}
    for meta, path in zip(fields[::2], fields[1::2], strict=False):
        _, mode, _, oid, _ = meta.decode().split(" ")
        found[os.fsdecode(path)] = Staged(int(mode, 8), oid)
    return found


def _tracked(git: Git, path: str) -> bool:
    return bool(git.run("ls-files", "-z", "--", path).out)


def _save(git: Git, anchor: Anchor, scratch: Path, paths: list[str]) -> _Saved:
    """Before anything is overwritten: the user's untracked files of these names, as a commit that a ref of ours holds."""
    files = {}
    for path in paths:
        st = anchor.lstat(path)
        if st is not None and (stat.S_ISREG(st.st_mode) or stat.S_ISLNK(st.st_mode)):
            files[path] = entry_of(st)
    if not files:
        return _Saved()
    hashed = hash_files(git, anchor, files, scratch)
    if hashed.refused:
        raise EvolverError(f"a file of yours that would be replaced cannot be kept: {hashed.why_not}", "Make it readable, or move it away.")
    with TemporaryIndex(git, scratch / "saved-index") as index:
        index.read_tree(empty_tree(git))
        index.stage(hashed.staged, "")
        commit = commit_tree(git, index.write_tree(), [], "evolver: untracked files that an applied attempt replaced\n")
    ref = f"{REPLACED}{int(time.time())}-{commit[:8]}"
    git.run("update-ref", ref, commit)
    return _Saved(tuple(sorted(files)), ref)


def _write(git: Git, anchor: Anchor, scratch: Path, tree: str, changes: dict[str, Staged]) -> None:
    """Removals first: a file may take a folder's place. Written through git, so that the user's filters smudge."""
    for path, staged in changes.items():
        if not staged.mode:
            _unlink(anchor, path)
    wanted = [p for p, s in changes.items() if s.mode and s.mode != 0o160000]
    for path in wanted:
        st = anchor.lstat(path)
        if st is not None and stat.S_ISDIR(st.st_mode):
            raise UsageError(f"the folder {path!r} stands where the attempt has a file", "Move it away, then apply again.")
        _unlink(anchor, path, folders=False)
    with TemporaryIndex(git, scratch / "write-index") as index:
        index.read_tree(tree)
        data = b"".join(os.fsencode(p) + b"\0" for p in wanted)
        if data:
            git.run("checkout-index", "-f", "-z", "--stdin", input=data, env=index.env)


def _unlink(anchor: Anchor, path: str, *, folders: bool = True) -> None:
    """Remove a file and the folders that are empty then."""
    if anchor.lstat(path) is None:
        return
    folder, name = split(path)
    remove(anchor.folder(folder), name)
    while folders and folder and not os.listdir(anchor.folder(folder)):
        anchor.forget(folder)
        above, leaf = split(folder)
        os.rmdir(leaf, dir_fd=anchor.folder(above))
        folder = above


def _stage(git: Git, changes: dict[str, Staged]) -> None:
    """The user's own index, his flags kept."""
    if changes:
        lines = []
        for path, staged in sorted(changes.items(), key=lambda item: item[1].mode != 0):
            lines.append(b"%o %s\t%s" % (staged.mode, staged.oid.encode(), os.fsencode(path)))
        git.run("update-index", "-z", "--replace", "--index-info", input=b"\0".join(lines) + b"\0")
    git.run("update-index", "-q", "--refresh", check=False)


def _merge(git: Git, anchor: Anchor, scratch: Path, attempt: KeptAttempt, saved: _Saved) -> None:
    """HEAD went on since: a three-way merge by `git stash apply`. When it conflicts, what it wrote is taken back: not by `reset --hard`,
    which would also write over files that git is told not to look at (kind 7), and the index keeps its flags."""
    index = git.git_dir / "index"
    before = index.read_bytes() if index.exists() else b""
    for path in saved.paths:
        _unlink(anchor, path, folders=False)
    tracked_only = commit_tree(git, f"{attempt.commit}^{{tree}}", [attempt.pre_ref, f"{attempt.commit}^2"], "attempt\n")
    # Without guessing that a folder was renamed: what the attempt adds would go where nothing was looked at, or kept aside.
    merging = git.but(options=(*git.options, "merge.directoryRenames=false"))
    done = merging.run("stash", "apply", "-q", tracked_only, check=False)
    if done.ok:
        return
    git.run("reset", "-q", "--merge", "HEAD", "--")
    if before:
        write_atomic(index, before, index.stat().st_mode & 0o777)
        git.run("update-index", "-q", "--refresh", check=False)
    if saved.ref:
        _write(git, anchor, scratch, saved.ref, _changes(git, empty_tree(git), saved.ref))
    words = os.fsdecode(done.out + done.err).strip().splitlines()
    raise UsageError(
        f"the attempt does not merge onto HEAD: {words[-1] if words else 'conflict'}",
        f"Check out {attempt.pre_ref[:12]} and apply it there; nothing was changed here.",
    )


__all__ = ["Applied", "GitError", "KeptAttempt", "apply", "drop", "find", "listed", "prune", "repository", "show"]
