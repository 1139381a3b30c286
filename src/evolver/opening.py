"""A locked worktree with its stream: a dead run is finished, a held one refused, before anything new starts."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from evolver import clone, rebasing, recovery, requests, reserve
from evolver.carrying import carry
from evolver.definition import RollbackSection
from evolver.effects.runner import EffectRunner
from evolver.errors import BusyError, UsageError
from evolver.events.log import SEGMENT_SIZE, EventLog, Listener
from evolver.interrupts import Interrupts
from evolver.layout import Layout, locate
from evolver.lock import run_lock
from evolver.redact import Redactor
from evolver.resume_lock import read as read_lock
from evolver.settings import Settings
from evolver.settings import read as read_settings
from evolver.worktree.belonging import refuse_stranger
from evolver.worktree.workspace import Workspace

T = TypeVar("T")


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
    person: Layout | None = None  # the worktree, also where `layout` is its clone


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
        requests.clear(layout)  # at once: recovery may take long, and a `stop` asked for meanwhile is for us
        cloned = clone.find(layout, env)
        if cloned is not None:
            stack.enter_context(run_lock(cloned, note))
        places = (layout,) if cloned is None else (layout, cloned)
        for place in places:
            recovery.drop_planted(place, layout.events(settings.events))
        if refuse_held:
            for place in places:
                recovery.refuse_held(place)
        for place in places:
            refuse_stranger(place)  # before the stream is put back into a repository that is not its own
        log = EventLog.open(
            layout.events(settings.events),
            source=source_of(layout),
            mirror=layout.lifeboat,
            redactor=redactor,
            segment_size=segment_size,
            spare=lambda: any(reserve.let_go(place.reserve) for place in places),
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
            if cloned is not None and isolated and recovered is not None and not recovered.held:
                carry(layout, cloned, recovered.run_id)
            if refuse_held:
                recovery.refuse_held(place)
        yield Opened(place, settings, log, workspace, recovered, effects, cloned, layout)


def once_recovered(make: Callable[[], T], start: Path, env: Mapping[str, str]) -> tuple[T, recovery.Recovered | None]:
    """`make` plans a run. When that fails on what it reads in the worktree (`.env`, the loop, its prompt), and a run died here, an attempt
    may have written it: the dead run is finished first, without any of that, then it is made again. Raise what `make` raises."""
    try:
        return make(), None
    except UsageError as wrong:
        layout = locate(start, env)
        settings = read_settings(env, layout.root / ".env", strict=False)
        if not recovery.is_open(layout.events(settings.events)):
            raise
        try:
            with opened(layout, settings, env=env, rollback=RollbackSection(), redactor=Redactor.from_environment(env), note="run") as found:
                recovered = found.recovered
        except BusyError:
            raise wrong from None  # it is alive
        return make(), recovered
