"""The locked worktree of one run: the only object that may change what the user has.

The facade over manifest, vault, control guard, preserve, restore and verify; `iteration.py`, `recovery.py` and `resume.py`
know nothing below it. The caller holds `run.lock` for as long as it uses a `Workspace`.

Order of calls in one iteration (after quiesce nothing else may write to the tree):

    baseline -> [agent] -> guard_control -> inspect -> (diff) -> [validators] -> guard_control ->
        settle -> accept                                            (passing)
        preserve (stash) | keep_attempt -> restore -> verify        (rejected; hard, stash)
        hold                                                        (rejected; none)

`guard_control` comes before any other call after anything foreign (agent or validator) ran.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from evolver.definition import RollbackSection
from evolver.layout import Layout
from evolver.model import DirtyPolicy
from evolver.worktree.values import Accepted, Attempt, Baseline, ControlReport, Preserved, Restored, Verified

DEFAULT_MAX_VAULT = 2 << 30  # bytes of untracked files a run may have to keep


class AcceptRefused(Exception):
    """`accept` cannot commit this attempt although it passed; `reason` is the verdict's. Nothing was changed."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


@dataclass(frozen=True)
class Workspace:
    """Baseline, restore, accept. One object a run, so that unchanged files are not read again in the next iteration."""

    layout: Layout

    @classmethod
    def open(
        cls,
        layout: Layout,
        *,
        rollback: RollbackSection,
        scope: str = ".",
        max_vault: int = DEFAULT_MAX_VAULT,
        env: Mapping[str, str] = os.environ,
    ) -> Workspace:
        """Runs no git command and changes nothing: an attempt may still lie in the tree (recovery, resume)."""
        raise NotImplementedError

    def preflight(self, *, dirty: DirtyPolicy) -> None:
        """Raise `PreflightError` (message: what; hint: what to do) when a run must not start here. Changes nothing."""
        raise NotImplementedError

    def baseline(self, iteration_id: str) -> Baseline:
        """Everything the user has, now. Vault and lifeboat are synced when it returns. Raise `PreflightError` when it
        cannot be kept (too large, too little disk)."""
        raise NotImplementedError

    def load_baseline(self, fingerprint: str) -> Baseline:
        """A baseline that an earlier process took. Raise `EvolverError` when the vault does not hold it (any more).
        Looks into the lifeboat when `.git` is gone; runs no git command."""
        raise NotImplementedError

    def guard_control(self, baseline: Baseline) -> ControlReport:
        """Compare git's control files with the baseline and put them back by plain file operations; rebuild a deleted or
        replaced `.git`, evolver's own state folder included. To be called before any git command after an agent or a
        validator ran. The report accumulates over the calls since `baseline`."""
        raise NotImplementedError

    def inspect(self, baseline: Baseline, control: ControlReport) -> Attempt:
        """What changed since the baseline. Also seals it: the tree that a commit of the attempt would have is written
        (`Attempt.tree`), so that what validators alter later can be told from the attempt."""
        raise NotImplementedError

    def diff(self, baseline: Baseline, attempt: Attempt, *, max_bytes: int) -> str:
        """Unified diff of the committable part, cut after `max_bytes` with a line that says so."""
        raise NotImplementedError

    def preserve(self, baseline: Baseline, attempt: Attempt, *, message: str) -> Preserved:
        """One ordinary stash entry that holds the whole attempt. Idempotent for one attempt. Raise `GitError` when it
        cannot be made: then nothing may be restored."""
        raise NotImplementedError

    def keep_attempt(self, baseline: Baseline, attempt: Attempt, *, ref: str, message: str) -> str:
        """Keep the whole attempt under `ref` (a full name below refs/evolver/attempts/); returns the commit id."""
        raise NotImplementedError

    def settle(self, baseline: Baseline, attempt: Attempt) -> tuple[str, ...]:
        """After the validators of a passing attempt: remove what they dropped (unless ignored), put back what they
        altered. Returns the paths, as text. The attempt stays."""
        raise NotImplementedError

    def restore(self, baseline: Baseline, attempt: Attempt) -> Restored:
        """Put the baseline back. Idempotent; may be killed and called again, also by another process. Never raises for what
        cannot be done: `problems` names it, and `verify` has the last word."""
        raise NotImplementedError

    def verify(self, baseline: Baseline) -> Verified:
        """Compare the worktree and the repository with the baseline anew."""
        raise NotImplementedError

    def accept(
        self,
        baseline: Baseline,
        attempt: Attempt,
        *,
        message: str,
        commits: Literal["squash", "keep"] = "squash",
        hooks: bool = False,
    ) -> Accepted:
        """One commit on the baseline's branch whose tree is `attempt.tree`; `message` brings its trailers along. Raise
        `AcceptRefused` when it may not be made; then nothing has changed and the attempt is to be rejected."""
        raise NotImplementedError

    def hold(self, baseline: Baseline, attempt: Attempt) -> None:
        """Mode none: put the attempt's own control files back, so that the state is as the agent left it."""
        raise NotImplementedError

    def commits_made(self, iteration_id: str, pre_ref: str) -> str | None:
        """Recovery: the accepting commit of `iteration_id`, if the branch already has it on top of `pre_ref`."""
        raise NotImplementedError

    def release(self) -> None:
        """The run ended verified: prune vault and lifeboat, except `head` and the user's bytes of accepted attempts of
        the last 14 days."""
        raise NotImplementedError

    def fingerprint_now(self, baseline: Baseline) -> Verified:
        """What differs from the baseline now (stat data aside). Works on a held tree; changes nothing in it."""
        raise NotImplementedError
