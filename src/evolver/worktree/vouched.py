"""A person vouches for a held tree as it stands: what is uncommitted becomes one commit on their HEAD, and nothing else is moved.

Not an acceptance: that puts branches, stash, index and the like back to the baseline, and a person may have worked here since. Theirs are
the branch they are on, their commits, flags and staging; they may have committed the attempt themselves.
"""

from __future__ import annotations

import os
from collections.abc import Collection
from dataclasses import dataclass

from evolver.crash import crash_point
from evolver.worktree.accept import AcceptRefused
from evolver.worktree.inspect import Inspection
from evolver.worktree.manifest import lookup
from evolver.worktree.objects import Staged, TemporaryIndex, commit_tree
from evolver.worktree.preflight import IN_PROGRESS
from evolver.worktree.refs import Refs
from evolver.worktree.restore import refresh
from evolver.worktree.site import Site
from evolver.worktree.snapshot import Snapshot
from evolver.worktree.state import write_beside


@dataclass(frozen=True)
class Vouched:
    """What would be committed. `staged` empty: HEAD is adopted."""

    head: str
    staged: dict[str, Staged]

    @property
    def paths(self) -> tuple[bytes, ...]:
        return tuple(os.fsencode(path) for path in sorted(self.staged))


def look(site: Site, snapshot: Snapshot, found: Inspection, now: Refs, begun: Collection[str]) -> Vouched:
    """`begun`: names in git's folder that tell of a merge and the like, which stand aside. Raise `AcceptRefused`."""
    head = now.commit
    if head is None:
        raise AcceptRefused("HEAD points at no commit")
    if found.index is None:
        raise AcceptRefused("git's index cannot be read")
    if found.plugged:
        raise AcceptRefused(found.refused)
    open_paths = _uncommitted(site, snapshot, found)
    if not open_paths:
        return Vouched(head, {})
    for name in begun:
        raise AcceptRefused(f"{IN_PROGRESS[name].what} is in progress")
    if found.index.unmerged:
        raise AcceptRefused(f"the index has unmerged paths ({found.index.unmerged[0][0]} …)")
    for why in (found.oversized, found.refused):
        if why:
            raise AcceptRefused(why)
    if blocked := sorted(open_paths & set(found.blocked)):
        names = ", ".join(repr(p) for p in blocked[:3])
        raise AcceptRefused(f"uncommitted changes you had before are mixed with the attempt's: {names}")
    return Vouched(head, _staged(site, snapshot, found, head))


def commit(site: Site, snapshot: Snapshot, found: Inspection, vouched: Vouched, message: str) -> str:
    """The commit's id; HEAD's when there was nothing to commit. The ref moves last: killed before, it is held as it was. Raise `GitError`."""
    if not vouched.staged:
        return vouched.head
    git, zero = site.git, "0" * (2 * snapshot.hash_size)
    with TemporaryIndex(git, site.boat.folder / "vouched-tree") as temporary:
        temporary.read_tree(vouched.head)
        temporary.stage(vouched.staged, zero)
        tree = temporary.write_tree(missing_ok=snapshot.partial)
    made = commit_tree(git, tree, [vouched.head], message)
    with TemporaryIndex(git, site.boat.folder / "vouched-index", found.raw_index) as temporary:
        temporary.stage(vouched.staged, zero)  # in their own index: flags and what else they staged stay
        data = temporary.path.read_bytes()
    write_beside(site.private, "index", data, (site.private / "index").stat().st_mode & 0o777)
    crash_point("vouched.index")
    git.run("update-ref", "-m", "evolver: kept by a person", "HEAD", made, vouched.head)
    crash_point("vouched.ref")
    refresh(site, (p for p, staged in vouched.staged.items() if staged.mode))
    return made


def _uncommitted(site: Site, snapshot: Snapshot, found: Inspection) -> set[str]:
    """As `git status` sees it, but for what the user had uncommitted before and nobody touched."""
    done = site.git.run("status", "--porcelain=v2", "-z", "--no-renames", "--untracked-files=all", "--ignore-submodules=untracked")
    paths = set()
    for field in done.fields():
        kind, fields = field[:1], {b"1": 8, b"u": 10, b"?": 1}
        if kind in fields:
            paths.add(os.fsdecode(field.split(b" ", fields[kind])[-1]).rstrip("/"))
    return {p for p in paths if p in found.changed or not _theirs(snapshot, p)}


def _theirs(snapshot: Snapshot, path: str) -> bool:
    """Uncommitted work of the user at the baseline: a dirty file, or an untracked one."""
    return path in snapshot.dirty or (not snapshot.tracked(path) and lookup(snapshot.work, path) is not None)


def _staged(site: Site, snapshot: Snapshot, found: Inspection, head: str) -> dict[str, Staged]:
    """From HEAD to the tree as it stands. What the user had uncommitted is in that tree as HEAD has it: it is not the attempt's to add
    or to take away."""
    listed = site.git.run("diff-tree", "-r", "-z", "--raw", "--no-renames", "--no-abbrev", head, found.tree, "--").fields()
    entries = found.index.entries if found.index is not None else {}
    staged: dict[str, Staged] = {}
    for what, raw in zip(listed[::2], listed[1::2], strict=True):
        path = os.fsdecode(raw)
        mode, oid = what.split(b" ")[1], what.split(b" ")[3].decode()
        tracked = entries.get(path)
        if _theirs(snapshot, path) or (tracked is not None and tracked.hidden):
            continue
        gone = int(mode, 8) == 0
        if gone and tracked is not None and lookup(found.scan.tree, path) is not None:
            continue  # committed by hand, such as a file that git ignores
        staged[path] = Staged(0, "") if gone else Staged(int(mode, 8), oid)
    return staged
