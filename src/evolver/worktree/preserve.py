"""Keeps a whole attempt: one commit of three trees, as `git stash` shapes it, made without `git stash`.

`git stash push` loses an attempt that is commits only, refuses intent-to-add and unmerged indexes, and follows the position of
entries (hazards 5, 11, 16, 52). Here the trees are written from lists: I (the attempt's index), W (tracked files as they lay there), U (the
rest that is not ignored). Parents: pre_ref, I, U. What no tree can hold stands in the message as trailers.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from dataclasses import dataclass

from evolver.errors import GitError
from evolver.worktree.anchor import Anchor
from evolver.worktree.ignorerules import LONGEST, below
from evolver.worktree.inspect import Inspection, hashed_of, seal_index
from evolver.worktree.manifest import LEFT, Entry, lookup
from evolver.worktree.objects import Staged, TemporaryIndex, commit_tree, empty_tree, quoted
from evolver.worktree.site import Site
from evolver.worktree.snapshot import Snapshot

REMOVED = "Evolver-Removed-Untracked"  # trailer: an untracked file of the user that the attempt removed
EMPTY_FOLDER = "Evolver-Empty-Folder"
POST_REF = "Evolver-Post-Ref"
BASE = "Evolver-Pre-Ref"
COPIES = "Evolver-Copies"  # the folder with what no tree can hold; see copies.py
FOR_PERSON = "Evolver-Kept-For: a person"  # may hold a person's work: retention by number passes it over
IGNORED_UP_TO = 1 << 20  # bytes: larger ignored files are rebuilt, not kept


@dataclass(frozen=True)
class Kept:
    """The commit, and whether it holds anything that pre_ref does not."""

    commit: str
    holds: bool
    trees: tuple[str, str, str]  # work, index, untracked ("" when none)
    copies: str = ""  # name of the folder with what no tree holds
    person: bool = False  # marked as what may hold a person's work


def keep(
    site: Site,
    snapshot: Snapshot,
    found: Inspection,
    *,
    message: str,
    post_ref: str | None,
    copy: Callable[[dict[str, Entry]], str],
    ignored: bool = False,
    person: bool = False,
) -> Kept:
    """Write the commit. Raise `GitError` when it cannot be made; then nothing may be destroyed. `ignored`: small ignored files too.
    `person`: it may hold a person's work. `copy` is given what no tree holds; it keeps what is wanted of that, and names the folder."""
    git, zero = site.git, "0" * (2 * snapshot.hash_size)
    if found.oversized:
        raise GitError(f"the attempt is too large to be kept aside: {found.oversized}", "Look at it, then `evolver resume --rollback hard`.")
    pre_tree = git.text("rev-parse", f"{snapshot.pre_ref}^{{tree}}")
    index_tree, theirs = _index_tree(site, snapshot, found)
    work, loose = _sort(snapshot, found, theirs, ignored=ignored)
    copies = copy({p: now for p, (_, now) in found.changed.items() if now is not None and now.content != LEFT and not (work.get(p) or p in loose)})
    with Anchor(site.root) as anchor:
        files = {p: e for p, e in {**work, **loose}.items() if e is not None}
        blobs = hashed_of(site, snapshot, found, anchor, files)
    if blobs.refused:
        raise GitError(
            f"the attempt cannot be kept whole: {next(iter(blobs.refused))!r}: {next(iter(blobs.refused.values()))}",
            "Make it readable or move it away, then `evolver resume`; `evolver resume --rollback hard` keeps nothing.",
        )
    hashed = blobs.staged
    with TemporaryIndex(git, site.boat.folder / "work-index") as temporary:
        temporary.read_tree(index_tree)
        temporary.stage({p: hashed.get(p, Staged(0, "")) for p in work} | found.displaced, zero)
        work_tree = temporary.write_tree(missing_ok=True)
    untracked_tree = ""
    if loose:
        with TemporaryIndex(git, site.boat.folder / "loose-index") as temporary:
            temporary.read_tree(empty_tree(git))
            temporary.stage({p: hashed[p] for p in loose}, zero)
            untracked_tree = temporary.write_tree(missing_ok=True)
    trailers = _trailers(snapshot, found)
    theirs_too = bool(work or loose or trailers or found.displaced or found.index_changed)  # the user's own staged work is no attempt
    holds = theirs_too and bool((work_tree, index_tree) != (pre_tree, pre_tree) or loose or trailers)
    named = [*([f"{COPIES}: {copies}"] if copies else []), *([FOR_PERSON] if person else [])]
    text = _message(message, trailers + named, snapshot.pre_ref, post_ref)
    index_commit = commit_tree(git, index_tree, [snapshot.pre_ref], f"index on {message.splitlines()[0]}\n")
    parents = [snapshot.pre_ref, index_commit]
    if untracked_tree:
        parents.append(commit_tree(git, untracked_tree, [], f"untracked files on {message.splitlines()[0]}\n"))
    return Kept(commit_tree(git, work_tree, parents, text), holds, (work_tree, index_tree, untracked_tree), copies, person)


