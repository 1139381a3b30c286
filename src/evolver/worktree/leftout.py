"""What is no part of the baseline (ignored, and over the budget or left by choice) is told by its inode: is each such path still what it was?

An attempt that moves such a folder has the user's only copy lie there as something new, to be removed by the rollback or to be committed.
Moved as a whole it is found again and moved back. What was deleted cannot come back, and is named; what was moved out of it cannot be told.
"""

from __future__ import annotations

import os
import secrets
import stat
from collections.abc import Container, Iterator, Mapping, MutableMapping
from contextlib import suppress

from evolver.crash import crash_point
from evolver.worktree import manifest
from evolver.worktree.anchor import TEMPORARY, Anchor
from evolver.worktree.content import Content
from evolver.worktree.converge import Converge
from evolver.worktree.manifest import LEFT, Entry, Scan, Tree, entries, entry_of, join, lookup, split
from evolver.worktree.remove import remove
from evolver.worktree.site import Site
from evolver.worktree.snapshot import Snapshot
from evolver.worktree.source import Source

Changed = MutableMapping[str, tuple[Entry | None, Entry | None]]
Lost = Mapping[str, os.stat_result | None]


def lost(site: Site, snapshot: Snapshot) -> Lost:
    """Left-out paths that are missing, or another object now: what is there. One `lstat` each."""
    found: dict[str, os.stat_result | None] = {}
    for path in snapshot.opaque:
        was, now = lookup(snapshot.work, path), None
        if was is None or was.content != LEFT:
            continue
        with suppress(OSError):
            now = os.lstat(site.root / path)
        if now is None or now.st_ino != was.ino or stat.S_IFMT(now.st_mode) != stat.S_IFMT(was.mode):
            found[path] = now
    return found


def named(site: Site, snapshot: Snapshot) -> tuple[str, ...]:
    """What was left out, and what of it went missing: that was never kept, and cannot be put back."""
    if not (astray := lost(site, snapshot)):
        return snapshot.left
    words = {_text(path): "gone" if now is None else "replaced" for path, now in astray.items()}
    return tuple(f"{path} ({words[path]})" if path in words else path for path in snapshot.left)


def _text(path: str) -> str:
    return os.fsencode(path).decode("utf-8", "backslashreplace")


def renewed(snapshot: Snapshot, astray: Lost) -> tuple[Tree, frozenset[str]]:
    """For the next baseline: the tree with these paths as they are now, and those that it has no more."""
    work, gone = dict(snapshot.work), set()
    for path, now in astray.items():
        folder, name = split(path)
        content = dict(work[folder])
        was = content.pop(name)
        if now is not None and stat.S_IFMT(now.st_mode) == stat.S_IFMT(was.mode):
            content[name] = entry_of(now, LEFT)
        else:
            gone.add(path)
        work[folder] = content
    return work, frozenset(gone)


def without(left: tuple[str, ...], gone: frozenset[str]) -> tuple[str, ...]:
    names = {_text(path) for path in gone}
    return tuple(name for name in left if name not in names)


# ---------------------------------------------------------------- found again


def note(site: Site, snapshot: Snapshot, anchor: Anchor, scan: Scan, changed: Changed, content: Content) -> None:
    """Have a walk say what became of left-out paths: one that was moved, or that something of another type stands in for, counts as
    changed itself; what lies below its new name does not."""
    astray = lost(site, snapshot)
    if not astray:
        return
    within = {path: _below(anchor, path) for path, now in astray.items() if now is not None and _other_type(snapshot, path, now)}
    scan.moved = _moved(site, snapshot, anchor, scan, astray, within)
    for new in scan.moved.values():
        for path in [p for p, (before, _) in changed.items() if before is None and (p == new or p.startswith(f"{new}/"))]:
            del changed[path]
    for path, now in astray.items():
        if path not in within and path not in scan.moved:
            continue
        before = lookup(snapshot.work, path)
        changed[path] = (before, None)
        if now is None:
            continue
        entry = entry_of(now)
        if not entry.is_dir:
            entry = entry._replace(content=content(path, entry, before))
        changed[path] = (before, entry)
        folder, name = split(path)
        scan.tree[folder] = {**scan.tree.get(folder, {}), name: entry}
        inside = within[path] if path in within else _below(anchor, path)
        moved_in = tuple(scan.moved.values())
        for below, item in entries(inside):
            full = join(path, below)
            if not any(full == new or full.startswith(f"{new}/") for new in moved_in):
                changed[full] = (None, item if item.is_dir else item._replace(content=content(full, item, None)))


