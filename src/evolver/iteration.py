"""One iteration: a transaction that ends accepted, or with the worktree as it was, or held.

`execute` is the whole of it: perform the phase, fold in what it found, ask the machine what follows. What a phase does stands in
the method of its name; undoing stands in `rejecting.py`, judging in `validating.py`.
"""

from __future__ import annotations

import time
from dataclasses import replace
from decimal import Decimal

from evolver import guard, telling
from evolver.changes.within import ChangesLogAt
from evolver.context import RunContext
from evolver.crash import crash_point
from evolver.effects.outcome import Compensation
from evolver.errors import EvolverError, LogError
from evolver.events.types import AlertControlChanged, AlertRefsLeft
from evolver.feedback import Feedback, failure_hash
from evolver.machine import IterationState, Phase, next_phase, outcome
from evolver.message import commit_message
from evolver.model import Judgement, Outcome, StepResult, Verdict
from evolver.rejecting import Rejection
from evolver.stepping import run_codegen
from evolver.stop import IterationResult, RunState, cost_left
from evolver.stop import budget as within
from evolver.telling import NAMED
from evolver.validating import Validation
from evolver.worktree.values import Accepted, Attempt, Baseline, ControlReport, Preserved, Restored
from evolver.worktree.workspace import AcceptRefused

UNDOING = frozenset({Phase.PRESERVE, Phase.COMPENSATE, Phase.RESTORE, Phase.VERIFY, Phase.HOLD})