def _index_tree(site: Site, snapshot: Snapshot, found: Inspection) -> tuple[str, set[str]]:
    """The attempt's index as a tree, and the paths in it. Where git would refuse (unmerged, damaged), what a commit would have."""
    if found.index is not None and not found.index.unmerged:
        with TemporaryIndex(site.git, site.boat.folder / "their-index", found.raw_index) as temporary:
            try:
                tree = temporary.write_tree(missing_ok=True)
                return tree, {p for p, e in found.index.entries.items() if not e.flags & 0x20000000}
            except GitError:
                pass  # an index of the attempt that git cannot write: fall back to the worktree
    with seal_index(site, snapshot) as temporary:
        temporary.stage(found.wanted, "0" * (2 * snapshot.hash_size))
        tree = temporary.write_tree(missing_ok=True)
    listed = site.git.run("ls-tree", "-r", "-z", "--name-only", tree).fields()
    return tree, {os.fsdecode(p) for p in listed}


def _sort(
    snapshot: Snapshot, found: Inspection, theirs: set[str], *, ignored: bool
) -> tuple[dict[str, Entry | None], dict[str, Entry]]:
    """Paths of the work tree (None: not there) that may differ from the index tree; untracked files."""
    work: dict[str, Entry | None] = {}
    loose: dict[str, Entry] = {}
    for path, (_, now) in found.changed.items():
        usable = now if now is not None and (now.is_file or now.is_link) and now.content != LEFT else None
        if path in theirs:
            work[path] = usable
        elif usable is not None and _wanted_loose(snapshot, found, path, usable, ignored=ignored):
            loose[path] = usable
    if found.index_changed or found.index is None:
        # Staged, committed or dropped by the attempt though the file is as it was at the baseline.
        before = snapshot.index.entries
        now_entries = found.index.entries if found.index is not None else {}
        for path in theirs | set(before):
            was, is_now = before.get(path), now_entries.get(path)
            same = was is not None and is_now is not None and (was.mode, was.oid) == (is_now.mode, is_now.oid)
            if path in work or path in loose or same or (is_now is not None and is_now.mode == 0o160000):
                continue
            entry = lookup(found.scan.tree, path)
            usable = entry if entry is not None and (entry.is_file or entry.is_link) else None
            if path in theirs:
                work[path] = usable
            elif usable is not None and not snapshot.is_ignored(path):
                loose[path] = usable
    return work, loose


def _wanted_loose(snapshot: Snapshot, found: Inspection, path: str, entry: Entry, *, ignored: bool) -> bool:
    if len(os.fsencode(path)) >= LONGEST or path.rpartition("/")[2] == ".git" or "/.git/" in f"/{path}":
        return False
    if below(path, found.nested) and lookup(snapshot.work, path) is not None:
        return False  # inside the user's own nested repository: a stash holds none of it
    known_ignored = (path in found.ignored and path in found.ignored_then) or snapshot.is_ignored(path)
    return not known_ignored or path in found.shown or (ignored and entry.size <= IGNORED_UP_TO)


def _trailers(snapshot: Snapshot, found: Inspection) -> list[str]:
    removed, folders = [], set()
    for path, (before, now) in sorted(found.changed.items()):
        if below(path, found.nested) or snapshot.is_ignored(path):
            continue
        if now is None and before is not None and not before.is_dir and not snapshot.tracked(path):
            removed.append(f"{REMOVED}: {quoted(path).decode()}")
        # A folder is empty when it was made so, or when what was in it went.
        folder = path if now is not None and stat.S_ISDIR(now.mode) else path.rpartition("/")[0]
        if folder and folder not in found.ignored and found.scan.tree.get(folder) == {}:
            folders.add(folder)
    return removed + [f"{EMPTY_FOLDER}: {quoted(folder).decode()}" for folder in sorted(folders)]


def _message(message: str, trailers: list[str], pre_ref: str, post_ref: str | None) -> str:
    lines = [*trailers, f"{BASE}: {pre_ref}", *([f"{POST_REF}: {post_ref}"] if post_ref else [])]
    return message.rstrip("\n") + "\n\n" + "\n".join(lines) + "\n"
