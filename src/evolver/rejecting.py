"""Undoing one attempt: preserve, compensate, restore, verify, or hold. Used by iterations, recovery and `resume` alike.

The phases are the machine's; each method performs one and folds what it found into the state. Intent is in the event stream
before anything is destroyed, the result after it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import TypedDict, Unpack

from evolver.changes.prepare import PreparedRollback
from evolver.changes.within import ChangesLogAt
from evolver.context import RunContext
from evolver.crash import crash_point
from evolver.definition import RollbackSection
from evolver.effects.outcome import Compensation
from evolver.errors import EvolverError, ExitStatus, NotRestoredError
from evolver.events.types import (
    ChangesRolledBack,
    Emitter,
    RollbackFailed,
    RollbackFinished,
    RollbackSkipped,
    RollbackStarted,
    RunHeld,
)
from evolver.holding import lock_of
from evolver.layout import Layout
from evolver.machine import IterationState, Phase, next_phase
from evolver.model import RollbackMode, Verdict
from evolver.resume_lock import ResumeLock
from evolver.resume_lock import write as write_lock
from evolver.rollback import STRATEGIES, Keeping
from evolver.telling import NAMED, text_path
from evolver.worktree.values import Attempt, Baseline, Preserved, Restored, Verified
from evolver.worktree.workspace import Workspace


def attempt_ref(run_id: str, number: int) -> str:
    return f"refs/evolver/attempts/{run_id}/{number}"


class _Facts(TypedDict):
    """What every `rollback.*` event says."""

    iteration_id: str
    rollback_mode: str
    pre_ref: str
    post_ref: str | None
    reason: str


class _More(TypedDict, total=False):
    announce: bool
    changes_log: ChangesLogAt | None
    started: float


@dataclass
class Rejection:
    """One attempt on its way out. `announce` False: nothing was rejected (no change), so events speak only of failure."""

    layout: Layout
    workspace: Workspace
    events: Emitter
    rollback: RollbackSection
    mode: RollbackMode
    run_id: str
    number: int
    baseline: Baseline
    attempt: Attempt
    reason: str
    announce: bool = True
    recovering: bool = False
    by_person: bool = False  # `resume`: a person asked for what is kept
    drifted: bool = False  # and something was changed since the attempt was held
    already_skipped: bool = False  # recovery: the dead run had announced the hold
    loop: str = ""
    definition: str = ""
    failed_step: str = ""
    compensate_effects: Callable[[str], Compensation] | None = None
    changes_log: ChangesLogAt | None = None
    started: float = field(default_factory=time.monotonic)
    preserved: Preserved = Preserved()
    whole: Preserved = Preserved()  # of that, what is kept because a person may have worked on it
    restored: Restored = Restored()
    verified: Verified = Verified()
    problem: str = ""
    _effects_left: tuple[str, ...] = ()
    _changes: PreparedRollback | None = None
    _report: dict[str, object] | None = None

    @classmethod
    def of(
        cls,
        run: RunContext,
        number: int,
        baseline: Baseline,
        attempt: Attempt,
        verdict: Verdict | None,
        *,
        mode: RollbackMode | None = None,
        **more: Unpack[_More],
    ) -> Rejection:
        """In a running loop. `verdict` None: nothing was judged, as there was nothing to commit."""
        definition = run.loaded.definition
        return cls(
            layout=run.layout,
            workspace=run.workspace,
            events=run.events,
            rollback=definition.rollback,
            mode=mode or definition.rollback.mode,
            run_id=run.run_id,
            number=number,
            baseline=baseline,
            attempt=attempt,
            reason=verdict.reason if verdict is not None else "nothing committable changed",
            loop=run.loaded.name,
            definition=run.loaded.digest,
            failed_step=verdict.step if verdict is not None else "",
            compensate_effects=run.effects.compensate if run.effects is not None else None,
            **more,
        )

    @property
    def iteration_id(self) -> str:
        return f"{self.run_id}/{self.number}"

    def run(self, state: IterationState) -> IterationState:
        """Drive the machine from `state.phase` to `DONE`."""
        while state.phase is not Phase.DONE:
            state = self.perform(state)
            state = state.but(phase=next_phase(state))
        return state

    def perform(self, state: IterationState) -> IterationState:
        match state.phase:
            case Phase.PRESERVE:
                return self._preserve(state)
            case Phase.COMPENSATE:
                return self._compensate(state)
            case Phase.RESTORE:
                return self._restore(state)
            case Phase.VERIFY:
                return self._verify(state)
            case Phase.HOLD:
                return self._hold(state)
            case _:
                raise ValueError(f"{state.phase} is no phase of a rejection")

    # ------------------------------------------------------------ phases

    def _preserve(self, state: IterationState) -> IterationState:
        if self.announce:
            self.events.emit(RollbackStarted(from_="rejected", to="rolling_back", **self._facts()), iteration=self.number)
        crash_point("iteration.rollback_started")
        keeping = Keeping(
            attempt_ref(self.run_id, self.number),
            f"evolver {self.iteration_id}: {self.reason.splitlines()[0][:200] if self.reason else 'attempt'}",
            self.rollback.keep_attempts,
            self.by_person,
        )
        try:
            if self.changes_log is not None:
                self._changes = self.changes_log.prepare(self.baseline)
            if (self.recovering or self.drifted) and self.attempt.changed:
                # A person may have edited after the crash or during the hold: what is removed is kept, in every mode.
                self.preserved = self.whole = self.workspace.keep_attempt(
                    self.baseline, self.attempt, ref=keeping.ref, message=keeping.message, all_of_it=True
                )
                keeping = replace(keeping, keep=0)  # not a second time
            if not self.recovering:
                own = STRATEGIES[self.mode].preserve(self.workspace, self.baseline, self.attempt, keeping)
                refs = tuple(dict.fromkeys((*self.whole.refs, *own.refs)))
                self.preserved = Preserved(own.stash, refs, self.whole.copies or own.copies)
        except (EvolverError, OSError) as error:
            # Save before you destroy: what cannot be kept aside is not removed.
            self.problem = f"the attempt could not be kept aside: {error}"
            return state.but(preserved=False)
        crash_point("iteration.preserved")
        return state

    def _compensate(self, state: IterationState) -> IterationState:
        if self.compensate_effects is None:
            return state
        done = self.compensate_effects(self.iteration_id)
        self._effects_left = done.left
        if not done.ok:
            self.problem = done.reason
        return state.but(effects_failed=state.effects_failed or not done.ok)

    def _restore(self, state: IterationState) -> IterationState:
        retried = state.verified is False
        try:
            self.restored = self.workspace.restore(self.baseline, self.attempt)
        except (EvolverError, OSError) as error:
            self.problem = str(error)
            return state.but(restored=False, retried=retried)
        if self._changes is not None and self.changes_log is not None and not retried:
            self._report = self._changes.execute().to_event()
            # At once: no event but `rollback.finished` has a report, and it may not come to that.
            told = ChangesRolledBack(log=text_path(self.changes_log.name), report=self._report)
            self.events.emit(told, iteration=self.number)
            # Its commands are foreign programs: what restore saw last proves nothing any more.
            self.workspace.guard_control(self.baseline)
        crash_point("iteration.restored")
        return state.but(retried=retried)

    def _verify(self, state: IterationState) -> IterationState:
        try:
            self.verified = self.workspace.verify(self.baseline)
        except (EvolverError, OSError) as error:
            self.problem = f"it could not be verified: {error}"
            self.verified = Verified(differences=(self.problem,))
        crash_point("iteration.verified")
        if self.verified.equal and not state.effects_failed and self.announce:
            self.events.emit(
                RollbackFinished(
                    from_="rolling_back",
                    to="rolled_back",
                    verified=True,
                    left=(*self.verified.left, *self._effects_left),
                    rollback_ref=f"git:{self.baseline.pre_ref}",
                    stash_ref=self.preserved.stash,
                    attempt_ref=self.preserved.refs[0] if self.preserved.refs else None,
                    copies=self.preserved.copies or None,
                    restored=self.restored.written,
                    deleted=self.restored.deleted,
                    refs=self.restored.refs,
                    changes_report=self._report,
                    duration_ms=self._elapsed(),
                    **self._facts(),
                ),
                iteration=self.number,
            )
        return state.but(verified=self.verified.equal)

    def _hold(self, state: IterationState) -> IterationState:
        """A person is needed: by choice (mode none), or because the baseline could not be put back and proved."""
        by_choice = self.mode is RollbackMode.NONE and not state.survivors and state.restored and state.verified is not False
        by_choice = by_choice and state.preserved and not state.effects_failed
        reason = self.reason if by_choice else self._why_failed(state)
        beyond = self.workspace.beyond_paths(self.attempt)
        if by_choice:
            if not self.already_skipped:
                self.events.emit(
                    RollbackSkipped(from_="rejected", to="held", vault=str(self.layout.vault), **self._facts()),
                    iteration=self.number,
                )
            self._put_back_control()
        else:
            self.events.emit(
                RollbackFailed(
                    from_="rolling_back",
                    to="rollback_failed",
                    verified=False,
                    left=(*self.verified.left, *self._effects_left),
                    leftovers=self._leftovers(),
                    rollback_ref=f"git:{self.baseline.pre_ref}",
                    stash_ref=self.preserved.stash,
                    vault=str(self.layout.vault),
                    duration_ms=self._elapsed(),
                    **self._facts(reason),
                ),
                iteration=self.number,
            )
        status = ExitStatus.HELD if by_choice else ExitStatus.NOT_RESTORED
        crash_point("iteration.before_lock")
        write_lock(self.layout, self._lock(reason, status, beyond))
        crash_point("iteration.locked")
        self.events.emit(
            RunHeld(from_="running", to="held", exit_code=int(status), **self._facts(reason)), iteration=self.number
        )
        self.problem = reason
        return state if by_choice else state.but(restored=False)

    def _put_back_control(self) -> None:
        try:
            self.workspace.hold(self.baseline, self.attempt)
        except OSError as error:
            raise NotRestoredError(
                f"the held state could not be completed: {error}", "Look at the worktree by hand."
            ) from error

    # ------------------------------------------------------------ words

    def _why_failed(self, state: IterationState) -> str:
        if state.survivors:
            why = "processes of the attempt could not be killed, so nothing was restored under them"
        elif self.verified.differences:
            why = f"the worktree differs from the baseline: {', '.join(self.verified.differences[:3])}"
        elif state.effects_failed:
            why = f"an effect could not be undone: {self.problem}"
        else:
            why = self.problem or "the baseline could not be put back"
        return f"{why} (after: {self.reason})"

    def _facts(self, reason: str | None = None) -> _Facts:
        return _Facts(
            iteration_id=self.iteration_id,
            rollback_mode=str(self.mode),
            pre_ref=self.baseline.pre_ref,
            post_ref=self.attempt.post_ref,
            reason=reason if reason is not None else self.reason,
        )

    def _elapsed(self) -> int:
        return round((time.monotonic() - self.started) * 1000)

    def _lock(self, reason: str, status: ExitStatus, beyond: Sequence[str]) -> ResumeLock:
        return lock_of(
            self.layout,
            self.run_id,
            self.number,
            self.baseline,
            self.attempt,
            beyond,
            reason=reason,
            mode=str(self.mode),
            status=status,
            loop=self.loop,
            definition=self.definition,
            failed_step=self.failed_step,
            leftovers=self._leftovers(),
            changes_digest=self.changes_log.before if self.changes_log is not None else None,
        )

    def _leftovers(self) -> tuple[str, ...]:
        return (*self.verified.differences, *self.restored.problems)[:NAMED]
