"""Scripted steps, for tests of one's own loops: deterministic, in this process, no model and no network.

    from evolver import Loop, run
    from evolver.testing import ScriptedCodegen, ScriptedValidator, nothing, write

    agent = ScriptedCodegen(write("a.txt", "one"), nothing(), write("a.txt", "two"))
    judge = ScriptedValidator("tests", True, False)
    result = run(Loop(codegen=agent, validators={"tests": judge}, max_iters=3), repository)

An *act* is what one call of the agent does. After the last one a script goes on doing nothing.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

from evolver.model import AgentReport, Judgement, StepContext, StepResult, Verdict
from evolver.process import run_simple
from evolver.steps.runner import free_log

Act = Callable[[StepContext], AgentReport | None]

SHELL_TIMEOUT_MS = 60_000


def write(path: str, content: str | bytes, *, mode: int | None = None) -> Act:
    """Write a file below the step's folder; its folders are made."""

    def act(context: StepContext) -> None:
        target = context.cwd / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(content.encode() if isinstance(content, str) else content)
        if mode is not None:
            target.chmod(mode)

    return act


def append(path: str, content: str) -> Act:
    """Add to a file."""

    def act(context: StepContext) -> None:
        with (context.cwd / path).open("a", encoding="utf-8") as file:
            file.write(content)

    return act


def delete(path: str) -> Act:
    """Remove a file or a folder."""

    def act(context: StepContext) -> None:
        target = context.cwd / path
        if target.is_dir() and not target.is_symlink():
            shutil.rmtree(target)
        else:
            target.unlink()

    return act


def shell(script: str) -> Act:
    """Run a shell script in the step's folder; a failing one is a failing agent."""

    def act(context: StepContext) -> AgentReport | None:
        done = run_simple(["sh", "-c", script], timeout_ms=SHELL_TIMEOUT_MS, cwd=context.cwd)
        return None if done.ok else AgentReport(ok=False, reason=f"{script!r}: {done.describe()}")

    return act


def nothing() -> Act:
    """Change nothing."""
    return lambda context: None


def fails(reason: str = "gave up") -> Act:
    """An agent that reports failure."""
    return lambda context: AgentReport(ok=False, reason=reason)


def limited(reason: str = "429 Too Many Requests", *, retry_after_ms: int | None = None) -> Act:
    """An agent that is rate limited."""
    return lambda context: AgentReport(ok=False, reason=reason, transient=True, retry_after_ms=retry_after_ms)


def says(message: str, *, input_tokens: int = 0, output_tokens: int = 0, cost_usd: str | None = None) -> Act:
    """An agent's last message, and what it used: for promises and budgets."""
    return lambda context: AgentReport(
        ok=True, last_message=message, input_tokens=input_tokens, output_tokens=output_tokens, cost_usd=cost_usd, turns=1
    )


def both(*acts: Act) -> Act:
    """Several acts in one call. The last report counts."""

    def act(context: StepContext) -> AgentReport | None:
        report: AgentReport | None = None
        for one in acts:
            report = one(context) or report
        return report

    return act


class ScriptedCodegen:
    """A `Codegen` that plays one act a call. `contexts` holds what each call was told."""

    def __init__(self, *acts: Act) -> None:
        self._acts = acts
        self.contexts: list[StepContext] = []

    def generate(self, context: StepContext) -> StepResult:
        number = len(self.contexts)
        self.contexts.append(context)
        report = self._acts[number](context) if number < len(self._acts) else None
        failed = report is not None and not report.ok
        words = report.reason or report.last_message if report is not None else ""
        return _result("codegen", context, 1 if failed else 0, words, report)

    __call__ = generate


class ScriptedValidator:
    """A `Validator` with one ending a call: a bool, an exit code, or a `Verdict`. After the last one it passes."""

    def __init__(self, name: str, *endings: bool | int | Verdict, output: str = "") -> None:
        self.name = name
        self._endings = endings
        self._output = output
        self.contexts: list[StepContext] = []

    def validate(self, context: StepContext) -> StepResult:
        number = len(self.contexts)
        self.contexts.append(context)
        ending = self._endings[number] if number < len(self._endings) else True
        words = self._output
        if isinstance(ending, Verdict):
            words = ending.reason
            code = {Judgement.PASS: 0, Judgement.FAIL: 1, Judgement.INCONCLUSIVE: 125}[ending.judgement]
        else:
            code = int(not ending) if isinstance(ending, bool) else ending
        return _result(self.name, context, code, words, None)

    __call__ = validate


def _result(name: str, context: StepContext, code: int, words: str, report: AgentReport | None) -> StepResult:
    log: Path = free_log(context.log_dir, name, context.repair_round)
    log.parent.mkdir(parents=True, exist_ok=True)
    log.write_text(words, encoding="utf-8", errors="replace")
    return StepResult(name=name, exit_code=code, log=str(log), log_bytes=log.stat().st_size, tail=words, report=report)
