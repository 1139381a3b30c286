"""The Python API: `from evolver import Loop, run, resume, read_events`. Synchronous, typed, the same run as the command line's.

What goes wrong with an attempt is in the result; an `EvolverError` means that the loop could not do its work.
"""

from __future__ import annotations

import os
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from evolver.errors import UsageError
from evolver.events.envelope import Envelope
from evolver.model import Codegen, Outcome, StepContext, StepResult, Validator

if TYPE_CHECKING:
    from evolver.assemble import Judges
    from evolver.definition import LoadedLoop
    from evolver.planning import Plan
    from evolver.sandbox import Sandbox
    from evolver.steps.runner import StepRunner

Step = str | Sequence[str] | Callable[[StepContext], object]
"""A command line for `sh -c`, an argv, or a callable. A callable that returns None or True passes, False or an exception fails, a
number is an exit code (125: cannot tell)."""


@dataclass(frozen=True, kw_only=True)
class Loop:
    """A loop without a file. `options` are further keys of the loop file by dotted name: `{"guard.protected": ["tests/**"]}`."""

    codegen: Step
    validators: Sequence[Step] | Mapping[str, Step] = ()
    goal: str = ""
    max_iters: int = 20
    max_time: str | None = None  # such as "8h"
    rollback: Literal["hard", "stash", "none"] = "hard"
    until: str = ""
    name: str = "python"
    options: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Iteration:
    """One attempt, as it ended."""

    number: int
    outcome: Outcome
    reason: str
    commit: str | None
    duration_ms: int


@dataclass(frozen=True, slots=True)
class Result:
    """How a run ended. `exit_code` is what `evolver run` would have exited with."""

    run_id: str
    exit_code: int
    reason: str  # the stop condition's name
    detail: str
    head: str | None
    iterations: tuple[Iteration, ...]
    best_score: str | None = None
    landed: bool | None = None  # of an isolated run: whether the branch has its commits; None: there were none to land
    not_landed: str = ""  # why not; `evolver land` tries again

    @property
    def accepted(self) -> int:
        return sum(iteration.outcome is Outcome.ACCEPTED for iteration in self.iterations)

    @property
    def rolled_back(self) -> int:
        return sum(iteration.outcome is Outcome.ROLLED_BACK for iteration in self.iterations)


@dataclass(frozen=True, slots=True)
class Resumed:
    """How `resume` ended: nothing, unchanged, kept, rolled_back, undecided or not_restored."""

    action: str
    exit_code: int
    commit: str | None = None
    stash: str | None = None
    kept: tuple[str, ...] = ()  # refs of what was changed since the loop stopped, the attempt with it


def run(
    loop: Loop | str | None = None,
    directory: str | os.PathLike[str] = ".",
    *,
    on_event: Callable[[Envelope], None] | None = None,
    breaker: bool = True,
) -> Result:
    """Run a loop in the worktree of `directory`: a `Loop`, a loop's name, or None for the worktree's own.

    In the main thread Ctrl-C and SIGTERM end the run as they end `evolver run`. A step's exception fails the attempt. What
    `on_event` raises, and a `KeyboardInterrupt`, comes out once the attempt is undone; where `on_event` raises again meanwhile, the
    next run finishes this one, as after a crash. Raise `EvolverError`.
    """
    from evolver.assemble import prepared
    from evolver.interrupts import Interrupts
    from evolver.opening import once_recovered

    (planned, codegen, validators), _ = once_recovered(lambda: _planned(loop, Path(directory)), Path(directory), os.environ)
    listener = (lambda envelope, line: on_event(envelope)) if on_event is not None else None
    with Interrupts() as interrupts:
        judges = _judges(validators)
        with prepared(
            planned, interrupts, breaker=breaker, listeners=[listener] if listener else [], codegen=codegen, judges=judges
        ) as ready:
            report = ready.execute()
            path = ready.log.path
    from evolver.land import Refused

    refused = report.landed if isinstance(report.landed, Refused) else None
    return Result(
        run_id=report.run_id,
        exit_code=int(report.exit_code),
        reason=report.stop.name,
        detail=report.stop.detail,
        head=report.head,
        iterations=_iterations(path, report.run_id),
        best_score=str(report.state.best) if report.state.best is not None else None,
        landed=None if report.landed is None else refused is None,
        not_landed=refused.reason if refused is not None else "",
    )


def resume(
    directory: str | os.PathLike[str] = ".",
    *,
    keep: bool = False,
    rollback: Literal["hard", "stash"] | None = None,
    note: str = "",
) -> Resumed:
    """Decide about a held tree, as `evolver resume` does. Raise `EvolverError`; refused inside a run's own steps."""
    from evolver.definition import RollbackSection
    from evolver.interrupts import Interrupts
    from evolver.layout import locate
    from evolver.model import RollbackMode
    from evolver.opening import opened
    from evolver.redact import Redactor
    from evolver.resuming import Resume, refuse_agents
    from evolver.settings import read as read_settings

    refuse_agents(os.environ)
    if keep and rollback is not None:
        raise UsageError("keep and rollback exclude each other", "Choose one.")
    layout = locate(Path(directory))
    settings = read_settings(os.environ, layout.root / ".env")
    redactor = Redactor.from_environment(os.environ)
    with (
        Interrupts(),
        opened(
            layout, settings, env=os.environ, rollback=RollbackSection(), redactor=redactor, refuse_held=False, note="resume"
        ) as found,
    ):
        deciding = Resume(found)
        held = deciding.look()
        if held is None:
            return Resumed("nothing", 0)
        if not held.attempt.changed and not held.effects:
            decision = deciding.unchanged(held, note)
        elif keep:
            decision = deciding.keep(held, note)
        elif rollback is not None:
            decision = deciding.roll_back(held, RollbackMode(rollback), note)
        else:
            decision = deciding.leave(held)
    return Resumed(decision.action, int(decision.exit_code), decision.commit, decision.stash, decision.kept)


