"""What a rollback mode has to say: what is kept of the attempt, and whether anything may be destroyed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from evolver.model import RollbackMode
from evolver.worktree.values import Attempt, Baseline, Preserved
from evolver.worktree.workspace import Workspace


@dataclass(frozen=True, slots=True)
class Keeping:
    """How to name what is kept."""

    ref: str  # full ref name below refs/evolver/attempts/
    message: str
    keep: int  # `[rollback] keep_attempts`
    person: bool = False  # a person asked for it: retention by number passes it over


class RollbackStrategy(Protocol):
    """One mode. `restores` False: the tree is left as it is and held."""

    mode: RollbackMode
    restores: bool

    def preserve(self, workspace: Workspace, baseline: Baseline, attempt: Attempt, keeping: Keeping) -> Preserved: ...
