"""What the event stream says of an iteration's effects: enough to compensate them in another process."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

import msgspec

from evolver.effects.machine import EffectState


class Record(Protocol):
    """An envelope of the stream, as far as it is needed here."""

    @property
    def name(self) -> str: ...

    @property
    def data(self) -> msgspec.Raw: ...


@dataclass
class Entry:
    """One effect of one iteration."""

    iteration_id: str
    effect: str
    action: str
    definition_hash: str
    rollback_available: bool
    state: EffectState
    recorded: Mapping[str, str] = field(default_factory=dict)
    act_succeeded: bool = False
    begun: bool = False  # a revert was begun, by a process that died or by this one
    told: bool = False  # a person knows: the run was held after it
    outcome: str = ""  # why it is in its state, in words
    turn: int = 0  # counts from 0: a repair round runs it once more

    @property
    def name_hash(self) -> str:
        return hashlib.sha256(self.effect.encode("utf-8", "backslashreplace")).hexdigest()

    def folder(self, root: Path) -> Path:
        """Where its plan and what it keeps aside are. The name is hashed: it may hold anything."""
        return folder_of(root, self.iteration_id) / f"{self.name_hash[:16]}-{self.turn}"


def folder_of(root: Path, iteration_id: str) -> Path:
    run, _, number = iteration_id.rpartition("/")
    return root / run / number


class _Facts(msgspec.Struct, frozen=True):
    iteration_id: str = ""
    effect: str = ""
    action: str = ""
    definition_hash: str = ""
    rollback_available: bool = False
    recorded: dict[str, str] = {}
    to: str = ""


_DECODER = msgspec.json.Decoder(_Facts)


def entries(backwards: Iterable[Record], iteration_id: str) -> list[Entry]:
    """The effects of one iteration in the order in which they started, from the stream read from its end.

    Stops at that iteration's start (or its run's), so it costs the same however long the stream is.
    """
    seen: list[tuple[str, _Facts]] = []
    for record in backwards:
        if record.name == "run.started":
            break
        if not record.name.startswith(("effect.", "iteration.started", "iteration.accepted", "run.held")):
            continue
        try:
            facts = _DECODER.decode(record.data)
        except msgspec.DecodeError:
            continue
        if facts.iteration_id != iteration_id:
            continue
        if record.name == "iteration.started":
            break
        if record.name == "iteration.accepted":
            return []  # they belong to what was accepted
        seen.append((record.name, facts))
    return _fold(reversed(seen))


def _fold(forwards: Iterable[tuple[str, _Facts]]) -> list[Entry]:
    found: list[Entry] = []
    newest: dict[str, Entry] = {}
    for name, facts in forwards:
        if name == "run.held":
            for entry in found:
                entry.told = entry.state is EffectState.NEEDS_PERSON
            continue
        try:
            state = EffectState(facts.to)
        except ValueError:  # a newer version's state
            continue
        known = newest.get(facts.effect)
        if name == "effect.started":
            entry = Entry(
                iteration_id=facts.iteration_id,
                effect=facts.effect,
                action=facts.action,
                definition_hash=facts.definition_hash,
                rollback_available=facts.rollback_available,
                state=state,
                recorded=facts.recorded,
                turn=known.turn + 1 if known is not None else 0,
            )
            newest[facts.effect] = entry
            found.append(entry)
        elif known is not None:
            known.state = state
            known.act_succeeded = known.act_succeeded or state is EffectState.SUCCEEDED
            known.begun = known.begun or state is EffectState.ROLLING_BACK
    return found