def read_events(
    directory: str | os.PathLike[str] = ".",
    *,
    run: str | None = None,
    types: Sequence[str] = (),
    since: str | None = None,
) -> Iterator[Envelope]:
    """The worktree's events, oldest first. `types` are globs, with or without the prefix; `since` is a UTC time as in events."""
    from evolver.events.reader import read
    from evolver.layout import locate
    from evolver.settings import read as read_settings

    layout = locate(Path(directory))
    path = layout.events(read_settings(os.environ, layout.root / ".env").events)
    return read(path, run=run, types=types, since=since)


# ---------------------------------------------------------------- from a Loop to a plan


def _planned(loop: Loop | str | None, directory: Path) -> tuple[Plan, Codegen | None, dict[str, Step]]:
    """The plan, the codegen that replaces the definition's, and the validators by name (empty: the definition's)."""
    from evolver.planning import plan
    from evolver.settings import Override

    if not isinstance(loop, Loop):
        return plan(directory, name=loop), None, {}
    named = _named(loop.validators)
    keys: dict[str, object] = {
        f"codegen.{'callable' if callable(loop.codegen) else 'command'}": _written(loop.codegen),
        "loop.goal": loop.goal,
        "loop.max_iters": loop.max_iters,
        "loop.until": loop.until,
        "rollback.mode": loop.rollback,
        "validator": [
            {"name": name, "callable" if callable(step) else "command": _written(step)} for name, step in named.items()
        ],
        **({"loop.max_time": loop.max_time} if loop.max_time is not None else {}),
        **loop.options,
    }
    flags = [Override(key, value, f"Loop({key})") for key, value in keys.items()]
    planned = plan(directory, flags=flags, file=False)
    codegen = _InProcess("codegen", loop.codegen) if callable(loop.codegen) else None
    return planned, codegen, named


def _named(steps: Sequence[Step] | Mapping[str, Step]) -> dict[str, Step]:
    if isinstance(steps, Mapping):
        return dict(steps)
    if isinstance(steps, str):
        raise UsageError("Loop(validators): expected a list of steps, got a text", 'Write validators=["pytest -q"].')
    named: dict[str, Step] = {}
    for number, step in enumerate(steps, 1):
        name = getattr(step, "__name__", "").strip("<>") if callable(step) else ""
        named[name if name and name not in named else f"validate-{number}"] = step
    return named


def _written(step: Step) -> object:
    """What stands for a step in the definition, and so in its hash."""
    if isinstance(step, str):
        return step
    if callable(step):
        module = getattr(step, "__module__", None) or "python"
        name = getattr(step, "__qualname__", type(step).__name__)
        return f"{module}:{name}".replace("<", "").replace(">", "")
    return list(step)


def _judges(named: dict[str, Step]) -> Judges | None:
    """What builds the validators, when a callable is among them; None: the definition's own will do."""
    if not any(callable(step) for step in named.values()):
        return None

    def build(loaded: LoadedLoop, runner: StepRunner, sandbox: Sandbox | None) -> tuple[Validator, ...]:
        import msgspec

        from evolver.steps.registry import build_validators

        commands = tuple(v for v in loaded.definition.validator if v.command is not None)
        definition = msgspec.structs.replace(loaded.definition, validator=commands)
        built = {
            v.name: v for v in build_validators(msgspec.structs.replace(loaded, definition=definition), runner, sandbox=sandbox)
        }
        return tuple(built[name] if not callable(step) else _InProcess(name, step) for name, step in named.items())

    return build


def _iterations(path: Path, run_id: str) -> tuple[Iteration, ...]:
    from evolver.events.reader import read
    from evolver.ui.timeline import Timeline

    found = Timeline(read(path, run=run_id)).run(run_id)
    return tuple(
        Iteration(i.number, Outcome(i.judged), i.reason, i.commit, i.duration_ms)
        for i in (found.iterations if found is not None else ())
        if i.judged in tuple(Outcome)
    )


class _InProcess:
    """A callable as a step. What it raises is a failure of the attempt, told with its traceback: it is the caller's code."""

    def __init__(self, name: str, function: Callable[[StepContext], object]) -> None:
        from evolver.steps.python import InProcess

        self.name = name
        self._step = InProcess(name, function)

    def generate(self, context: StepContext) -> StepResult:
        return self._guarded(self._step.generate, context)

    def validate(self, context: StepContext) -> StepResult:
        return self._guarded(self._step.validate, context)

    def _guarded(self, call: Callable[[StepContext], StepResult], context: StepContext) -> StepResult:
        try:
            return call(context)
        except KeyboardInterrupt:
            raise  # the iteration is undone first
        except BaseException:  # noqa: BLE001 - foreign code: its exception is a verdict, also one that ends a task or a thread
            text = traceback.format_exc()
            log = context.log_dir / f"{self.name}.log"
            log.write_text(text, encoding="utf-8", errors="replace")
            return StepResult(name=self.name, exit_code=1, log=str(log), log_bytes=log.stat().st_size, tail=text)
