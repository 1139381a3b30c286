"""Moves an effect along the transition table, and tells the stream of each edge. Nothing else changes an entry's state."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypedDict

from evolver.effects.journal import Entry
from evolver.effects.machine import EffectState, move
from evolver.events.types import EffectFailed, EffectFinished, EffectRolledBack, EffectRollingBack, EffectStarted, Emitter


class _Edge(TypedDict):
    from_: str
    to: str
    iteration_id: str
    effect: str
    action: str
    definition_hash: str
    rollback_available: bool


def _edge(entry: Entry, to: EffectState) -> _Edge:
    return _Edge(
        from_=str(entry.state),
        to=str(move(entry.state, to)),
        iteration_id=entry.iteration_id,
        effect=entry.effect,
        action=entry.action,
        definition_hash=entry.definition_hash,
        rollback_available=entry.rollback_available,
    )


@dataclass(frozen=True)
class Teller:
    """The state in memory changes only after the event is on disk."""

    emitter: Emitter

    def _tell(
        self, entry: Entry, event: EffectStarted | EffectFinished | EffectRollingBack | EffectRolledBack | EffectFailed
    ) -> None:
        self.emitter.emit(event, iteration=int(entry.iteration_id.rpartition("/")[2]))
        entry.state = EffectState(event.to)

    def started(self, entry: Entry) -> None:
        self._tell(entry, EffectStarted(**_edge(entry, EffectState.RUNNING), recorded=dict(entry.recorded)))

    def succeeded(self, entry: Entry, duration_ms: int) -> None:
        self._tell(entry, EffectFinished(**_edge(entry, EffectState.SUCCEEDED), exit_code=0, duration_ms=duration_ms))
        entry.act_succeeded = True

    def failed(self, entry: Entry, reason: str, exit_code: int | None = None) -> None:
        entry.outcome = reason
        self._tell(entry, EffectFailed(**_edge(entry, EffectState.FAILED), reason=reason, exit_code=exit_code))

    def rolling_back(self, entry: Entry, reason: str, exit_code: int | None = None) -> None:
        self._tell(entry, EffectRollingBack(**_edge(entry, EffectState.ROLLING_BACK), reason=reason, exit_code=exit_code))

    def rolled_back(self, entry: Entry, ref: str, reason: str, duration_ms: int) -> None:
        entry.outcome = reason
        edge = _edge(entry, EffectState.ROLLED_BACK)
        self._tell(entry, EffectRolledBack(**edge, rollback_ref=ref, reason=reason, duration_ms=duration_ms))

    def needs_person(self, entry: Entry, reason: str, ref: str) -> None:
        entry.outcome = reason
        self._tell(entry, EffectFailed(**_edge(entry, EffectState.NEEDS_PERSON), reason=reason, rollback_ref=ref or None))
