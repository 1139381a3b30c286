"""From a loop's sections to its steps. What can be made stands in two literal tables."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from evolver.definition import CodegenSection, LoadedLoop, ValidatorSection
from evolver.errors import UsageError
from evolver.interrupts import Interrupts
from evolver.layout import Layout
from evolver.model import Codegen, StepContext, Validator
from evolver.sandbox import Need, Sandbox
from evolver.steps.agents import AgentCodegen
from evolver.steps.command import CommandCodegen, CommandValidator, Wrap, plain
from evolver.steps.presets import find_preset
from evolver.steps.python import PythonStep, check_target
from evolver.steps.retry import RetryingCodegen, Touched
from evolver.steps.runner import StepRunner


@dataclass(frozen=True, slots=True)
class Parts:
    """What the steps of a run are made from."""

    loaded: LoadedLoop
    runner: StepRunner
    sandbox: Sandbox | None = None  # `sandbox.for_loop`
    watch: Callable[[StepContext], Touched] | None = None  # tells whether an agent that crashed had changed anything

    def wrap(self, need: Need) -> Wrap:
        if need.nothing:
            return plain
        if self.sandbox is None:
            raise ValueError("a step needs a sandbox and none was made")  # a caller's bug: never go on without
        sandbox = self.sandbox
        return lambda argv, context: sandbox.around(need, argv, context)

    def codegen_need(self, home: tuple[str, ...] = ()) -> Need:
        section = self.loaded.definition.codegen
        return Need(whole=section.sandbox == "bwrap", network=section.network, home=home)


def _command_codegen(parts: Parts, section: CodegenSection) -> Codegen:
    assert section.command is not None
    wrap = parts.wrap(parts.codegen_need())
    return CommandCodegen(parts.runner, section.command, section.timeout, section.grace, section.env, wrap)


def _agent_codegen(parts: Parts, section: CodegenSection) -> Codegen:
    assert section.agent is not None
    agents: list[Codegen] = []
    for name in (section.agent, *section.fallback):
        preset = find_preset(name, parts.loaded.definition.agents)
        # The section's own arguments are meant for the agent it names; another CLI would not know them.
        args = section.args if name == section.agent else ()
        if section.sandbox:
            args = (*preset.sandbox_args, *args)
        wrap = parts.wrap(parts.codegen_need(preset.home))
        agents.append(AgentCodegen(parts.runner, preset, section.timeout, section.grace, args, section.env, wrap))
    limit = parts.loaded.definition.loop.max_time
    deadline = time.monotonic() + limit / 1000 if limit is not None else None  # steps are built as the run begins
    return RetryingCodegen(tuple(agents), section.max_wait, parts.runner.interrupts, parts.watch, deadline=deadline)


def _python_codegen(parts: Parts, section: CodegenSection) -> Codegen:
    assert section.callable is not None
    return PythonStep(
        runner=parts.runner,
        name="codegen",
        target=check_target(section.callable, "[codegen] callable"),
        directory=parts.loaded.directory,
        method="generate",
        timeout_ms=section.timeout,
        grace_ms=section.grace,
        env=section.env,
        wrap=parts.wrap(parts.codegen_need()),
    )


def _command_validator(parts: Parts, section: ValidatorSection) -> Validator:
    assert section.command is not None
    wrap = parts.wrap(Need(network=section.network))
    return CommandValidator(
        parts.runner, section.name, section.command, section.timeout, section.retries, env=section.env, wrap=wrap
    )


def _python_validator(parts: Parts, section: ValidatorSection) -> Validator:
    assert section.callable is not None
    return PythonStep(
        runner=parts.runner,
        name=section.name,
        target=check_target(section.callable, f"[[validator]] {section.name}: callable"),
        directory=parts.loaded.directory,
        method="validate",
        timeout_ms=section.timeout,
        retries=section.retries,
        env=section.env,
        wrap=parts.wrap(Need(network=section.network)),
    )


CODEGENS: Mapping[str, Callable[[Parts, CodegenSection], Codegen]] = MappingProxyType(
    {"command": _command_codegen, "callable": _python_codegen, "agent": _agent_codegen}
)
VALIDATORS: Mapping[str, Callable[[Parts, ValidatorSection], Validator]] = MappingProxyType(
    {"command": _command_validator, "callable": _python_validator}
)


def _chosen(section: CodegenSection | ValidatorSection, kinds: Mapping[str, object], where: str) -> str:
    found = [kind for kind in kinds if getattr(section, kind) is not None]
    if len(found) != 1:
        listed = ", ".join(kinds)
        raise UsageError(f"{where}: expected exactly one of {listed}, found {', '.join(found) or 'none'}", "Say how it is run.")
    return found[0]


def check(loaded: LoadedLoop) -> None:
    """Raise `UsageError` for steps that could not be built. Starts nothing, looks for nothing: for before the run."""
    runner = StepRunner(Interrupts())
    placeholder = Sandbox(program="", layout=Layout(Path(), Path(), Path(), Path()), home=Path())
    build_codegen(loaded, runner, sandbox=placeholder)
    build_validators(loaded, runner, sandbox=placeholder)


def build_codegen(
    loaded: LoadedLoop,
    runner: StepRunner,
    *,
    sandbox: Sandbox | None = None,
    watch: Callable[[StepContext], Touched] | None = None,
) -> Codegen:
    """The loop's codegen. Raise `UsageError` when the section does not name exactly one, or names an unknown agent."""
    section = loaded.definition.codegen
    kind = _chosen(section, CODEGENS, "[codegen]")
    return CODEGENS[kind](Parts(loaded, runner, sandbox, watch), section)


def build_validators(loaded: LoadedLoop, runner: StepRunner, *, sandbox: Sandbox | None = None) -> tuple[Validator, ...]:
    """The loop's validators, in its order. Raise `UsageError` for a name used twice."""
    parts = Parts(loaded, runner, sandbox)
    built: list[Validator] = []
    seen: set[str] = set()
    for section in loaded.definition.validator:
        where = f"[[validator]] {section.name}"
        if not section.name.strip() or section.name in seen:
            raise UsageError(f"{where}: expected a name of its own", "Give every validator another name.")
        seen.add(section.name)
        built.append(VALIDATORS[_chosen(section, VALIDATORS, where)](parts, section))
    return tuple(built)
