"""`stash`: the whole attempt becomes one ordinary stash entry; the worktree becomes the baseline again."""

from __future__ import annotations

from evolver.model import RollbackMode
from evolver.rollback.base import Keeping
from evolver.worktree.values import Attempt, Baseline, Preserved
from evolver.worktree.workspace import Workspace


class Stash:
    mode = RollbackMode.STASH
    restores = True

    def preserve(self, workspace: Workspace, baseline: Baseline, attempt: Attempt, keeping: Keeping) -> Preserved:
        """The entry holds untracked files and what the agent committed, which `git stash push` would lose."""
        if not attempt.changed:
            return Preserved()
        return workspace.preserve(baseline, attempt, message=keeping.message, ref=keeping.ref, person=keeping.person)
