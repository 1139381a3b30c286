"""What a sink is: something that takes events, one after the other, and says whether it took them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import ClassVar, Protocol

from evolver.events.envelope import Envelope
from evolver.events.reader import Record
from evolver.events.types import PREFIX

SEVERITIES = ("debug", "info", "warning", "error", "alert")


class SinkError(Exception):
    """The event was not taken. Caught by the forwarder, never by the loop."""

    def __init__(self, message: str, *, retry_after_ms: int | None = None) -> None:
        super().__init__(message)
        self.retry_after_ms = retry_after_ms


class RefusedError(SinkError):
    """This event will never be taken, so the next one is tried: a gap."""


class GoneError(SinkError):
    """It takes nothing more in this run."""


class EventSink(Protocol):
    """Extension point. `deliver` returns when the other side has the event, or raises `SinkError`."""

    def deliver(self, record: Record) -> None: ...

    def close(self) -> None: ...


@dataclass(frozen=True, slots=True)
class Configured:
    """One sink of a loop: how to open it, and which events it is for."""

    name: str  # of its cursor file, in events and messages; never holds a secret
    open: Callable[[], EventSink]
    types: tuple[str, ...] = ()
    severity: str = "debug"
    drain_ms: int = 5000
    replay: bool = True  # False: what happened while it was away is of no use to it
    tries: int = 0  # how often an event is tried before it is dropped; 0: until it is taken

    _RANK: ClassVar[dict[str, int]] = {name: rank for rank, name in enumerate(SEVERITIES)}

    def wants(self, envelope: Envelope) -> bool:
        if self._RANK.get(envelope.severity, 1) < self._RANK[self.severity]:
            return False
        return not self.types or any(
            fnmatchcase(envelope.name, glob.removeprefix(PREFIX)) or fnmatchcase(envelope.type, glob) for glob in self.types
        )
