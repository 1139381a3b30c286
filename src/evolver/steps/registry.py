"""From a loop's sections to its steps. What can be made stands in two literal tables."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

from evolver.definition import CodegenSection, LoadedLoop, ValidatorSection
from evolver.errors import UsageError
from evolver.model import Codegen, Validator
from evolver.steps.command import CommandCodegen, CommandValidator, Wrap, plain
from evolver.steps.python import PythonStep, check_target
from evolver.steps.runner import StepRunner

Guarded = Callable[[bool, bool], Wrap]  # (whole sandbox, network) -> what goes around the argv


def _no_sandbox(sandboxed: bool, network: bool) -> Wrap:
    return plain


def _command_codegen(loaded: LoadedLoop, section: CodegenSection, runner: StepRunner, wrap: Wrap) -> Codegen:
    assert section.command is not None
    return CommandCodegen(runner, section.command, section.timeout, section.grace, section.env, wrap)


def _python_codegen(loaded: LoadedLoop, section: CodegenSection, runner: StepRunner, wrap: Wrap) -> Codegen:
    assert section.callable is not None
    return PythonStep(
        runner=runner,
        name="codegen",
        target=check_target(section.callable, "[codegen] callable"),
        directory=loaded.directory,
        method="generate",
        timeout_ms=section.timeout,
        grace_ms=section.grace,
        env=section.env,
        wrap=wrap,
    )


def _command_validator(loaded: LoadedLoop, section: ValidatorSection, runner: StepRunner, wrap: Wrap) -> Validator:
    assert section.command is not None
    return CommandValidator(runner, section.name, section.command, section.timeout, section.retries, env=section.env, wrap=wrap)


def _python_validator(loaded: LoadedLoop, section: ValidatorSection, runner: StepRunner, wrap: Wrap) -> Validator:
    assert section.callable is not None
    return PythonStep(
        runner=runner,
        name=section.name,
        target=check_target(section.callable, f"[[validator]] {section.name}: callable"),
        directory=loaded.directory,
        method="validate",
        timeout_ms=section.timeout,
        retries=section.retries,
        env=section.env,
        wrap=wrap,
    )


CODEGENS: Mapping[str, Callable[[LoadedLoop, CodegenSection, StepRunner, Wrap], Codegen]] = MappingProxyType(
    {"command": _command_codegen, "callable": _python_codegen}
)
VALIDATORS: Mapping[str, Callable[[LoadedLoop, ValidatorSection, StepRunner, Wrap], Validator]] = MappingProxyType(
    {"command": _command_validator, "callable": _python_validator}
)


def _chosen(section: CodegenSection | ValidatorSection, kinds: Mapping[str, object], where: str) -> str:
    found = [kind for kind in kinds if getattr(section, kind) is not None]
    if len(found) != 1:
        listed = ", ".join(kinds)
        raise UsageError(f"{where}: expected exactly one of {listed}, found {', '.join(found) or 'none'}", "Say how it is run.")
    return found[0]


def build_codegen(loaded: LoadedLoop, runner: StepRunner, *, guarded: Guarded = _no_sandbox) -> Codegen:
    """The loop's codegen. Raise `UsageError` when the section does not name exactly one."""
    section = loaded.definition.codegen
    kind = _chosen(section, CODEGENS, "[codegen]")
    return CODEGENS[kind](loaded, section, runner, guarded(section.sandbox == "bwrap", section.network))


def build_validators(loaded: LoadedLoop, runner: StepRunner, *, guarded: Guarded = _no_sandbox) -> tuple[Validator, ...]:
    """The loop's validators, in its order. Raise `UsageError` for a name used twice."""
    built: list[Validator] = []
    seen: set[str] = set()
    for section in loaded.definition.validator:
        where = f"[[validator]] {section.name}"
        if not section.name.strip() or section.name in seen:
            raise UsageError(f"{where}: expected a name of its own", "Give every validator another name.")
        seen.add(section.name)
        kind = _chosen(section, VALIDATORS, where)
        built.append(VALIDATORS[kind](loaded, section, runner, guarded(False, section.network)))
    return tuple(built)
