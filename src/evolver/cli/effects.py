"""`evolver effects`: what may be run outside the worktree and what reverts it; a person's approval."""

from __future__ import annotations

import os
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer

from evolver.errors import EvolverError, HeldError, UsageError

if TYPE_CHECKING:
    from evolver.effects.plan import EffectPlan
    from evolver.planning import Plan

LIST_EPILOG = """Examples:
  evolver effects list          every action there is
  evolver effects list deploy   and the effects of loop `deploy`
"""
APPROVE_EPILOG = """Examples:
  evolver effects approve   the effects of the worktree's own loop
  evolver effects approve deploy --effect migrate
"""
FOOTNOTE = "rollback yes: evolver reverts the action by itself when it fails, or when its iteration is rejected later. no: it never does."

Where = Annotated[Path, typer.Option("-C", help="Work in this folder's worktree.", show_default=False)]
LoopName = Annotated[str | None, typer.Argument(metavar="LOOP", help="A loop, named as for `run`.", show_default=False)]


class ActionRow(msgspec.Struct, frozen=True, kw_only=True):
    """One registered action, as `--json` prints it."""

    name: str
    family: str
    risk: str
    mutating: bool
    rollback_available: bool
    rollback: str  # what reverts it; empty: nothing
    summary: str
    note: str


class EffectRow(msgspec.Struct, frozen=True, kw_only=True):
    """One effect of a loop, as `--json` prints it. `approval`: granted | needed | not needed | loop file | never."""

    name: str
    when: str
    action: str
    risk: str
    rollback_available: bool
    approval: str
    definition_hash: str
    argv: tuple[str, ...]
    undo: tuple[str, ...]


def register(app: typer.Typer) -> None:
    effects = typer.Typer(no_args_is_help=True, help="Changes outside the worktree: what reverts them, who approved.")
    effects.command("list", epilog=LIST_EPILOG)(list_)
    effects.command("approve", epilog=APPROVE_EPILOG)(approve)
    app.add_typer(effects, name="effects")


def list_(
    loop: LoopName = None,
    directory: Where = Path("."),
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object.")] = False,
) -> None:
    """List every action and whether it is reverted. With a loop, its effects and their approval."""
    actions = _actions()
    effects = _effects_of(loop, directory)
    if as_json:
        typer.echo(msgspec.json.encode({"actions": actions, "effects": effects}).decode())
        return
    _table(
        ("action", "risk", "mutating", "rollback", "reverted by", "what it does"),
        [(a.name, a.risk, _yes(a.mutating), _yes(a.rollback_available), a.rollback or "nothing", a.summary) for a in actions],
    )
    typer.echo(FOOTNOTE)
    for family, note in dict.fromkeys((a.family, a.note) for a in actions if a.note):
        typer.echo(f"{family}: {note}")
    if effects:
        typer.echo("")
        _table(
            ("effect", "when", "action", "risk", "rollback", "approval", "command"),
            [
                (e.name, e.when, e.action, e.risk, _yes(e.rollback_available), e.approval, _shown(e.argv, e.undo))
                for e in effects
            ],
        )


def _actions() -> list[ActionRow]:
    from evolver.effects.registry import REGISTRY

    return [
        ActionRow(
            name=spec.name,
            family=spec.family,
            risk=spec.risk,
            mutating=spec.mutating,
            rollback_available=spec.rollback_available,
            rollback=spec.rollback.ref if spec.rollback is not None else "",
            summary=spec.summary,
            note=spec.note,
        )
        for spec in REGISTRY.values()
    ]


def _effects_of(loop: str | None, directory: Path) -> list[EffectRow]:
    """The loop's effects. Without a name the worktree's own loop, when there is one that can be read."""
    from evolver.planning import plan

    try:
        planned = plan(directory, name=loop)
    except EvolverError as error:
        if loop is not None:
            raise
        if (directory / "loops").is_dir():
            typer.echo(f"evolver: {error.message}", err=True)
        return []
    return [
        EffectRow(
            name=effect.name,
            when=effect.when,
            action=effect.action,
            risk=effect.risk,
            rollback_available=effect.rollback_available,
            approval=approval,
            definition_hash=effect.definition_hash,
            argv=effect.argv,
            undo=effect.undo,
        )
        for effect, approval in _approvals(planned)
    ]


