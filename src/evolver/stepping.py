"""Runs one step and tells the stream: intent, pid, result."""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, replace
from decimal import Decimal
from pathlib import Path

import msgspec

from evolver.context import RunContext
from evolver.events.types import StepFinished, StepRunning, StepStarted
from evolver.model import Judgement, StepContext, StepResult, Verdict
from evolver.score import Stamp, stamp
from evolver.spending import Meter
from evolver.watching import watching

PROMISE_LIMIT = 1 << 20  # bytes of a promise file that are read


@dataclass(frozen=True, slots=True)
class CodegenStep:
    """What codegen came to."""

    result: StepResult
    verdict: Verdict
    promised: bool
    @property
    def unavailable(self) -> bool:
        """Not an attempt: the agent was turned away, or never reached anybody."""
        report = self.result.report
        return report is not None and report.transient and not self.result.interrupted and not self.stopped

    stopped: bool = False  # by a guard or a budget: nothing in it is worth validating or repairing


def run_step(
    run: RunContext,
    context: StepContext,
    *,
    kind: str,
    name: str,
    call: Callable[[StepContext], StepResult],
    judge: Callable[[StepResult], Verdict],
    guard: Callable[[], None],
    timeout_ms: int | None,
    agent: str | None = None,
    on_output: Callable[[bytes], None] | None = None,
) -> tuple[StepResult, Verdict]:
    """Run `call` between its two events; the pid is in the stream as soon as the child lives.

    `guard` runs as soon as the step is over: it may have deleted `.git`, and the stream with it.
    """
    iteration_id = context.iteration_id
    limit = int(timeout_ms) if timeout_ms is not None else None  # a Duration is no JSON
    run.events.emit(
        StepStarted(iteration_id=iteration_id, step=kind, name=name, timeout_ms=limit, round=context.repair_round),
        iteration=context.iteration,
    )

    def started(pid: int, when: str) -> None:
        run.events.emit(
            StepRunning(iteration_id=iteration_id, name=name, pid=pid, pid_started=when), iteration=context.iteration
        )

    context.log_dir.mkdir(parents=True, exist_ok=True, mode=0o700)  # an agent may have deleted it with `.git`
    result = call(replace(context, on_start=started, on_output=on_output or run.on_output))
    guard()
    verdict = judge(result)
    report = result.report
    run.events.emit(
        StepFinished(
            iteration_id=iteration_id,
            step=kind,
            name=name,
            judgement=str(verdict.judgement),
            reason=verdict.reason,
            exit_code=result.exit_code,
            signal=result.signal,
            timed_out=result.timed_out,
            duration_ms=result.duration_ms,
            log=result.log,
            log_bytes=result.log_bytes,
            log_error=result.log_error,
            round=context.repair_round,
            flaky=result.flaky,
            killed=result.killed,
            agent=(report.agent if report is not None else "") or agent,
            calls=report.calls if report is not None else 1,
            waited_ms=report.waited_ms if report is not None else 0,
            input_tokens=report.input_tokens if report is not None else None,
            output_tokens=report.output_tokens if report is not None else None,
            cost_usd=report.cost_usd if report is not None else None,
            turns=report.turns if report is not None else None,
            session_id=report.session_id if report is not None else None,
            transient=report.transient if report is not None else False,
        ),
        iteration=context.iteration,
    )
    return result, verdict


def judge_codegen(result: StepResult) -> Verdict:
    """A zero exit is not believed when the agent itself reports failure; what it changed is looked at in any case."""
    if result.interrupted:
        return Verdict(Judgement.INCONCLUSIVE, "codegen: interrupted", "codegen")
    if result.report is not None and not result.report.ok:
        judgement = Judgement.INCONCLUSIVE if result.report.transient else Judgement.FAIL
        return Verdict(judgement, f"codegen: {result.report.reason or result.describe()}", "codegen")
    if not result.ok:
        return Verdict(Judgement.FAIL, f"codegen: {result.describe()}", "codegen")
    return Verdict(Judgement.PASS, "codegen: exit 0", "codegen")


def run_codegen(run: RunContext, context: StepContext, guard: Callable[[], None], *, cost_left: Decimal | None = None) -> CodegenStep:
    """One attempt by the loop's codegen. `cost_left` in USD: it is ended when it says that it has spent more."""
    definition = run.loaded.definition
    promise_file = run.workdir / definition.loop.promise_file if definition.loop.promise_file else None
    before = stamp(promise_file) if promise_file is not None else None
    meter = Meter(cost_left, run.interrupts.cancel, run.on_output) if cost_left is not None else None
    stopped: Callable[[], str] = lambda: ""  # noqa: E731

    def call(told: StepContext) -> StepResult:
        nonlocal stopped
        with ExitStack() as stack:
            watch = None
            if definition.guard.watch:
                watch = stack.enter_context(watching(run.layout.root, run.protected, run.interrupts))
            stack.callback(run.interrupts.uncancel)

            def why() -> str:
                if watch is not None and watch.hit:
                    return f"guard: protected path: {watch.hit} (codegen was stopped)"
                if meter is not None and meter.exceeded:
                    return f"budget: codegen was stopped, it had spent {meter.spent} of the {meter.limit} USD that were left"
                return ""

            stopped = why
            result = run.codegen.generate(told)
        # Ended by us, not by a person: the run goes on.
        ours = bool(why()) and run.interrupts.signal is None
        return msgspec.structs.replace(result, interrupted=False) if ours else result

    def judge(result: StepResult) -> Verdict:
        reason = stopped()
        if reason and run.interrupts.signal is None:
            return Verdict(Judgement.FAIL, reason, "guard" if reason.startswith("guard") else "codegen")
        return judge_codegen(result)

    result, verdict = run_step(
        run,
        context,
        kind="codegen",
        name="codegen",
        call=call,
        judge=judge,
        guard=guard,
        timeout_ms=definition.codegen.timeout,
        agent=definition.codegen.agent,
        on_output=meter.feed if meter is not None else None,
    )
    return CodegenStep(result, verdict, _promised(run, result, promise_file, before), bool(stopped()))


def _promised(run: RunContext, result: StepResult, path: Path | None, before: Stamp | None) -> bool:
    pattern = run.loaded.definition.loop.promise
    if not pattern:
        return False
    if path is not None:
        if stamp(path) in (None, before):
            return False
        with path.open("rb") as file:
            said = file.read(PROMISE_LIMIT).decode(errors="replace")
    else:
        said = result.report.last_message if result.report is not None else result.tail
    return re.search(pattern, said, re.MULTILINE) is not None
