"""What a baseline has to hold: the user's uncommitted work, and whether there is room for it."""

from __future__ import annotations

import shutil

from evolver.errors import PreflightError
from evolver.worktree import manifest, xattrs
from evolver.worktree.ignored import Status
from evolver.worktree.ignorerules import below
from evolver.worktree.index import Index
from evolver.worktree.manifest import UNKNOWN, Scan, split
from evolver.worktree.site import Site
from evolver.worktree.snapshot import Snapshot

SPARE = 4 << 20  # bytes of disk that stay free beside what is kept


def check_room(site: Site, work: Scan, index: Index, ignored: frozenset[str]) -> None:
    """Raise `PreflightError` when untracked files are more than may be kept, or than the disk has room for."""
    total, need, largest = 0, 0, (0, "")
    for path in work.touched:
        folder, name = split(path)
        entry = work.tree[folder][name]
        if not entry.is_file or entry.content != UNKNOWN or path in index.entries:
            continue
        need += entry.size
        if below(path, ignored) is None:
            total += entry.size
            largest = max(largest, (entry.size, path))
    if total > site.max_vault:
        raise PreflightError(
            f"untracked files hold {total >> 20} MiB, more than the {site.max_vault >> 20} MiB that may be kept;"
            f" the largest is {largest[1]!r} ({largest[0] >> 20} MiB)",
            "Move it away, ignore it, or raise EVOLVER_MAX_VAULT.",
        )
    free = shutil.disk_usage(site.layout.vault).free
    copies = 1 if site.boat.same_filesystem() else 2
    if need * copies + SPARE > free:
        raise PreflightError(
            f"too little disk for the baseline: {need >> 10} KiB are to be kept, {free >> 10} KiB are free",
            f"Make room on the filesystem of {site.layout.vault}.",
        )


def dirty(base: Snapshot, status: Status) -> frozenset[str]:
    """Tracked paths that hold uncommitted work. Not: what git calls modified for ever though it is the blob (kind 10). Too: what
    git was told not to look at (kind 7)."""
    found = set()
    for path in status.dirty:
        staged = base.index.entries.get(path)
        entry = manifest.lookup(base.work, path)
        if path not in status.staged and staged is not None and entry is not None and entry.is_file:
            same_mode = bool(entry.mode & 0o100) == (staged.mode == 0o100755)
            if same_mode and xattrs.plain(entry.content) == b"b" + staged.oid.encode():
                continue
        found.add(path)
    for path, staged in base.index.entries.items():
        if staged.hidden:
            entry = manifest.lookup(base.work, path)
            if entry is not None and entry.is_file and xattrs.plain(entry.content) != b"b" + staged.oid.encode():
                found.add(path)
    return frozenset(found)
