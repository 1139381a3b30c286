"""Filters of `evolver events` that can match nothing: told, instead of printing nothing. Known to us, or else in the stream."""

from __future__ import annotations

from difflib import get_close_matches
from fnmatch import fnmatchcase
from pathlib import Path
from typing import get_args

from evolver.effects.machine import EffectState
from evolver.errors import UsageError
from evolver.events import types as ev
from evolver.events.reader import Filter, records
from evolver.model import Judgement

# Where a run's and an iteration's transitions lead.
STATES = (
    "running", "paused", "held", "resumed", "recovered", "finished", "codegen", "accepting", "accepted", "no_change",
    "rolling_back", "rolled_back", "rollback_failed", "interrupted",
)  # fmt: skip


def check(path: Path, wanted: Filter) -> None:
    """Raise `UsageError` for a filter that no event can pass. The stream, where a newer version may have written, is only
    read for a value that this version does not know."""
    if wanted.since is not None and wanted.until is not None and wanted.since > wanted.until:
        raise UsageError("--since is later than --until, so no event can match", "Exchange them, or leave one out.")
    names = tuple(ev.all_types())
    for glob in wanted.types:
        name = glob.removeprefix(ev.PREFIX)
        full = tuple(ev.PREFIX + known for known in names)
        if any(fnmatchcase(known, name) for known in names) or any(fnmatchcase(known, glob) for known in full):
            continue
        if not _occurs(path, Filter(types=(glob,))):
            raise UsageError(f"--type {glob}: no such event type", _types_hint(name, names))
    status = wanted.status
    judgements, severities = tuple(map(str, Judgement)), get_args(ev.Severity)
    states = tuple(dict.fromkeys((*STATES, *map(str, EffectState))))
    if status is not None and status not in (*states, *judgements, *severities) and not _occurs(path, Filter(status=status)):
        raise UsageError(
            f"--status {status}: no event has it",
            f"A state ({', '.join(states)}), a judgement ({', '.join(judgements)}), or a severity ({', '.join(severities)}).",
        )


def _occurs(path: Path, wanted: Filter) -> bool:
    return any(True for _ in records(path, wanted))


def _types_hint(name: str, names: tuple[str, ...]) -> str:
    """The nearest names; `rollback`, a group's name alone, is the most frequent slip."""
    groups = tuple(dict.fromkeys(known.partition(".")[0] for known in names))
    if name in groups:
        return f"Did you mean '{name}.*'?"
    close = get_close_matches(name, names, n=3, cutoff=0.6)
    if close:
        return f"Did you mean {' or '.join(close)}?"
    return f"Globs are fine: {', '.join(f'{group}.*' for group in groups)}. `evolver help events` tells more."