def _other_type(snapshot: Snapshot, path: str, now: os.stat_result) -> bool:
    was = lookup(snapshot.work, path)
    return was is not None and stat.S_IFMT(now.st_mode) != stat.S_IFMT(was.mode)


def _below(anchor: Anchor, path: str) -> Tree:
    with suppress(OSError):
        return manifest.scan(anchor.folder(path)).tree
    return {}


def _moved(
    site: Site, snapshot: Snapshot, anchor: Anchor, scan: Scan, astray: Lost, within: Mapping[str, Tree]
) -> dict[str, str]:
    """Left-out path -> where it lies now. An inode is used again once it is free, so that is not enough: a file has its size and mtime of
    before, and in a folder something is older than the baseline."""
    if not _same_filesystem(site, snapshot):
        return {}
    wanted = {was.ino: (path, was) for path in astray if (was := lookup(snapshot.work, path)) is not None}
    since = max(snapshot.work_trusted, snapshot.taken_ns)
    found: dict[str, str] = {}
    for new, now, inside in _candidates(anchor, scan, astray, within, wanted):
        path, was = wanted.get(now.ino, ("", now))
        if not path or path in found or stat.S_IFMT(now.mode) != stat.S_IFMT(was.mode):
            continue
        as_it_was = now.mtime_ns == was.mtime_ns and (was.is_dir or now.size == was.size)
        if as_it_was or (was.is_dir and any(entry.ctime_ns <= since for _, entry in entries(*inside))):
            found[path] = new
    return found


def _candidates(
    anchor: Anchor, scan: Scan, astray: Lost, within: Mapping[str, Tree], wanted: Container[int]
) -> Iterator[tuple[str, Entry, tuple[Tree, str]]]:
    """What is new somewhere, with where its own tree is found: in the walk, in the place of one left out, below what stands in for one."""
    for path in scan.touched:
        entry = lookup(scan.tree, path)
        if entry is not None:
            yield path, entry, (scan.tree, path)
    for path, st in scan.swapped.items():
        yield path, entry_of(st), (scan.tree, path)
    for path, now in astray.items():
        if now is not None and now.st_ino in wanted:
            yield path, entry_of(now), (_below(anchor, path), "")
    for top, tree in within.items():
        for path, entry in entries(tree):
            yield join(top, path), entry, (tree, path)


def _same_filesystem(site: Site, snapshot: Snapshot) -> bool:
    """Do inodes still tell anything? In a repository that was copied or restored from a backup they are others."""
    for name, entry in snapshot.private.get("", {}).items():
        if entry.is_dir:
            with suppress(OSError):
                if os.lstat(site.private / name).st_ino == entry.ino:
                    return True
    return False


# ---------------------------------------------------------------- and put back


def put_back(site: Site, snapshot: Snapshot, changed: Mapping[str, object], moved: Mapping[str, str]) -> tuple[str, ...]:
    """Before anything else is removed: each path that was moved to its place, whatever stands there now; what stands in for one that
    is gone goes as well. Idempotent: a kill in between leaves one under a temporary name, to be found like any other. Problems, in words."""
    problems: list[str] = []
    astray = sorted((p for p in changed if p in snapshot.opaque), key=lambda p: (-moved.get(p, "").count("/"), p))
    aside: dict[str, str] = {}
    with Anchor(site.root) as anchor, Source(site.vault, None) as source:
        parents = Converge(anchor, snapshot.work, source)
        try:
            for path in astray:  # all of them first: one may stand in the place of another
                if path in moved:
                    aside[path] = _take_aside(anchor, moved[path])
            for path in astray:
                _place(anchor, parents, path, aside.get(path))
        except OSError as error:
            problems.append(f"what was moved from or to {path}: {error.strerror or error}")
        problems += parents.problems
    return tuple(problems)


def _take_aside(anchor: Anchor, new: str) -> str:
    temporary = f"{TEMPORARY}{secrets.token_hex(6)}"
    folder, name = split(new)
    anchor.forget(new)
    os.rename(name, temporary, src_dir_fd=anchor.folder(folder), dst_dir_fd=anchor.top)
    crash_point("restore.moved")
    return temporary


def _place(anchor: Anchor, parents: Converge, path: str, temporary: str | None) -> None:
    folder, name = split(path)
    if anchor.lstat(path) is not None:
        anchor.forget(path)
        remove(anchor.folder(folder), name)
    if temporary is not None:
        parts = folder.split("/") if folder else []
        parents.run("/".join(parts[: end + 1]) for end in range(len(parts)))
        os.rename(temporary, name, src_dir_fd=anchor.top, dst_dir_fd=anchor.folder(folder))
