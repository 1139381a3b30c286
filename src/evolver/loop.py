"""The loop: lock, recover, refuse or begin, iterate until something says stop, finish.

`Run.execute` is the paragraph; the rest of the module is its vocabulary.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from decimal import Decimal

from evolver import history, requests, stop
from evolver._version import __version__
from evolver.changes.within import hide_changes_log
from evolver.context import RunContext
from evolver.crash import crash_point
from evolver.errors import EvolverError, ExitStatus, LogError, NotRestoredError, PreflightError
from evolver.events.log import EventLog, Genesis
from evolver.events.reader import read_backwards
from evolver.events.types import AlertStalled, BaselineValidated, RunFinished, RunPaused, RunStarted
from evolver.feedback import Feedback
from evolver.iteration import Iteration
from evolver.judges import judge_hashes
from evolver.keeping import load_best, save_best, save_definition, sha256_text
from evolver.land import Landed, Refused
from evolver.machine import IterationState, Phase
from evolver.model import Judgement, Outcome, RollbackMode, StepContext, Verdict
from evolver.process import process_started
from evolver.recovery import Recovered
from evolver.rejecting import Rejection
from evolver.requests import STOP_SIGNAL, StopWatch
from evolver.resume_lock import write_atomic
from evolver.score import better
from evolver.stop import RunState, Stop
from evolver.validating import Validation


@dataclass(frozen=True, slots=True)
class RunReport:
    """How a run ended."""

    run_id: str
    state: RunState
    stop: Stop
    exit_code: ExitStatus
    head: str | None
    landed: Landed | Refused | None = None  # of an isolated run: what became of its commits


class Run:
    """One run in a locked worktree, recovered and free of a resume lock. `assemble.py` makes it."""

    def __init__(
        self,
        context: RunContext,
        log: EventLog,
        *,
        breaker: bool = True,
        recovered: Recovered | None = None,
        land: Callable[[], Landed | Refused | None] | None = None,
    ) -> None:
        self.context, self.log, self.recovered, self._land = context, log, recovered, land
        definition = context.loaded.definition
        self.conditions = stop.conditions(definition.loop, definition.budget, definition.breaker if breaker else None)
        self.head: str | None = None
        self.state = RunState(started_ms=_now_ms(), now_ms=_now_ms())
        self.feedback = Feedback()
        self.fault: LogError | None = None
        self.current: Iteration | None = None  # an error out of one that has begun leaves the rest to recovery

    def execute(self) -> RunReport:
        """Iterate until a condition holds. The stream has the end of it, whatever happens."""
        self.context.workspace.preflight(dirty=self.context.loaded.definition.loop.dirty)
        if self.context.effects is not None:
            self.context.effects.preflight()
        with StopWatch(self.context.home, self.context.interrupts):
            self._begin()
            try:
                self._judge_baseline()
                while (reason := self._reason_to_stop()) is None:
                    iteration = Iteration(self.context, self.state.iterations + 1, self.state, self.feedback)
                    self.current = iteration
                    result, self.feedback = iteration.execute()
                    self.current = None
                    if result.outcome is Outcome.ACCEPTED and iteration.changes_log is not None:
                        iteration.changes_log.retire()
                    self._take(result)
                    if iteration.fault is not None:
                        self.fault = iteration.fault
                        raise iteration.fault
                    if iteration.unforeseen is not None:
                        raise iteration.unforeseen
            except EvolverError as error:
                unended = self.current is not None and self.current.begun
                if unended or (isinstance(error, LogError) and self.fault is None):
                    raise  # the iteration is not over: without `run.finished` the next run finishes it
                code = ExitStatus.NOT_RESTORED if self._not_restored() else error.exit_code
                self._finish(Stop("error", error.message), code)
                if code is error.exit_code:
                    raise
                raise NotRestoredError(f"{error.message}; and the attempt could not be undone", self._vault_hint()) from error
            except BaseException as error:
                if self.current is None:  # the attempt is undone, or held; what it was is for the caller to tell
                    code = ExitStatus.BUG if isinstance(error, Exception) else ExitStatus.INTERRUPTED
                    code = ExitStatus.NOT_RESTORED if self._not_restored() else code
                    self._finish(Stop("error", f"{type(error).__name__}: {error}".rstrip(": ")), code)
                raise
            return self._landed(self._finish(reason, self._exit_code(reason)))

    def _landed(self, report: RunReport) -> RunReport:
        """An isolated run's commits go to the person's branch, if that may be fast-forwarded."""
        if self._land is None or report.exit_code in (ExitStatus.HELD, ExitStatus.NOT_RESTORED):
            return report
        return replace(report, landed=self._land())

    # ------------------------------------------------------------ beginning

    def _begin(self) -> None:
        run, definition = self.context, self.context.loaded.definition
        hide_changes_log(definition, run.layout)
        baseline = run.workspace.baseline(run.iteration_id(0))
        self.head = baseline.pre_ref
        hashes = judge_hashes(run.loaded, run.layout.root, run.layout.prefix)
        self.log.genesis = Genesis(definition_hash=run.loaded.digest, validators=hashes, pre_ref=baseline.pre_ref)
        save_definition(run.layout, run.loaded, self.log.redactor)
        if self.log.path.parent != run.layout.state:
            write_atomic(run.layout.stream_note, os.fsencode(self.log.path) + b"\n")
        before = Decimal(0)
        if Decimal(definition.budget.cost_usd_per_day):
            self.state = self.state.on_day(_today())
            before = history.cost_since(read_backwards(self.log.path), f"{self.state.day}T00:00:00")
        self.state = replace(self.state, cost_today_before=before, best=load_best(run.home, run.loaded))
        run.events.emit(
            RunStarted(
                from_="idle",
                to="running",
                loop=run.loaded.name,
                definition_hash=run.loaded.digest,
                validators_hash=sha256_text("".join(hashes)),
                version=__version__,
                rollback_mode=str(definition.rollback.mode),
                pre_ref=baseline.pre_ref,
                branch=baseline.branch,
                scope=definition.loop.scope,
                max_iterations=definition.loop.max_iters,
                pid=os.getpid(),
                pid_started=process_started(os.getpid()),
                baseline=baseline.fingerprint,
                left_out=baseline.left_out,
                isolation=definition.loop.isolation,
                git_dir_id=run.layout.git_dir_id,
            )
        )
        self.baseline = baseline
        crash_point("run.started")

    def _judge_baseline(self) -> None:
        """Already red, or green? Told apart here, so that every later reason can say what the attempt broke."""
        run, policy = self.context, self.context.loaded.definition.validate.baseline
        if policy == "skip" or not run.validators:
            return
        scratch = run.scratch / "0"
        scratch.mkdir(parents=True, exist_ok=True)
        logs = run.home.step_logs / run.run_id / "0"
        failure = run.scratch / "last-failure.txt"
        failure.write_bytes(b"")
        context = StepContext(run.run_id, 0, self.baseline.pre_ref, run.workdir, scratch, logs, failure)
        validation = Validation(run, context, None, kind="baseline-validate", guard=self._guard)
        verdict, survivors = validation.judge(None)
        restored = self._drop_what_validators_left(survivors)
        red = not verdict.passed
        if run.interrupts.signal is None:
            failed, reason = tuple(validation.failed), verdict.reason if red else "green"
            run.events.emit(BaselineValidated(red=red, failed=failed, reason=reason, restored=restored))
        if validation.score is not None and run.loaded.definition.score is not None:
            best = self.state.best
            if best is None or better(run.loaded.definition.score)(validation.score, best):
                self.state = replace(self.state, best=validation.score)
        self.state = replace(self.state, baseline_red=red, reds=frozenset(validation.failed))
        if red and policy == "require" and run.interrupts.signal is None:
            raise PreflightError(
                f"the baseline is already red: {verdict.reason}", 'Make it green first, or set [validate] baseline = "record".'
            )

    def _guard(self) -> None:
        self.context.workspace.guard_control(self.baseline)
        self.context.restore_log()

    def _drop_what_validators_left(self, survivors: bool) -> int:
        run = self.context
        attempt = run.workspace.inspect(self.baseline, run.workspace.guard_control(self.baseline))
        if not survivors and not attempt.changed:
            return 0
        verdict = Verdict(Judgement.FAIL, "the validators changed the baseline", "baseline")
        rejection = Rejection.of(run, 0, self.baseline, attempt, verdict, mode=RollbackMode.HARD, announce=False)
        phase = Phase.HOLD if survivors else Phase.PRESERVE
        state = rejection.run(IterationState(mode=RollbackMode.HARD, phase=phase, survivors=survivors, changed=attempt.changed))
        if not state.restored or not state.verified:
            raise NotRestoredError(rejection.problem, self._vault_hint())
        return rejection.restored.written + rejection.restored.deleted

    def _vault_hint(self) -> str:
        return f"The baseline is kept in {self.context.layout.vault}. Put the named paths right, then `evolver resume`."

    def _not_restored(self) -> bool:
        return self.state.last is not None and self.state.last.outcome is Outcome.ROLLBACK_FAILED

    # ------------------------------------------------------------ going on

    def _reason_to_stop(self) -> Stop | None:
        signal = self.context.interrupts.signal
        asked_to_stop = signal == STOP_SIGNAL or requests.is_asked(self.context.home, "stop")
        self.state = replace(
            self.state.on_day(_today()),
            now_ms=_now_ms(),
            signal=signal if signal not in (None, STOP_SIGNAL) else None,
            stop_asked=asked_to_stop,
            pause=requests.is_asked(self.context.home, "pause"),
        )
        return stop.first(self.conditions, self.state)

    def _take(self, result: stop.IterationResult) -> None:
        score = self.context.loaded.definition.score
        self.state = self.state.on_day(_today()).after(result, better=better(score) if score is not None else None)
        if result.outcome is Outcome.ACCEPTED:
            self.head = result.commit
            if result.score is not None and self.state.best is not None:
                save_best(self.context.home, self.context.loaded, self.state.best)
        crash_point("run.between")

    # ------------------------------------------------------------ ending

    def _finish(self, reason: Stop, code: ExitStatus) -> RunReport:
        state, run = self.state, self.context
        if reason.alert and reason.name.startswith(("breaker", "agent")):
            run.events.emit(AlertStalled(condition=reason.name, detail=reason.detail))
        if reason.name == "paused":
            run.events.emit(RunPaused(from_="running", to="paused", reason=reason.detail))
        clean = code not in (ExitStatus.HELD, ExitStatus.NOT_RESTORED) and (
            state.last is None or state.last.outcome not in (Outcome.HELD, Outcome.ROLLBACK_FAILED)
        )
        run.events.emit(
            RunFinished(
                from_="running",
                to="finished" if clean else "held",
                reason=reason.name,
                detail=reason.detail,
                exit_code=int(code),
                iterations=state.iterations,
                accepted=state.accepted,
                no_change=state.no_change,
                rolled_back=state.rolled_back,
                held=state.held,
                head=self.head,
                duration_ms=_now_ms() - state.started_ms,
                tokens=state.tokens,
                cost_usd=str(state.cost),
                best_score=str(state.best) if state.best is not None else None,
            )
        )
        crash_point("run.finished")
        if clean:
            run.layout.stream_note.unlink(missing_ok=True)
            run.workspace.release()
            self.log.prune_mirror()
        return RunReport(run.run_id, state, reason, code, self.head)

    def _exit_code(self, reason: Stop) -> ExitStatus:
        """4, 3 and the interrupts outrank 0 and 1; an interrupt that ends in a held tree tells the interrupt."""
        state = self.state
        if self._not_restored():
            return ExitStatus.NOT_RESTORED
        signal = self.context.interrupts.signal
        if signal not in (None, STOP_SIGNAL):
            return ExitStatus(128 + int(signal or 0))
        if state.last is not None and state.last.outcome is Outcome.HELD:
            return ExitStatus.HELD
        return ExitStatus.ACCEPTED if state.accepted or reason.goal else ExitStatus.NOTHING_ACCEPTED


def _today() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%d")


def _now_ms() -> int:
    return time.monotonic_ns() // 1_000_000
