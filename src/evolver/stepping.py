"""Runs one step and tells the stream: intent, pid, result."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from evolver.context import RunContext
from evolver.events.types import StepFinished, StepRunning, StepStarted
from evolver.model import Judgement, StepContext, StepResult, Verdict

PROMISE_LIMIT = 1 << 20  # bytes of a promise file that are read


@dataclass(frozen=True, slots=True)
class CodegenStep:
    """What codegen came to."""

    result: StepResult
    verdict: Verdict
    promised: bool


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
) -> tuple[StepResult, Verdict]:
    """Run `call` between its two events; the pid is in the stream as soon as the child lives.

    `guard` runs as soon as the step is over: it may have deleted `.git`, and the stream with it.
    """
    iteration_id = context.iteration_id
    run.events.emit(
        StepStarted(iteration_id=iteration_id, step=kind, name=name, timeout_ms=timeout_ms, round=context.repair_round),
        iteration=context.iteration,
    )

    def started(pid: int, when: str) -> None:
        run.events.emit(
            StepRunning(iteration_id=iteration_id, name=name, pid=pid, pid_started=when), iteration=context.iteration
        )

    context.log_dir.mkdir(parents=True, exist_ok=True, mode=0o700)  # an agent may have deleted it with `.git`
    result = call(replace(context, on_start=started, on_output=run.on_output))
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


def run_codegen(run: RunContext, context: StepContext, guard: Callable[[], None]) -> CodegenStep:
    """One attempt by the loop's codegen."""
    section = run.loaded.definition.codegen
    promise_file = run.workdir / run.loaded.definition.loop.promise_file if run.loaded.definition.loop.promise_file else None
    before = _stamp(promise_file)
    result, verdict = run_step(
        run,
        context,
        kind="codegen",
        name="codegen",
        call=run.codegen.generate,
        judge=judge_codegen,
        guard=guard,
        timeout_ms=section.timeout,
        agent=section.agent,
    )
    return CodegenStep(result, verdict, _promised(run, result, promise_file, before))


def _stamp(path: Path | None) -> tuple[int, int, int] | None:
    """What tells this attempt's promise file from one that a crashed run left behind."""
    try:
        found = path.stat() if path is not None else None
    except OSError:
        return None
    return (found.st_ino, found.st_mtime_ns, found.st_size) if found is not None else None


def _promised(run: RunContext, result: StepResult, path: Path | None, before: tuple[int, int, int] | None) -> bool:
    pattern = run.loaded.definition.loop.promise
    if not pattern:
        return False
    if path is not None:
        if _stamp(path) in (None, before):
            return False
        with path.open("rb") as file:
            said = file.read(PROMISE_LIMIT).decode(errors="replace")
    else:
        said = result.report.last_message if result.report is not None else result.tail
    return re.search(pattern, said, re.MULTILINE) is not None
