"""Puts one run together: locate, read settings and loop, lock, open the stream, recover, refuse or go.

The order of refusals is the contract's: usage (2), busy (6), held (3), preflight (5).
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import msgspec

from evolver import clone, guard, rebasing, recovery
from evolver.context import RunContext
from evolver.definition import LoadedLoop, RollbackSection
from evolver.effects.plan import plans as effect_plans
from evolver.effects.runner import EffectRunner
from evolver.errors import PreflightError, UsageError
from evolver.events.ids import uuid7
from evolver.events.log import SEGMENT_SIZE, EventLog, Listener
from evolver.git import Git
from evolver.interrupts import Interrupts
from evolver.land import land
from evolver.layout import Layout, locate
from evolver.lock import run_lock
from evolver.loop import Run
from evolver.loopfile import load
from evolver.model import Codegen, Validator
from evolver.prompt import prompt_for
from evolver.pushes import alert_pushed, push_block_env
from evolver.redact import Redactor
from evolver.resume_lock import read as read_lock
from evolver.sandbox import for_loop
from evolver.settings import Override, Settings
from evolver.settings import read as read_settings
from evolver.sinks.registry import build_sinks
from evolver.steps.registry import build_codegen, build_validators
from evolver.steps.registry import check as check_steps
from evolver.steps.runner import StepRunner
from evolver.steps.watch import touched_since
from evolver.stream import attended
from evolver.worktree.workspace import Workspace


@dataclass(frozen=True)
class Plan:
    """Everything known before anything is locked or started."""

    layout: Layout
    settings: Settings
    loaded: LoadedLoop
    env: Mapping[str, str]
    unfilled: LoadedLoop | None = None  # the loop before its placeholders were filled


@dataclass(frozen=True)
class Opened:
    """A locked worktree with its stream, recovered."""

    layout: Layout  # where the held or dead run worked: the worktree, or the clone of an isolated run
    settings: Settings
    log: EventLog
    workspace: Workspace
    recovered: recovery.Recovered | None
    effects: Callable[[str], EffectRunner]  # of a run that is over, for compensating
    clone: Layout | None = None  # locked as well


def plan(
    start: Path,
    *,
    name: str | None = None,
    flags: Sequence[Override] = (),
    validators: tuple[str, ...] = (),
    file: bool = True,
    env: Mapping[str, str] | None = None,
) -> Plan:
    """Read settings and loop. Raise `UsageError` for what is wrong with them; touches nothing."""
    env = dict(os.environ) if env is None else dict(env)
    layout = locate(start, env)
    if (person := clone.person_of(layout, env)) is not None:
        raise PreflightError(f"{layout.root} is the clone that evolver works in", f"Run it in {person.root}.")
    settings = read_settings(env, layout.root / ".env")
    check_events(layout, settings)
    unfilled = load(name, layout.root, settings, flags, validators, file=file)
    loaded = with_python(unfilled)
    check_steps(loaded)
    prompt_for(loaded)
    effect_plans(loaded.definition.effect)
    return Plan(layout, settings, loaded, env, unfilled)


def check_events(layout: Layout, settings: Settings) -> None:
    """The stream may not lie in the worktree: an attempt, or its rollback, would take it along."""
    if settings.events is None:
        return
    path = Path(os.path.realpath(layout.events(settings.events)))
    if path.is_relative_to(layout.root) and not path.is_relative_to(layout.git_dir):
        raise UsageError(f"EVOLVER_EVENTS: {path} lies inside the worktree", "Name a path outside it, or leave it empty.")


def with_python(loaded: LoadedLoop) -> LoadedLoop:
    """`{python}` and `{loop_dir}` in a list command stand for the running interpreter and the loop file's folder."""

    def filled(command: str | tuple[str, ...] | None) -> str | tuple[str, ...] | None:
        if not isinstance(command, tuple):
            return command
        return tuple(w.replace("{python}", sys.executable).replace("{loop_dir}", str(loaded.directory)) for w in command)

    definition = loaded.definition
    change = msgspec.structs.replace
    definition = change(
        definition,
        codegen=change(definition.codegen, command=filled(definition.codegen.command)),
        validator=tuple(change(v, command=filled(v.command)) for v in definition.validator),
        effect=tuple(change(e, run=filled(e.run), undo=filled(e.undo)) for e in definition.effect),
    )
    return change(loaded, definition=definition)