class Iteration:
    """One attempt. `run` is what it shares with the others, `past` what they came to."""

    def __init__(self, run: RunContext, number: int, past: RunState, feedback: Feedback) -> None:
        self.run, self.number, self.past, self.feedback = run, number, past, feedback
        self.id = run.iteration_id(number)
        self.baseline: Baseline
        self.attempt = Attempt(post_ref=None, branch=None)
        self.control = ControlReport()
        self.validation: Validation
        self.codegen: StepResult | None = None
        self.rejection: Rejection | None = None
        self.accepted: Accepted | None = None
        self.tokens, self.cost = 0, Decimal(0)
        self.round = 0
        self.unavailable = False  # the agent was turned away until patience was over
        self.fault: LogError | None = None  # the stream broke; the attempt was undone all the same
        self.trouble: BaseException | None = None  # what kept the attempt from being judged
        self.unforeseen: BaseException | None = None  # a bug, or what no step may raise: told as such once the attempt is undone
        self.begun = False  # there is a baseline to go back to
        self.changes_log: ChangesLogAt | None = None
        self.started = time.monotonic()

    def execute(self) -> tuple[IterationResult, Feedback]:
        """Run the transaction to its end."""
        definition = self.run.loaded.definition
        state = IterationState(mode=definition.rollback.mode, repairs_left=definition.codegen.repairs)
        perform = {
            Phase.BASELINE: self._baseline,
            Phase.CODEGEN: self._codegen,
            Phase.INSPECT: self._inspect,
            Phase.GUARD: self._guard,
            Phase.EFFECTS_BEFORE: lambda s: self._effects(s, "before_validate"),
            Phase.VALIDATE: self._validate,
            Phase.EFFECTS_AFTER: lambda s: self._effects(s, "after_validate"),
            Phase.ACCEPT: self._accept,
        }
        while state.phase is not Phase.DONE:
            try:
                state = perform.get(state.phase, self._undo)(state)
            except LogError as error:
                state = self._without_trust(state, error)
            except BaseException as error:  # noqa: BLE001 - whatever it is, it may not leave the attempt in place
                state = self._in_trouble(state, error)
            if self.run.interrupts.signal is not None and state.interrupted is None and self.accepted is None:
                state = state.but(interrupted=self.run.interrupts.signal)
                if not state.failed:
                    by = self.run.interrupts.name or "`evolver stop`"
                    state = state.but(verdict=Verdict(Judgement.INCONCLUSIVE, f"interrupted by {by}"))
            state = state.but(phase=next_phase(state))
        return self._result(state)

    def _without_trust(self, state: IterationState, error: LogError) -> IterationState:
        """The stream was tampered with: the attempt is rejected and undone, told in a fresh segment; then the run ends.

        Raise the error when it comes again (the stream cannot be written at all), when nothing was started yet, or when the
        commit is made: the next run finishes such an iteration.
        """
        if self.fault is not None or self.accepted is not None or state.phase is Phase.BASELINE or self.rejection is not None:
            raise error
        self.fault = error
        verdict = Verdict(Judgement.FAIL, error.message, "stream")
        return state.but(phase=Phase.CODEGEN, verdict=verdict, repairs_left=0)

    def _in_trouble(self, state: IterationState, error: BaseException) -> IterationState:
        """Git, the disk, a program of the user's or evolver itself failed where nothing can be judged any more: the attempt is undone
        like a rejected one; when undoing itself is what fails, it is held for a person, with the lock that says so.

        Raise the error when nothing was started yet, or when not even the lock can be written: the next run finishes it.
        """
        if not self.begun or self.accepted is not None or state.phase is Phase.HOLD:
            raise error
        reason = error.message if isinstance(error, EvolverError) else str(error)
        if not isinstance(error, EvolverError | OSError):
            self.unforeseen = self.unforeseen or error
            reason = f"{type(error).__name__}: {error}".rstrip(": ")
        judging = self.rejection is None and state.phase not in UNDOING
        if judging and self.trouble is None:
            self.trouble = error
            verdict = Verdict(Judgement.FAIL, reason, str(state.phase))
            return state.but(phase=Phase.CODEGEN, verdict=verdict, repairs_left=0)
        if self.rejection is None:
            self.rejection = self._rejection(state)
        self.rejection.problem = reason
        return state.but(phase=Phase.RESTORE, restored=False)

    # ------------------------------------------------------------ phases

    def _baseline(self, state: IterationState) -> IterationState:
        crash_point("iteration.before_baseline")
        self.baseline = self.run.workspace.baseline(self.id)
        self.changes_log = ChangesLogAt.of(self.run.loaded.definition, self.run.layout.root, look=True)
        digest = self.changes_log.before if self.changes_log is not None else None
        self.run.events.emit(telling.started(self.id, state.mode, self.baseline, digest), iteration=self.number)
        self.begun = True
        crash_point("iteration.started")
        self.context = self.run.step_context(self.number, self.baseline.pre_ref)
        self.validation = Validation(
            self.run, self.context, self.past.best, guard=self._guard_control, reds=self.past.reds
        )
        return state

    def _codegen(self, state: IterationState) -> IterationState:
        if state.verdict is not None:  # a repair round, on top of the failed attempt
            self.round += 1
            told = self.feedback.rejected(self.number, state.verdict, self._failing_output(), "")
            state = state.but(verdict=None, repairs_left=state.repairs_left - 1)
            undone = self.run.effects.compensate(self.id) if self.run.effects is not None else Compensation()
            if not undone.ok:
                verdict = Verdict(Judgement.FAIL, undone.reason, "effects")
                return state.but(verdict=verdict, effects_failed=True, repairs_left=0)
        else:
            told = self.feedback
        told.write(self.context.last_failure)
        context = replace(self.context, repair_round=self.round)
        if self.run.render_prompt is not None:
            context = replace(context, prompt=self.run.render_prompt(context, told, self.past))
        budget = self.run.loaded.definition.budget
        step = run_codegen(self.run, context, self._guard_control, cost_left=cost_left(budget, self.past, self.cost))
        self.codegen = step.result
        if step.result.report is not None:
            report = step.result.report
            self.tokens += (report.input_tokens or 0) + (report.output_tokens or 0)
            self.cost += Decimal(report.cost_usd or 0)
        crash_point("iteration.codegen_done")
        failed = step.verdict if not step.verdict.passed else None
        on_error = self.run.loaded.definition.codegen.on_error
        if failed is not None and on_error == "validate" and not (step.result.interrupted or step.stopped or step.unavailable):
            failed = None
        self.unavailable = step.unavailable
        if step.stopped or step.unavailable or within(budget)(self.past.spending(self.tokens, self.cost)) is not None:
            state = state.but(repairs_left=0)
        return state.but(verdict=failed, promised=step.promised, survivors=bool(step.result.survivors))

    def _inspect(self, state: IterationState) -> IterationState:
        self._guard_control()
        self.attempt = self.run.workspace.inspect(self.baseline, self.control)
        crash_point("iteration.inspected")
        self.run.events.emit(telling.inspected(self.id, self.baseline, self.attempt), iteration=self.number)
        left, put_back = self.attempt.refs_left, self.attempt.refs_put_back
        if left or put_back:
            self.run.events.emit(AlertRefsLeft(iteration_id=self.id, refs=left, put_back=put_back), iteration=self.number)
        self.run.alert_pushed(self.id, self.number, self.attempt)
        if self.attempt.unknown and not state.failed:
            verdict = Verdict(Judgement.FAIL, f"the attempt cannot be read: {self.attempt.unknown}", "inspect")
            state = state.but(verdict=verdict, repairs_left=0)
        return state.but(changed=self.attempt.changed, committable=self.attempt.committable)

    def _guard(self, state: IterationState) -> IterationState:
        workspace, baseline, attempt = self.run.workspace, self.baseline, self.attempt
        evidence = guard.Evidence(
            attempt,
            self.run.loaded.definition.guard,
            self.run.protected,
            self.run.loaded.definition.loop.scope,
            lambda: workspace.diff(baseline, attempt),
            (lambda: workspace.history(baseline, attempt)) if self.run.loaded.definition.accept.commits == "keep" else None,
            self.run.packages,
        )
        reason = guard.check(evidence)
        return state if reason is None else state.but(verdict=Verdict(Judgement.FAIL, reason, "guard"))

    def _effects(self, state: IterationState, when: str) -> IterationState:
        if self.run.effects is None:
            return state
        verdict, needs_person = self.run.effects.run(when, self.context)
        state = state.but(verdict=verdict or state.verdict, effects_failed=state.effects_failed or needs_person)
        declared = any(effect.when == when for effect in self.run.loaded.definition.effect)
        if verdict is None and declared and when == "before_validate":  # what a generator wrote is validated and committed
            state = self._guard(self._inspect(state))
        return state

    def _validate(self, state: IterationState) -> IterationState:
        verdict, survivors = self.validation.format(self.attempt)
        state = state.but(verdict=verdict, survivors=state.survivors or survivors)
        if self.validation.tree_changed and not survivors:  # a formatter's work belongs to the attempt, and keeps to the same rules
            state = self._inspect(state)
            state = state if state.failed else self._guard(state)
        if not state.failed and not survivors:
            verdict, survivors = self.validation.judge(self.attempt)
            state = state.but(verdict=verdict, survivors=state.survivors or survivors)
        crash_point("iteration.validated")
        return state

    def _accept(self, state: IterationState) -> IterationState:
        definition = self.run.loaded.definition
        self._guard_control()
        try:
            self.run.workspace.settle(self.baseline, self.attempt)
        except AcceptRefused as refused:
            return state.but(verdict=Verdict(Judgement.FAIL, refused.reason, "accept"))
        self.run.events.emit(telling.accepting(self.id, self.baseline, self.attempt), iteration=self.number)
        crash_point("iteration.accepting")
        message = commit_message(self.run, self.number, self.baseline, self.attempt, self.validation.score)
        try:
            accepted = self.run.workspace.accept(
                self.baseline,
                self.attempt,
                message=message,
                commits=definition.accept.commits,
                hooks=definition.accept.hooks,
            )
        except AcceptRefused as refused:
            return state.but(verdict=Verdict(Judgement.FAIL, refused.reason, "accept"))
        crash_point("iteration.accepted")
        self.accepted = accepted
        kept_in = str(self.run.layout.vault)
        told = telling.accepted(self.id, self.baseline, self.attempt, accepted, self.validation.score, kept_in, self._elapsed())
        self.run.events.emit(told, iteration=self.number)
        return state

    def _undo(self, state: IterationState) -> IterationState:
        if self.rejection is None:
            self.rejection = self._reject(state)
        return self.rejection.perform(state)

    def _guard_control(self) -> None:
        """Before any git command after something foreign ran, and before the stream is written to again."""
        known = set(self.control.changed)
        self.control = self.run.workspace.guard_control(self.baseline)
        self.run.restore_log()
        if set(self.control.changed) - known or (self.control.git_replaced and not known):
            self.run.events.emit(
                AlertControlChanged(iteration_id=self.id, paths=self.control.changed[:NAMED], reverted=True),
                iteration=self.number,
            )

    # ------------------------------------------------------------ words and values

    def _reject(self, state: IterationState) -> Rejection:
        # A validator may have planted something as well: nothing of git runs before it is compared again.
        self._guard_control()
        return self._rejection(state)

    def _rejection(self, state: IterationState) -> Rejection:
        return Rejection.of(
            self.run,
            self.number,
            self.baseline,
            self.attempt,
            state.verdict,
            announce=state.failed or state.interrupted is not None or state.survivors,
            changes_log=self.changes_log,
            started=self.started,
        )

    def _failing_output(self) -> str:
        if self.run.effects is not None and self.run.effects.output:
            return self.run.effects.output
        failing = self.validation.failing or self.codegen
        return failing.tail if failing is not None else ""

    def _elapsed(self) -> int:
        return round((time.monotonic() - self.started) * 1000)

    def _result(self, state: IterationState) -> tuple[IterationResult, Feedback]:
        ended = outcome(state, accepted=self.accepted is not None)
        if ended is Outcome.NO_CHANGE:
            self._announce_no_change(state)
        output = self._failing_output() if hasattr(self, "validation") else ""
        verdict = state.verdict
        stat = f"{len(self.attempt.changes)} paths, +{self.attempt.insertions} -{self.attempt.deletions}"
        result = IterationResult(
            number=self.number,
            outcome=ended,
            verdict=verdict,
            commit=self.accepted.commit if self.accepted is not None else None,
            score=self.validation.score if self.accepted is not None else None,
            failure_hash=failure_hash(verdict, output) if verdict is not None and not verdict.passed else "",
            patch_id=self.attempt.patch_id,
            tokens=self.tokens,
            cost=self.cost,
            duration_ms=self._elapsed(),
            promised=self._promised(state) and ended in (Outcome.ACCEPTED, Outcome.NO_CHANGE),
            unavailable=self.unavailable and ended is Outcome.ROLLED_BACK,
            passed=frozenset(self.validation.passed) if self.accepted is not None else frozenset(),
            interrupted=state.interrupted,
            paths=len(self.attempt.changes),
        )
        if self.rejection is not None and ended is Outcome.ROLLBACK_FAILED:
            result = replace(result, verdict=Verdict(Judgement.FAIL, self.rejection.problem, "rollback"))
        return result, self.feedback.after(self.number, ended, verdict, output, stat)

    def _promised(self, state: IterationState) -> bool:
        """The promise counts when the validators agree; one that was red and was not asked does not."""
        agreed = state.verdict is None or state.verdict.passed
        return state.promised and agreed and not self.validation.skipped & (self.past.reds or frozenset())

    def _announce_no_change(self, state: IterationState) -> None:
        restored, preserved = Restored(), Preserved()
        if self.rejection is not None:
            restored, preserved = self.rejection.restored, self.rejection.preserved
        verified = state.verified is not False
        told = telling.no_change(self.id, self.baseline, self.attempt, restored, preserved, verified, self._elapsed())
        self.run.events.emit(told, iteration=self.number)
