"""Puts one run together, from a plan and a locked worktree.

The order of refusals is the contract's: usage (2), busy (6), held (3), preflight (5).
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path

import msgspec

from evolver import clone, cloning
from evolver.carrying import carry
from evolver.context import RunContext
from evolver.definition import LoadedLoop
from evolver.effects.runner import EffectRunner
from evolver.events.ids import uuid7
from evolver.events.log import Listener
from evolver.git import Git
from evolver.interrupts import Interrupts
from evolver.judges import package_judges, protected_globs
from evolver.land import Landed, Refused, land, landed_by_hand
from evolver.layout import Layout
from evolver.lock import run_lock
from evolver.loop import Run
from evolver.model import Codegen, Validator
from evolver.opening import Opened, opened
from evolver.outside import temporary_base
from evolver.planning import Plan, with_python
from evolver.prompt import prompt_for
from evolver.pushes import alert_pushed, push_block_env
from evolver.redact import Redactor
from evolver.sandbox import Sandbox, for_loop
from evolver.sinks.registry import build_sinks, secret_variables
from evolver.steps.agents import refuse_missing
from evolver.steps.registry import build_codegen, build_validators
from evolver.steps.runner import StepRunner
from evolver.steps.watch import touched_since
from evolver.stream import attended
from evolver.worktree.workspace import Workspace

Judges = Callable[[LoadedLoop, StepRunner, Sandbox | None], tuple[Validator, ...]]


@contextmanager
def prepared(
    planned: Plan,
    interrupts: Interrupts,
    *,
    breaker: bool = True,
    listeners: Sequence[Listener] = (),
    on_output: Callable[[bytes], None] | None = None,
    codegen: Codegen | None = None,
    judges: Judges | None = None,
    late: Callable[[str], None] = lambda words: None,
) -> Iterator[Run]:
    """A run that is ready to `execute`. `codegen` and `judges` replace the definition's (Python API)."""
    loaded, layout, person = planned.loaded, planned.layout, None
    definition = loaded.definition
    in_dotenv = {name: text for name, (text, _) in planned.settings.values.items()}  # what signs webhooks may stand there alone
    redactor = Redactor.for_loop({**in_dotenv, **planned.env}, definition)
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
            person, layout = layout, cloning.ensure(layout, planned.env)
            if found.clone is None:
                stack.enter_context(run_lock(layout, f"run {run_id}"))
            loaded, record = isolated_loop(planned, layout, run_id, found)
            workspace = Workspace.open(
                layout,
                rollback=definition.rollback,
                scope=definition.loop.scope,
                max_vault=planned.settings.max_vault,
                env=planned.env,
            )
            landing = partial(come_home, person, layout, record, found)
        scratch = Path(tempfile.mkdtemp(prefix=f"evolver-{run_id}-", dir=temporary_base(person or layout)))
        stack.callback(shutil.rmtree, scratch, ignore_errors=True)
        git = Git.at(layout.root, layout.git_dir)
        extra = push_block_env(git, planned.env) if definition.guard.push == "block" else {}
        runner = StepRunner(interrupts, redactor, planned.env, extra, secret_variables(definition))
        stack.enter_context(
            attended(
                found.log,
                person or layout,
                run_id=run_id,
                sinks=build_sinks(
                    definition, planned.settings, planned.env, directory=loaded.directory, layout=person or layout
                ),
                sign_key=loaded.directory / Path(definition.audit.sign_key).expanduser() if definition.audit.sign_key else None,
                late=late,
            )
        )
        if codegen is None:
            refuse_missing(definition.codegen, definition.agents, planned.env, layout.root)
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
            validators=judges(loaded, runner, sandbox)
            if judges is not None
            else build_validators(loaded, runner, sandbox=sandbox),
            render_prompt=prompt.for_iteration if prompt is not None else None,
            scratch=scratch,
            protected=protected_globs(loaded, layout.root, layout.prefix),
            packages=package_judges(loaded, layout.root, layout.prefix),
            effects=_effects(planned, layout, found, run_id, interrupts, redactor),
            on_output=on_output,
            restore_log=found.log.ensure_present,
            alert_pushed=lambda iteration_id, number, attempt: alert_pushed(
                git, found.log.bind(run_id), iteration_id, number, attempt, ls_remote=definition.alerts.ls_remote
            ),
        )
        yield Run(context, found.log, breaker=breaker, recovered=found.recovered, land=landing)


def come_home(person: Layout, cloned: Layout, record: clone.Unlanded, found: Opened) -> Landed | Refused | None:
    """An isolated run is over: what it kept and what was accepted go to the person's repository."""
    carry(person, cloned, record.run_id)
    return land(person, cloned, record, found.log.bind(record.run_id))


def isolated_loop(planned: Plan, cloned: Layout, run_id: str, found: Opened) -> tuple[LoadedLoop, clone.Unlanded]:
    """Bring the clone up to date; the loop as seen from there: its files are the clone's, where the clone has them."""
    loaded = planned.loaded
    record = cloning.refresh(
        planned.layout,
        cloned,
        loaded.definition.loop,
        name=loaded.name,
        run_id=run_id,
        definition=loaded.digest,
        directory=str(clone.seen_from(planned.layout, cloned, loaded.directory)),
        landed=lambda old, tip: landed_by_hand(planned.layout, old, tip, found.log.bind(old.run_id)),
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


def _effects(
    planned: Plan, layout: Layout, found: Opened, run_id: str, interrupts: Interrupts, redactor: Redactor
) -> EffectRunner | None:
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