def source_of(layout: Layout) -> str:
    """The CloudEvents `source` of this worktree's stream."""
    return f"evolver:{layout.root.as_uri().removeprefix('file:')}"


@contextmanager
def opened(
    layout: Layout,
    settings: Settings,
    *,
    env: Mapping[str, str],
    rollback: RollbackSection,
    scope: str = ".",
    redactor: Redactor | None = None,
    segment_size: int = SEGMENT_SIZE,
    listeners: Sequence[Listener] = (),
    refuse_held: bool = True,
    note: str = "",
) -> Iterator[Opened]:
    """Lock the worktree, open its stream, finish a dead run. Raise `BusyError`, `HeldError`, `LogError`, `NotRestoredError`."""
    with ExitStack() as stack:
        stack.enter_context(run_lock(layout, note))
        cloned = clone.find(layout, env)
        if cloned is not None:
            stack.enter_context(run_lock(cloned, note))
        places = (layout,) if cloned is None else (layout, cloned)
        if refuse_held:
            for place in places:
                recovery.refuse_held(place)
        log = EventLog.open(
            layout.events(settings.events),
            source=source_of(layout),
            mirror=layout.lifeboat,
            redactor=redactor,
            segment_size=segment_size,
        )
        stack.callback(log.close)
        log.listeners.extend(listeners)
        held = next((place for place in places if read_lock(place) is not None), None)
        dead = recovery.died(log) if held is None else None
        isolated = dead is not None and dead.isolation == "clone"
        place = held or (cloned if cloned is not None and isolated else layout)

        def at(place: Layout) -> Workspace:
            return Workspace.open(place, rollback=rollback, scope=scope, max_vault=settings.max_vault, env=env)

        workspace = at(place)
        recovered = None

        def effects(run_id: str) -> EffectRunner:
            return EffectRunner(
                (),
                emitter=log.bind(run_id),
                layout=place,
                interrupts=Interrupts(),
                approve="never",
                env=env,
                events=log.path,
                redactor=lambda: redactor.stream() if redactor is not None else None,
            )

        if held is None:
            gone = isolated and cloned is None
            recovered = recovery.recover(place, log, None if gone else workspace, rollback=rollback, effects=effects)
            if cloned is not None:
                rebasing.recover(cloned, at(cloned))
            if refuse_held:
                recovery.refuse_held(place)
        yield Opened(place, settings, log, workspace, recovered, effects, cloned)


