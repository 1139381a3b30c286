"""Steps that are Python callables: `callable = "package.module:name"`, looked up beside the loop file.

They run in a child process, so that a timeout and a kill hold for them as for a command, and nothing they do to the
interpreter reaches evolver's. Only callables given through the API, as objects, run in evolver's own process.
"""

from __future__ import annotations

import contextlib
import json
import re
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from evolver.errors import UsageError
from evolver.model import AgentReport, StepContext, StepResult
from evolver.process import contained
from evolver.steps import callable_child
from evolver.steps.command import VALIDATOR_GRACE_MS, Wrap, plain, with_retries
from evolver.steps.runner import StepRunner, free_log

_TARGET = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_][\w.]*")
REPORT_LIMIT = 1 << 20
IN_PROCESS_GRACE_S = 0.5


def check_target(target: str, where: str) -> str:
    """Raise `UsageError` for what is not `package.module:name`."""
    if not _TARGET.fullmatch(target):
        raise UsageError(
            f'{where}: expected "package.module:name", got {target!r}',
            "Name a module beside the loop file and a callable in it.",
        )
    return target


@dataclass(frozen=True)
class PythonStep:
    """One callable, run in a child."""

    runner: StepRunner
    name: str
    target: str
    directory: Path
    method: str
    timeout_ms: int | None
    grace_ms: int = VALIDATOR_GRACE_MS
    retries: int = 0
    env: Mapping[str, str] = field(default_factory=dict)
    wrap: Wrap = plain

    def generate(self, context: StepContext) -> StepResult:
        return self._once(context)

    def validate(self, context: StepContext) -> StepResult:
        return with_retries(lambda: self._once(context), self.retries)

    def _once(self, context: StepContext) -> StepResult:
        report = context.step_dir / "evolver-report.json"
        report.unlink(missing_ok=True)
        order = callable_child.Order(
            target=self.target,
            directory=str(self.directory),
            method=self.method,
            report=str(report),
            run_id=context.run_id,
            iteration=context.iteration,
            pre_ref=context.pre_ref,
            cwd=str(context.cwd),
            step_dir=str(context.step_dir),
            log_dir=str(context.log_dir),
            last_failure=str(context.last_failure),
            repair_round=context.repair_round,
            prompt=context.prompt,
        )
        # -P: a module the attempt wrote into the worktree must not stand in for one of ours. -B: no __pycache__ left there.
        argv = (sys.executable, "-P", "-B", "-m", callable_child.__name__)
        result = self.runner.run(
            context,
            name=self.name,
            argv=self.wrap(argv, context),
            timeout_ms=self.timeout_ms,
            grace_ms=self.grace_ms,
            env=self.env,
            stdin=json.dumps(msgspec.to_builtins(order)).encode(),
        )
        return msgspec.structs.replace(result, report=_read_report(report))


def _read_report(path: Path) -> AgentReport | None:
    with contextlib.suppress(OSError, msgspec.MsgspecError, RecursionError):
        if path.is_file() and path.stat().st_size <= REPORT_LIMIT:
            return msgspec.json.decode(path.read_bytes(), type=AgentReport)
    return None


@dataclass(frozen=True)
class InProcess:
    """A callable given through the API as an object: runs here, without a timeout. Its exceptions are its caller's."""

    name: str
    function: Callable[[StepContext], object]

    def generate(self, context: StepContext) -> StepResult:
        return self._call(context, "generate")

    def validate(self, context: StepContext) -> StepResult:
        return self._call(context, "validate")

    def _call(self, context: StepContext, method: str) -> StepResult:
        begun = time.monotonic()
        with contained(context.run_id, IN_PROCESS_GRACE_S) as left:
            value = callable_child.call(self.function, method, context)
        if isinstance(value, StepResult):
            return msgspec.structs.replace(value, killed=value.killed + left.killed, survivors=value.survivors + left.survivors)
        end = callable_child.ending(value)
        log = free_log(context.log_dir, self.name, context.repair_round)
        log.write_text(end.words, encoding="utf-8", errors="replace")
        return StepResult(
            name=self.name,
            exit_code=end.code,
            duration_ms=round((time.monotonic() - begun) * 1000),
            log=str(log),
            log_bytes=log.stat().st_size,
            tail=end.words,
            report=end.report,
            killed=left.killed,
            survivors=left.survivors,
        )
