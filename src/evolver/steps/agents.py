"""A coding-agent CLI as codegen: called by its preset, believed by its parser. And which of them are installed."""

from __future__ import annotations

import re
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from evolver.definition import AgentSection, CodegenSection
from evolver.errors import PreflightError
from evolver.model import AgentReport, StepContext, StepResult
from evolver.process import run_simple
from evolver.scratch import put, remove
from evolver.steps.command import Wrap, plain
from evolver.steps.parsers import PARSERS
from evolver.steps.presets import Preset, find_preset
from evolver.steps.runner import StepRunner
from evolver.steps.said import Said

ARGUMENT_LIMIT = 100_000  # bytes of prompt that go into an argument: Linux ends at 128 KiB
VERSION_TIMEOUT_MS = 20_000


def fill(preset: Preset, args: Sequence[str], context: StepContext, prompt_file: Path) -> tuple[str, ...]:
    """The argv of one call."""
    prompt = context.prompt
    if len(prompt.encode("utf-8", "surrogateescape")) > ARGUMENT_LIMIT or "\0" in prompt:
        prompt = f"Read your task in the file {prompt_file} and carry it out."
    if prompt.startswith("-"):  # not an option
        prompt = "\n" + prompt
    words: list[str] = []
    template = preset.argv if "{args}" in preset.argv else (*preset.argv, "{args}")
    for part in template:
        if part == "{args}":
            words.extend(args)
        elif part == "{prompt}":
            words.append(prompt)
        else:
            words.append(
                part.replace("{prompt_file}", str(prompt_file))
                .replace("{step_dir}", str(context.step_dir))
                # last, so that nothing in the prompt itself is taken for a placeholder
                .replace("{prompt}", prompt)
            )
    return tuple(words)


@dataclass(frozen=True)
class AgentCodegen:
    """One agent. What it reports stands in `StepResult.report`; a timeout or a signal is never a success."""

    runner: StepRunner
    preset: Preset
    timeout_ms: int | None
    grace_ms: int
    args: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    wrap: Wrap = plain

    def generate(self, context: StepContext) -> StepResult:
        prompt_file = context.step_dir / "prompt.txt"
        put(prompt_file, context.prompt)
        for left in context.step_dir.glob("trajectory*.json"):  # of the call before: it must not speak for this one
            remove(left)
        before = self._droppings(context.cwd)
        ours = {name: value for name, value in self.preset.env.items() if name not in self.runner.base}
        result = self.runner.run(
            context,
            name="codegen",
            argv=self.wrap(fill(self.preset, self.args, context, prompt_file), context),
            timeout_ms=self.timeout_ms,
            grace_ms=self.grace_ms,
            env={**ours, **self.env},
            stdin=context.prompt.encode("utf-8", "surrogateescape") if self.preset.prompt == "stdin" else b"",
        )
        for path in self._droppings(context.cwd) - before:
            remove(path)
        return msgspec.structs.replace(result, report=self._report(result, context))

    def _droppings(self, cwd: Path) -> frozenset[Path]:
        return frozenset(cwd / name for name in self.preset.droppings if (cwd / name).exists())

    def _report(self, result: StepResult, context: StepContext) -> AgentReport:
        if result.error:
            return AgentReport(ok=False, reason=f"{self.preset.name}: {result.describe()}", agent=self.preset.name)
        log = Path(result.log)
        said = Said(
            exit_code=result.exit_code,
            log=log,
            tail=result.tail,
            complete=log.is_file() and log.stat().st_size == result.log_bytes,
            step_dir=context.step_dir,
            rate_limit=self.preset.rate_limit,
        )
        report = PARSERS[self.preset.parser](said)
        if result.timed_out or result.interrupted or result.signal is not None:
            # A CLI that waits out a rate limit by itself runs into the clock: what it said last tells that from hard work.
            waited = result.timed_out and report.transient
            words = f"{result.describe()}: {report.reason}" if waited else result.describe()
            report = msgspec.structs.replace(report, ok=False, reason=words, transient=waited)
        reason = f"{self.preset.name}: {report.reason}" if report.reason else ""
        return msgspec.structs.replace(report, reason=reason, agent=self.preset.name)


def refuse_missing(section: CodegenSection, own: Mapping[str, AgentSection], env: Mapping[str, str], cwd: Path) -> None:
    """Raise `PreflightError` with the install line when neither the agent nor one of its fallbacks can be started."""
    if section.agent is None:
        return
    presets = [find_preset(name, own) for name in (section.agent, *section.fallback)]
    if any(_program(preset, env, cwd) for preset in presets):
        return
    names = ", ".join(f"{preset.name} ({preset.argv[0]})" for preset in presets)
    hint = " or ".join(preset.install for preset in presets if preset.install) or f"install {presets[0].argv[0]}"
    raise PreflightError(f"agent not installed: {names}", f"Install it: {hint}")


def _program(preset: Preset, env: Mapping[str, str], cwd: Path) -> str | None:
    first = preset.argv[0]
    return shutil.which(str(cwd / first) if "/" in first else first, path=env.get("PATH"))


class FoundAgent(msgspec.Struct, frozen=True, kw_only=True):
    """What `evolver doctor` says of one agent."""

    name: str
    path: str | None  # None: not installed
    version: str = ""
    known: bool = False  # the preset was measured with this version
    known_versions: tuple[str, ...] = ()
    install: str = ""
    problem: str = ""


def discover(presets: Sequence[Preset], path: str | None = None) -> tuple[FoundAgent, ...]:
    """Look for each CLI on PATH and ask its version. Starts each one found."""
    return tuple(_discover(preset, path) for preset in presets)


def _discover(preset: Preset, path: str | None) -> FoundAgent:
    found = FoundAgent(name=preset.name, path=None, known_versions=preset.known_versions, install=preset.install)
    where = shutil.which(preset.argv[0], path=path)
    if where is None:
        return found
    found = msgspec.structs.replace(found, path=where)
    if not preset.version_argv:
        return found
    done = run_simple([where, *preset.version_argv[1:]], timeout_ms=VERSION_TIMEOUT_MS)
    version = version_in(done.stdout.decode(errors="replace") or done.stderr.decode(errors="replace"))
    if not done.ok or not version:
        return msgspec.structs.replace(found, problem=f"{' '.join(preset.version_argv)}: {done.describe()}")
    known = any(version == v or version.startswith(v + ".") for v in preset.known_versions)
    return msgspec.structs.replace(found, version=version, known=known)


def version_in(text: str) -> str:
    """The first thing that looks like a version."""
    match = re.search(r"\d+(?:\.\d+)+[\w.+-]*", text)
    return match[0] if match is not None else ""
