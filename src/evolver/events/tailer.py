"""A place in the stream that moves on: what `events -f` and the sinks read new lines through."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec

from evolver.events import lines
from evolver.events.envelope import Envelope
from evolver.events.reader import Cursor, Record, first_needed
from evolver.events.segments import listed
from evolver.events.types import SegmentOpened


class Place(msgspec.Struct, frozen=True, kw_only=True):
    """After which line to go on: kept by a sink between runs. `offset` is a shortcut, checked before it is believed."""

    sequence: int
    hash: str
    offset: int  # in the segment that holds the line


class Tailer:
    """An open segment, an offset, the last sequence seen. Whole lines only."""

    def __init__(self, path: Path, note: Callable[[str], None] = lambda _: None, place: Place | None = None) -> None:
        self._path = path
        self._note = note
        self._fd = -1
        self._offset = 0
        self._sequence = place.sequence if place is not None else 0
        self._log: str | None = None  # identity of the stream, when we have seen it
        if place is not None:
            self._go_to(place)

    @property
    def offset(self) -> int:
        """After the line that `new` returned last."""
        return self._offset

    def close(self) -> None:
        self._close()

    def _go_to(self, place: Place) -> None:
        """Open the segment whose bytes before `offset` end with that hash; without one, `new` searches by sequence."""
        ending = f'"hash":"{place.hash}"}}\n'.encode()
        with listed(self._path) as segments:
            for segment in reversed(segments):
                with segment.opened() as fd:
                    if place.offset >= len(ending) and os.pread(fd, len(ending), place.offset - len(ending)) == ending:
                        self._fd, self._offset = os.dup(fd), place.offset
                        return

    def new(self) -> Iterator[Record]:
        """Every whole line that came since the last call."""
        if self._fd < 0:
            yield from self._catch_up()
            return
        yield from self._rest_of_open()
        if not self._is_current():
            # Rotated (or put back): what was still written to the old file is read, then the later ones.
            yield from self._rest_of_open()
            self._close()
            yield from self._catch_up()

    def _catch_up(self) -> Iterator[Record]:
        """Everything after the last sequence seen, through all segments; then stand at the end of the open one."""
        with listed(self._path) as segments:
            for segment in segments[first_needed(segments, None, Cursor(self._sequence)) :]:
                with segment.opened() as fd:
                    self._close()
                    self._fd, self._offset = os.dup(fd), 0
                yield from self._rest_of_open()
        if self._fd >= 0 and not self._is_current():
            self._close()

    def _rest_of_open(self) -> Iterator[Record]:
        size = os.fstat(self._fd).st_size
        if size < self._offset:
            self._note(f"{self._path} was cut from {self._offset} to {size} bytes")
            self._offset = 0
        for line in lines.forwards(self._fd, self._offset, size):
            self._offset += len(line) + 1
            envelope = lines.ours(line)
            if envelope is None:
                self._note(f"{self._path}: a line that is no event was passed over")
                continue
            if envelope.name == SegmentOpened.TYPE and self._is_new_stream(envelope):
                self._note(f"{self._path} was replaced by a new stream")
                self._sequence = 0
            if envelope.sequence > self._sequence:
                self._sequence = envelope.sequence
                yield Record(line, envelope)

    def _is_new_stream(self, envelope: Envelope) -> bool:
        log, self._log = self._log, str(envelope.decoded().get("log"))
        return log is not None and log != self._log

    def _is_current(self) -> bool:
        try:
            return os.path.samestat(self._path.stat(), os.fstat(self._fd))
        except OSError:  # gone, or its folder closed to us
            return False

    def _close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
