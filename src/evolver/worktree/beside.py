"""What is not this run's to move: refs, stash entries and folders of the repository's other worktrees, and of runs beside this one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from evolver.worktree import attribution, refs
from evolver.worktree.siblings import siblings, took_over, worked_in
from evolver.worktree.site import Site
from evolver.worktree.snapshot import Snapshot


@dataclass(frozen=True)
class Beside:
    """What was seen at the last look."""

    left: frozenset[str] = frozenset()  # refs that moved and stay where they are
    unclear: Mapping[str, str] = field(default_factory=dict)  # refs to be put back that somebody else may have moved
    opaque: frozenset[str] = frozenset()  # folders below the root that are other worktrees
    taken_over: str = ""  # by whom this worktree's branch is checked out now, in words
    shared: bool = False  # another run is active in a sibling worktree, or was since the baseline

    def look(self, site: Site, snapshot: Snapshot | None, now: refs.Refs | None) -> Beside:
        """Look again; `now`: the refs after the attempt, when they were read."""
        others = siblings(site, snapshot)
        shared = self.shared or any(s.active for s in others)
        opaque = worked_in(site, snapshot, others)
        if snapshot is None:
            return Beside(self.left, self.unclear, opaque, shared=shared)
        now = now if now is not None else snapshot.refs
        left = attribution.left(snapshot, now, others)
        if shared:
            moved = {r.name for r in refs.changes(snapshot.refs, now)}
            left |= moved - {refs.STASH, snapshot.refs.branch} - attribution.ours(site, snapshot, now, others)
        elif attribution.stashed_beside(site, snapshot, others):
            left |= {refs.STASH}
        unclear = attribution.unclear(site, snapshot, now, left, others)
        return Beside(left, unclear, opaque, took_over(site, snapshot, others), shared)