def _approvals(planned: Plan) -> list[tuple[EffectPlan, str]]:
    from evolver.effects.approval import unapproved
    from evolver.effects.plan import plans

    effects = plans(planned.loaded.definition.effect)
    policy = planned.loaded.definition.effects.approve
    missing = unapproved(effects, policy, planned.layout.events(planned.settings.events))
    words = {"ask": "granted", "listed": "loop file", "never": "never"}
    return [
        (e, "not needed" if not e.risky else "needed" if e in missing and policy != "never" else words[policy]) for e in effects
    ]


def approve(
    loop: LoopName = None,
    only: Annotated[
        list[str] | None, typer.Option("--effect", help="Only this effect; may be given again.", show_default=False)
    ] = None,
    directory: Where = Path("."),
) -> None:
    """Approve a loop's risky effects as they stand now. Any change of one asks again."""
    from evolver.planning import plan

    if os.environ.get("EVOLVER_RUN_ID"):
        raise HeldError(
            "`evolver effects approve` was called from inside a run (EVOLVER_RUN_ID is set)",
            "Only a person may approve; call it from your own shell.",
        )
    planned = plan(directory, name=loop)
    found = _approvals(planned)
    unknown = sorted(set(only or ()) - {effect.name for effect, _ in found})
    if unknown:
        have = ", ".join(effect.name for effect, _ in found) or "none"
        raise UsageError(f"loop {planned.loaded.name!r} has no effect {unknown[0]!r}", f"It has: {have}.")
    if planned.loaded.definition.effects.approve == "never":
        raise UsageError('[effects] approve = "never": nothing can be approved', 'Set it to "ask" in the loop file first.')
    chosen = [(effect, state) for effect, state in found if not only or effect.name in only]
    if any(state == "needed" for _, state in chosen):
        _grant(planned, [effect for effect, state in chosen if state == "needed"])
    for effect, state in chosen:
        if state == "needed":
            typer.echo(f"approved   {effect.name}: {_described(effect)}")
        else:
            typer.echo(f"{state:10} {effect.name}: {_described(effect)}")
    if not found:
        typer.echo(f"loop {planned.loaded.name!r} has no effects")


def _grant(planned: Plan, effects: Sequence[EffectPlan]) -> None:
    """While no run is at work: its agent can unset EVOLVER_RUN_ID, but not let go of the run's lock."""
    from evolver.effects.approval import event
    from evolver.events.log import EventLog
    from evolver.lock import run_lock
    from evolver.opening import source_of
    from evolver.redact import Redactor

    layout = planned.layout
    layout.state.mkdir(parents=True, exist_ok=True, mode=0o700)
    with run_lock(layout, "effects approve"), EventLog.open(
        layout.events(planned.settings.events),
        source=source_of(layout),
        mirror=layout.lifeboat,
        redactor=Redactor.for_loop(planned.env, planned.loaded.definition),
        segment_size=planned.loaded.definition.audit.segment_size,
    ) as log:
        for effect in effects:
            log.emit(event(effect, _person()))
        if not layout.resume_lock.exists():
            log.prune_mirror()  # no run is active: the lifeboat keeps nothing but the head


def _person() -> str:
    import getpass

    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a container's user may have no name
        return f"uid {os.getuid()}"


def _described(effect: EffectPlan) -> str:
    return f"{effect.action}, risk {effect.risk}, {effect.promise}: {_shown(effect.argv, effect.undo)}"


def _shown(argv: tuple[str, ...], undo: tuple[str, ...]) -> str:
    text = shlex.join(argv) + (f"  undo: {shlex.join(undo)}" if undo else "")
    return text.encode("utf-8", "backslashreplace").decode().replace("\n", "\\n")


def _yes(value: bool) -> str:
    return "yes" if value else "no"


def _table(head: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> None:
    every = [head, *rows]
    widths = [max(len(row[n]) for row in every) for n in range(len(head))]
    for row in every:
        typer.echo("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())
