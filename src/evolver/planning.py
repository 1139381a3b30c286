"""Everything that can be known, and found wrong, before anything is locked or started: where, settings, loop."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from evolver import clone
from evolver.definition import LoadedLoop
from evolver.effects.plan import plans as effect_plans
from evolver.errors import PreflightError, UsageError
from evolver.layout import Layout, locate
from evolver.loopfile import load
from evolver.outside import within
from evolver.prompt import prompt_for
from evolver.settings import Override, Settings
from evolver.settings import read as read_settings
from evolver.steps.registry import check as check_steps


@dataclass(frozen=True)
class Plan:
    """Everything known before anything is locked or started."""

    layout: Layout
    settings: Settings
    loaded: LoadedLoop
    env: Mapping[str, str]
    unfilled: LoadedLoop | None = None  # the loop before its placeholders were filled


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
    check_state(layout)
    unfilled = load(name, layout.root, settings, flags, validators, file=file)
    loaded = with_python(unfilled)
    check_scope(layout, loaded)
    check_sinks(layout, loaded, settings)
    check_steps(loaded)
    prompt_for(loaded)
    effect_plans(loaded.definition.effect)
    return Plan(layout, settings, loaded, env, unfilled)


def check_events(layout: Layout, settings: Settings) -> None:
    """The stream may not lie in the worktree: an attempt, or its rollback, would take it along."""
    if settings.events is None:
        return
    path = Path(settings.events).expanduser()  # as it is named: a link on the way that lies in the worktree can be turned elsewhere
    if within(path, layout.root) and not Path(os.path.realpath(path)).is_relative_to(layout.git_dir):
        raise UsageError(f"EVOLVER_EVENTS: {path} lies inside the worktree", "Name a path outside it, or leave it empty.")


def check_sinks(layout: Layout, loaded: LoadedLoop, settings: Settings) -> None:
    """Nor may a copy of it, nor anything of git's: what was delivered would be taken back, or the repository be written over."""
    sinks = [s for s in loaded.definition.sink if s.kind == "file" and s.path]
    given = [(f"sink {s.name or s.path}: path", loaded.directory / Path(s.path).expanduser()) for s in sinks]
    if named := settings.text("EVOLVER_SINK_FILE"):
        given.append(("EVOLVER_SINK_FILE", Path(named).expanduser()))
    for source, path in given:
        if within(path, layout.root, layout.git_dir, layout.common_dir):
            raise UsageError(
                f"{source}: {path} lies inside the worktree or its git folder", "Name a path outside it; one in a loop file is relative to that."
            )


def check_state(layout: Layout) -> None:
    """Nor may the lifeboat: it holds what a lost worktree or `.git` is built again from. A home that is a worktree is such a case."""
    if within(layout.lifeboat, layout.root, layout.git_dir, layout.common_dir):
        raise UsageError(
            f"the state folder {layout.lifeboat.parent} lies inside the worktree or its git folder",
            "Set EVOLVER_STATE_DIR (or XDG_STATE_HOME) to a folder outside it.",
        )


def check_scope(layout: Layout, loaded: LoadedLoop) -> None:
    """Steps run there: a folder that is not there fails each of them, and one that a link puts elsewhere is no part of the
    worktree, so nothing would be undone in it."""
    scope = loaded.definition.loop.scope
    folder = Path(os.path.realpath(layout.root / scope))
    if not folder.is_dir() or not folder.is_relative_to(os.path.realpath(layout.root)):
        raise UsageError(f"loop.scope: {scope!r} is no folder of {layout.root}", "Name one that exists, relative to the worktree's top.")


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
