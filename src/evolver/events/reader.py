"""Reading the stream: across its segments, forwards with a filter, or backwards from the end.

Readers take no lock and pass by what they cannot read; `verify` is who judges. Fields and types of a newer version pass
through untouched.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import NamedTuple

import msgspec

from evolver.errors import UsageError
from evolver.events import lines
from evolver.events.envelope import Envelope
from evolver.events.segments import Segment, listed
from evolver.events.types import PREFIX

Skipped = Callable[[Path, int], None]  # told of each line that is no envelope: file and line number


class Record(NamedTuple):
    """A line as it stands in the file, and what it says."""

    line: bytes  # without newline
    envelope: Envelope


class Filter(msgspec.Struct, frozen=True, kw_only=True):
    """Which events are wanted. Empty fields want everything."""

    run: str | None = None
    types: tuple[str, ...] = ()  # globs, with or without the prefix
    since: str | None = None  # UTC, as in the envelope: the text sorts
    until: str | None = None
    status: str | None = None  # where a transition leads, a step's judgement, or a severity
    iteration: int | None = None

    def wants(self, envelope: Envelope) -> bool:
        return (
            (self.run is None or envelope.runid == self.run)
            and (self.iteration is None or envelope.iteration == self.iteration)
            and (self.since is None or envelope.time >= self.since)
            and (self.until is None or envelope.time <= self.until)
            and (not self.types or any(_matches(envelope, glob) for glob in self.types))
            and (self.status is None or self.status in _statuses(envelope))
        )


def _matches(envelope: Envelope, glob: str) -> bool:
    return fnmatchcase(envelope.name, glob.removeprefix(PREFIX)) or fnmatchcase(envelope.type, glob)


class _Status(msgspec.Struct):
    to: str | None = None
    judgement: str | None = None


def _statuses(envelope: Envelope) -> tuple[str | None, ...]:
    try:
        data = msgspec.json.decode(envelope.data, type=_Status)
    except msgspec.DecodeError:
        return (envelope.severity,)
    return (data.to, data.judgement, envelope.severity)


class Cursor(msgspec.Struct, frozen=True):
    """A place in the stream to go on from: `SEQUENCE:HASH`, the hash shortened. The number alone will do."""

    sequence: int
    hash: str = ""

    @classmethod
    def parse(cls, text: str) -> Cursor:
        """Raise `UsageError`."""
        number, _, start = text.partition(":")
        if not (number.isascii() and number.isdigit()):
            raise UsageError(f"--after {text}: no cursor", "Give what `evolver events --after` printed, or a sequence number.")
        return cls(int(number), start)

    @classmethod
    def of(cls, envelope: Envelope) -> Cursor:
        return cls(envelope.sequence, envelope.hash[:16])

    def __str__(self) -> str:
        return f"{self.sequence}:{self.hash}" if self.hash else str(self.sequence)

    def is_past(self, envelope: Envelope) -> bool:
        """Whether the event comes after the cursor. Raise `UsageError` when the cursor is of another stream."""
        if envelope.sequence == self.sequence and self.hash and not envelope.hash.startswith(self.hash):
            raise UsageError(
                f"the cursor {self} belongs to another event stream",
                f"Here, sequence {self.sequence} has hash {envelope.hash[:16]}.",
            )
        return envelope.sequence > self.sequence


def read(
    path: Path,
    *,
    run: str | None = None,
    types: Sequence[str] = (),
    since: str | None = None,
    until: str | None = None,
    status: str | None = None,
    after: Cursor | None = None,
) -> Iterator[Envelope]:
    """The wanted events of every segment, oldest first."""
    wanted = Filter(run=run, types=tuple(types), since=since, until=until, status=status)
    for record in records(path, wanted, after=after):
        yield record.envelope


def records(path: Path, wanted: Filter, *, after: Cursor | None = None, skipped: Skipped | None = None) -> Iterator[Record]:
    """Like `read`, with each event's line."""
    with listed(path) as segments:
        for segment in segments[first_needed(segments, wanted.since, after) :]:
            with segment.opened() as fd:
                for number, line in enumerate(lines.forwards(fd, 0, os.fstat(fd).st_size), 1):
                    envelope = lines.ours(line)
                    if envelope is None:
                        if skipped is not None:
                            skipped(segment.path, number)
                    elif (after is None or after.is_past(envelope)) and wanted.wants(envelope):
                        yield Record(line, envelope)


def first_needed(segments: Sequence[Segment], since: str | None, after: Cursor | None) -> int:
    """Segments that end before what is wanted are not opened: the first line of the next one tells."""
    if since is None and after is None:
        return 0
    for index in range(len(segments) - 1, 0, -1):
        with segments[index].opened() as fd:
            first = lines.first_line(fd)
        envelope = lines.ours(first) if first is not None else None
        if envelope is None:
            continue
        if (after is not None and envelope.sequence <= after.sequence) or (since is not None and envelope.time < since):
            return index
    return 0


def read_backwards(path: Path) -> Iterator[Envelope]:
    """Every event from the newest to the oldest. What it costs depends on how far the caller goes, not on the log."""
    for record in records_backwards(path):
        yield record.envelope


def records_backwards(path: Path) -> Iterator[Record]:
    with listed(path) as segments:
        for segment in reversed(segments):
            with segment.opened() as fd:
                for line in lines.backwards(fd, os.fstat(fd).st_size):
                    envelope = lines.ours(line)
                    if envelope is not None:
                        yield Record(line, envelope)
