"""Puts the baseline back: the worktree from a list, then git's state, then the index. Idempotent; a kill leaves it to be run again.

Intent is journalled in the vault's folder before anything is removed, so that a person who finds it knows what was under way.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass

from evolver.crash import crash_point
from evolver.worktree import leftout
from evolver.worktree.anchor import Anchor
from evolver.worktree.converge import Converge
from evolver.worktree.ignorerules import below
from evolver.worktree.inspect import Changed, read_index
from evolver.worktree.refs import Refs
from evolver.worktree.site import Site
from evolver.worktree.snapshot import Snapshot
from evolver.worktree.source import Source
from evolver.worktree.state import StateBack, write_beside

JOURNAL = "restoring"
FEW = 200  # stale index entries that the next `git status` looks at and refreshes itself, for less than it costs us now


@dataclass(frozen=True)
class Done:
    """What one pass took."""

    written: int = 0
    deleted: int = 0
    refs: int = 0
    problems: tuple[str, ...] = ()


def files_back(site: Site, snapshot: Snapshot, changed: Changed, moved: Mapping[str, str] = {}) -> Done:
    """The worktree's files. The cost follows the list, not the tree. `moved`: left-out paths that lie elsewhere."""
    if not changed:
        return _root_back(site, snapshot)
    if not snapshot.opaque.isdisjoint(changed):
        problems = leftout.put_back(site, snapshot, changed, moved)
        if problems:  # it may lie in what would be removed now
            return Done(problems=problems)
        changed = {p: c for p, c in changed.items() if below(p, snapshot.opaque) is None}
    attempted = {p: now.mtime_ns for p, (_, now) in changed.items() if now is not None}
    same = {
        p
        for p, (before, now) in changed.items()
        if before is not None and now is not None and before.is_file and now.is_file
        and before.content == now.content and before.ino == now.ino
    }
    with Anchor(site.root) as anchor, Source(site.vault, site.git) as source:
        work = Converge(anchor, snapshot.work, source, attempted, same)
        work.run(changed)
    return Done(work.written, work.deleted, 0, (*work.problems, *_root_back(site, snapshot).problems))


def _root_back(site: Site, snapshot: Snapshot) -> Done:
    """The mode of the worktree's own folder, last: nothing can be written in one that was read-only."""
    try:
        if site.root.stat().st_mode & 0o7777 != snapshot.root_mode:
            site.root.chmod(snapshot.root_mode)
    except OSError as error:
        return Done(problems=(f"the worktree's own folder: {error.strerror}",))
    return Done()


def state_back(
    site: Site, snapshot: Snapshot, quiesced: Refs, left: frozenset[str], *, shared: bool, unclear: Mapping[str, str] = {}
) -> Done:
    """HEAD, refs, stash list, reflogs, submodules' and worktrees' metadata."""
    state = StateBack(site, snapshot, quiesced, left, shared, unclear=unclear)
    state.run()
    return Done(refs=state.moved, problems=tuple(state.problems))


def index_back(site: Site, snapshot: Snapshot, written: Iterable[str]) -> Done:
    """The index's bytes, unless they only differ in stat data; then stat data of what was written, so that `git status` stays fast."""
    try:
        index, _, changed = read_index(site, snapshot)
        if index is None or changed:
            if snapshot.index.raw:
                entry = snapshot.private[""]["index"]
                write_beside(site.private, "index", snapshot.index.raw, entry.mode & 0o777)
            else:
                (site.private / "index").unlink(missing_ok=True)
        elif not (site.private / "index").is_symlink():
            entry = snapshot.private[""]["index"]
            if (site.private / "index").stat().st_mode != entry.mode:
                (site.private / "index").chmod(entry.mode & 0o777)
    except OSError as error:
        return Done(problems=(f"index: {error.strerror}",))
    stale = [p for p in written if snapshot.tracked(p)]
    if len(stale) > FEW:
        refresh(site, stale)
    crash_point("restore.index")
    return Done()


def refresh(site: Site, paths: Iterable[str]) -> None:
    """A stale index costs every later `git status` (it reads the files again). Only stat data change; failing is no harm."""
    data = b"".join(os.fsencode(p) + b"\0" for p in paths)
    if data:
        site.git.run("add", "--refresh", "--pathspec-from-file=-", "--pathspec-file-nul", input=data, check=False)


def journal(site: Site, snapshot: Snapshot) -> None:
    write_beside(site.layout.state, JOURNAL, f"{snapshot.fingerprint} {snapshot.iteration_id}\n".encode(), 0o600)


def journal_done(site: Site) -> None:
    with suppress(FileNotFoundError):
        (site.layout.state / JOURNAL).unlink()
