"""Runs one effect's command and tells the stream of it as of any step: intent, pid, result."""

from __future__ import annotations

import hashlib

from evolver import process
from evolver.crash import crash_point
from evolver.effects.host import how
from evolver.effects.journal import Entry
from evolver.effects.plan import EffectPlan
from evolver.effects.reverting import Surroundings
from evolver.events.types import Emitter, StepFinished, StepRunning, StepStarted
from evolver.interrupts import Interrupts
from evolver.model import Judgement, StepContext

GRACE_MS = 10_000
STEP = "effect"


def act(
    plan: EffectPlan, entry: Entry, context: StepContext, where: Surroundings, emitter: Emitter, interrupts: Interrupts
) -> process.Finished:
    """The command's end, once nothing that it started is alive any more."""
    iteration, log = context.iteration, where.log(entry, "")
    emitter.emit(
        StepStarted(
            iteration_id=context.iteration_id,
            step=STEP,
            name=plan.name,
            argv_hash=hashlib.sha256("\0".join(plan.argv).encode("utf-8", "surrogateescape")).hexdigest(),
            timeout_ms=plan.timeout_ms,
            round=entry.turn,
        ),
        iteration=iteration,
    )

    def started(pid: int, since: str) -> None:
        running = StepRunning(iteration_id=context.iteration_id, name=plan.name, pid=pid, pid_started=since)
        emitter.emit(running, iteration=iteration)

    done = process.run(
        process.Command(
            argv=plan.argv,
            cwd=context.cwd,
            env={**where.env, **context.environment()},
            timeout_ms=plan.timeout_ms,
            grace_ms=GRACE_MS,
            log=log,
            name=plan.name,
        ),
        interrupts=interrupts,
        redactor=where.redactor(),
        on_start=started,
    )
    crash_point("effect.ran")
    emitter.emit(
        StepFinished(
            iteration_id=context.iteration_id,
            step=STEP,
            name=plan.name,
            judgement=str(Judgement.PASS if succeeded(done) else Judgement.FAIL),
            reason=how(done),
            exit_code=done.exit_code,
            signal=done.signal,
            timed_out=done.timed_out,
            duration_ms=done.duration_ms,
            log=str(log),
            log_bytes=done.log_bytes,
            round=entry.turn,
            killed=done.killed,
        ),
        iteration=iteration,
    )
    return done


def succeeded(done: process.Finished) -> bool:
    return done.exit_code == 0 and not (done.timed_out or done.interrupted or done.error or done.survivors)