@contextmanager
def prepared(
    planned: Plan,
    interrupts: Interrupts,
    *,
    breaker: bool = True,
    listeners: Sequence[Listener] = (),
    on_output: Callable[[bytes], None] | None = None,
    codegen: Codegen | None = None,
    validators: tuple[Validator, ...] | None = None,
    late: Callable[[str], None] = lambda words: None,
) -> Iterator[Run]:
    """A run that is ready to `execute`. `codegen` and `validators` replace the definition's (Python API)."""
    loaded, layout, person = planned.loaded, planned.layout, None
    definition = loaded.definition
    redactor = Redactor.from_environment(planned.env, definition.redact)
    run_id = uuid7()
    with ExitStack() as stack:
        opening = opened(
            layout,
            planned.settings,
            env=planned.env,
            rollback=definition.rollback,
            scope=definition.loop.scope,
            redactor=redactor,
            segment_size=definition.audit.segment_size,
            listeners=listeners,
            note=f"run {run_id}",
        )
        found = stack.enter_context(opening)
        workspace, landing = found.workspace, None
        if definition.loop.isolation == "clone":
            person, layout = layout, clone.ensure(layout, planned.env)
            if found.clone is None:
                stack.enter_context(run_lock(layout, f"run {run_id}"))
            loaded, record = isolated_loop(planned, layout, run_id)
            workspace = Workspace.open(
                layout,
                rollback=definition.rollback,
                scope=definition.loop.scope,
                max_vault=planned.settings.max_vault,
                env=planned.env,
            )
            landing = partial(land, person, layout, record, found.log.bind(run_id))
        scratch = Path(tempfile.mkdtemp(prefix=f"evolver-{run_id}-"))
        stack.callback(shutil.rmtree, scratch, ignore_errors=True)
        git = Git.at(layout.root, layout.git_dir)
        extra = push_block_env(git, planned.env) if definition.guard.push == "block" else {}
        runner = StepRunner(interrupts, redactor, planned.env, extra, frozenset({"EVOLVER_SINK_WEBHOOK_SECRET"}))
        stack.enter_context(
            attended(
                found.log,
                person or layout,
                run_id=run_id,
                sinks=build_sinks(definition, planned.settings, planned.env, directory=loaded.directory, layout=person or layout),
                sign_key=loaded.directory / Path(definition.audit.sign_key).expanduser() if definition.audit.sign_key else None,
                late=late,
            )
        )
        sandbox = for_loop(loaded, layout, planned.env)
        prompt = prompt_for(planned.loaded)  # the file as the person has it, committed or not
        context = RunContext(
            run_id=run_id,
            loaded=loaded,
            layout=layout,
            person=person,
            workspace=workspace,
            events=found.log.bind(run_id),
            interrupts=interrupts,
            codegen=codegen
            or build_codegen(loaded, runner, sandbox=sandbox, watch=lambda step: touched_since(layout.root, layout.git_dir)),
            validators=validators if validators is not None else build_validators(loaded, runner, sandbox=sandbox),
            render_prompt=prompt.for_iteration if prompt is not None else None,
            scratch=scratch,
            protected=guard.protected_globs(loaded, layout.root, layout.prefix),
            effects=_effects(planned, layout, found, run_id, interrupts, redactor),
            on_output=on_output,
            restore_log=found.log.ensure_present,
            alert_pushed=lambda iteration_id, number, attempt: alert_pushed(
                git, found.log.bind(run_id), iteration_id, number, attempt, ls_remote=definition.alerts.ls_remote
            ),
        )
        yield Run(context, found.log, breaker=breaker, recovered=found.recovered, land=landing)


def isolated_loop(planned: Plan, cloned: Layout, run_id: str) -> tuple[LoadedLoop, clone.Unlanded]:
    """Bring the clone up to date; the loop as seen from there: its files are the clone's, where the clone has them."""
    loaded = planned.loaded
    record = clone.refresh(
        planned.layout,
        cloned,
        loaded.definition.loop,
        name=loaded.name,
        run_id=run_id,
        definition=loaded.digest,
        directory=str(clone.seen_from(planned.layout, cloned, loaded.directory)),
    )
    source = loaded.source
    return (
        with_python(
            msgspec.structs.replace(
                planned.unfilled or loaded,
                directory=clone.seen_from(planned.layout, cloned, loaded.directory),
                source=clone.seen_from(planned.layout, cloned, source) if source is not None else None,
            )
        ),
        record,
    )


def _effects(planned: Plan, layout: Layout, found: Opened, run_id: str, interrupts: Interrupts, redactor: Redactor) -> EffectRunner | None:
    definition = planned.loaded.definition
    if not definition.effect:
        return None
    return EffectRunner(
        definition.effect,
        emitter=found.log.bind(run_id),
        layout=layout,
        interrupts=interrupts,
        approve=definition.effects.approve,
        env=planned.env,
        loop=planned.loaded.name,
        events=found.log.path,
        redactor=redactor.stream,
    )
