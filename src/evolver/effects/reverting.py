"""Reverts one effect: intent into the stream, the action's own rollback once, result into the stream."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from evolver import process
from evolver.crash import crash_point
from evolver.effects import plan as plans
from evolver.effects.host import Host
from evolver.effects.journal import Entry
from evolver.effects.machine import EffectState
from evolver.effects.plan import EffectPlan
from evolver.effects.spec import Undoing, Undone, UndoneKind
from evolver.effects.telling import Teller
from evolver.layout import Layout

CWD, PRE_REF = "cwd", "pre_ref"  # in `recorded`: where it ran (relative to the worktree) and on what


@dataclass(frozen=True)
class Surroundings:
    """Where effects of this worktree run and are kept."""

    layout: Layout
    env: Mapping[str, str]
    redactor: Callable[[], process.Redactor | None] = lambda: None

    @property
    def kept(self) -> Path:
        return self.layout.state / "effects"

    def folder(self, entry: Entry) -> Path:
        return entry.folder(self.kept)

    def host(self, entry: Entry, timeout_ms: int, log: Path) -> Host:
        """As it was for the effect itself, in another process too."""
        run_id, _, number = entry.iteration_id.rpartition("/")
        told = {
            "EVOLVER_RUN_ID": run_id,
            "EVOLVER_ITERATION": number,
            "EVOLVER_ITERATION_ID": entry.iteration_id,
            "EVOLVER_PRE_REF": entry.recorded.get(PRE_REF, ""),
        }
        cwd = self.layout.root / entry.recorded.get(CWD, ".")
        # An attempt may have removed the very folder; a revert has to run all the same.
        cwd = cwd if cwd.is_dir() else self.layout.root
        folder = self.folder(entry)
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        return Host(
            layout=self.layout,
            cwd=cwd,
            env={**self.env, **told},
            scratch=folder,
            log=log,
            timeout_ms=timeout_ms,
            redactor=self.redactor,
        )

    def log(self, entry: Entry, what: str) -> Path:
        run_id, _, number = entry.iteration_id.rpartition("/")
        safe = "".join(c if c.isascii() and (c.isalnum() or c in "._-") else "_" for c in entry.effect)
        safe = safe if safe == entry.effect else f"{safe}-{entry.name_hash[:8]}"  # `a b` and `a/b` are two effects
        turn = f".{entry.turn}" if entry.turn else ""
        return self.layout.step_logs / run_id / number / f"effect-{safe}{turn}{what}.log"


def revert(
    entry: Entry, known: EffectPlan | None, where: Surroundings, teller: Teller, reason: str, exit_code: int | None = None
) -> None:
    """Take one effect back; `entry.state` tells how it went. `known` None: another process ran it, its plan was kept.

    An effect without a rollback that was running when its run died ends `failed`; one that succeeded is not touched.
    """
    if not entry.rollback_available:
        if entry.state is EffectState.RUNNING:
            teller.failed(entry, reason, exit_code)
        return
    resumed = entry.state is EffectState.ROLLING_BACK  # by a run that died
    if not resumed:
        teller.rolling_back(entry, reason, exit_code)
    crash_point("effect.rolling_back")
    begun = time.monotonic()
    undone = _undo(entry, known, where, resumed)
    crash_point("effect.undone")
    match undone.kind:
        case UndoneKind.FAILED:
            teller.needs_person(entry, undone.reason or reason, undone.ref)
        case UndoneKind.UNCHANGED if not entry.act_succeeded and not resumed:
            teller.failed(entry, f"{reason}; nothing had changed, so nothing was rolled back ({undone.reason})", exit_code)
        case _:
            ref = undone.ref or ("nothing to undo" if undone.kind is UndoneKind.UNCHANGED else entry.action)
            why = "; ".join(filter(None, (reason, undone.reason)))
            teller.rolled_back(entry, ref, why, round((time.monotonic() - begun) * 1000))


def _undo(entry: Entry, known: EffectPlan | None, where: Surroundings, resumed: bool) -> Undone:
    found = known if known is not None else plans.load(where.folder(entry), entry.definition_hash)
    if isinstance(found, str):
        return Undone(UndoneKind.FAILED, found)
    if found.rollback is None:
        return Undone(UndoneKind.FAILED, f"action {found.action} has no rollback any more")
    host = where.host(entry, found.timeout_ms, where.log(entry, ".undo"))
    return found.rollback.undo(host, Undoing(entry.recorded, found.undo, entry.act_succeeded, resumed))
