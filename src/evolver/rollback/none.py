"""`none`: the attempt stays in place for a person; the loop stops until `evolver resume`."""

from __future__ import annotations

from evolver.model import RollbackMode
from evolver.rollback.base import Keeping
from evolver.worktree.values import Attempt, Baseline, Preserved
from evolver.worktree.workspace import Workspace


class Leave:
    mode = RollbackMode.NONE
    restores = False

    def preserve(self, workspace: Workspace, baseline: Baseline, attempt: Attempt, keeping: Keeping) -> Preserved:
        """Nothing: the attempt itself is kept."""
        return Preserved()
