"""Steps that are commands: a string is run by `sh -c`, a list is an argv."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import msgspec

from evolver.definition import Command
from evolver.model import Judgement, StepContext, StepResult
from evolver.steps.judge import judge
from evolver.steps.runner import StepRunner

VALIDATOR_GRACE_MS = 5_000

Wrap = Callable[[tuple[str, ...], StepContext], tuple[str, ...]]  # puts a sandbox around an argv


def plain(argv: tuple[str, ...], context: StepContext) -> tuple[str, ...]:
    """No sandbox."""
    return argv


def argv_of(command: Command) -> tuple[str, ...]:
    return ("sh", "-c", command) if isinstance(command, str) else tuple(command)


@dataclass(frozen=True)
class CommandCodegen:
    """`[codegen] command`. A rendered prompt, if there is one, arrives on standard input."""

    runner: StepRunner
    command: Command
    timeout_ms: int | None
    grace_ms: int
    env: Mapping[str, str] = field(default_factory=dict)
    wrap: Wrap = plain

    def generate(self, context: StepContext) -> StepResult:
        return self.runner.run(
            context,
            name="codegen",
            argv=self.wrap(argv_of(self.command), context),
            timeout_ms=self.timeout_ms,
            grace_ms=self.grace_ms,
            env=self.env,
            stdin=context.prompt.encode("utf-8", "surrogateescape"),
        )


@dataclass(frozen=True)
class CommandValidator:
    """One `[[validator]]`. A failure is tried again `retries` times; a pass on a retry is marked `flaky`."""

    runner: StepRunner
    name: str
    command: Command
    timeout_ms: int | None
    retries: int = 0
    grace_ms: int = VALIDATOR_GRACE_MS
    env: Mapping[str, str] = field(default_factory=dict)
    wrap: Wrap = plain

    def validate(self, context: StepContext) -> StepResult:
        def once() -> StepResult:
            return self.runner.run(
                context,
                name=self.name,
                argv=self.wrap(argv_of(self.command), context),
                timeout_ms=self.timeout_ms,
                grace_ms=self.grace_ms,
                env=self.env,
            )

        return with_retries(once, self.retries)


def with_retries(once: Callable[[], StepResult], retries: int) -> StepResult:
    """Again while it fails, at most `retries` times more. What it left running adds up; a survivor ends it."""
    result = once()
    total = result.duration_ms
    killed = result.killed
    for _ in range(retries):
        if judge(result).judgement is Judgement.PASS or result.interrupted or result.error or result.survivors:
            break
        result = once()
        total += result.duration_ms
        killed += result.killed
        if result.ok:
            return msgspec.structs.replace(result, flaky=True, duration_ms=total, killed=killed)
    return msgspec.structs.replace(result, duration_ms=total, killed=killed)
