"""`hard`: the attempt is discarded; the worktree becomes the baseline again."""

from __future__ import annotations

from evolver.model import RollbackMode
from evolver.rollback.base import Keeping
from evolver.worktree.values import Attempt, Baseline, Preserved
from evolver.worktree.workspace import Workspace


class Hard:
    mode = RollbackMode.HARD
    restores = True

    def preserve(self, workspace: Workspace, baseline: Baseline, attempt: Attempt, keeping: Keeping) -> Preserved:
        """Nothing, unless `keep_attempts` asks for bounded private refs."""
        if not keeping.keep or not attempt.changed or attempt.oversized or attempt.unknown:
            return Preserved()
        return workspace.keep_attempt(baseline, attempt, ref=keeping.ref, message=keeping.message)
