"""The open segment: one line appended, a new segment when it is full. The log's lock is held by the caller."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

import msgspec

from evolver._version import __version__
from evolver.errors import LogError, LogFullError
from evolver.events import envelope as envelopes
from evolver.events import files, lines, paths
from evolver.events import head as heads
from evolver.events.envelope import Envelope
from evolver.events.head import Head, Stamp
from evolver.events.ids import uuid7
from evolver.events.mirror import Mirror
from evolver.events.types import Event, SegmentClosed, SegmentOpened
from evolver.redact import Redactor
from evolver.reserve import FULL

Listener = Callable[[Envelope, bytes], None]
T = TypeVar("T")


class Genesis(msgspec.Struct, frozen=True, kw_only=True):
    """What the first line of a segment says of the definition in force."""

    definition_hash: str | None = None
    validators: tuple[str, ...] = ()  # sha256 of each validator: its argv and its scripts
    pre_ref: str | None = None
    version: str = __version__


@dataclass
class SegmentWriter:
    """Where the log ends (`head`), and the file that is appended to (`fd`)."""

    path: Path
    source: str
    mirror: Mirror | None
    redactor: Redactor | None
    segment_size: int
    genesis: Genesis
    fd: int = -1
    head: Head | None = None  # None: no segment yet, `make_room` makes it
    listeners: list[Listener] = field(default_factory=list)
    spare: Callable[[], bool] = lambda: False  # gives the reserve back when the disk is full; False: there was none

    def take(self, head: Head) -> None:
        """Append from now on to the open segment, which ends at `head`."""
        self.close()
        self.fd = files.open_segment(self.path)
        self.head = msgspec.structs.replace(head, stamp=Stamp.of(os.fstat(self.fd)), folder=self.path.parent.stat().st_ino)

    def close(self) -> None:
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1

    def append(self, event: Event, run_id: str | None = None, iteration: int | None = None) -> Envelope:
        head = self.head
        assert head is not None  # make_room made one
        built, line = envelopes.build(
            event,
            source=self.source,
            sequence=head.sequence + 1,
            prevhash=head.hash,
            run_id=run_id,
            iteration=iteration,
            redactor=self.redactor,
        )
        after = self._with_room(lambda: files.append(self.fd, line, self.path))
        if self.mirror is not None:
            self.mirror.appended(line)
        # The size that we expect, not the one that is: bytes that slipped in beside ours must be noticed next time.
        stamp = Stamp.of(after)._replace(size=head.stamp.size + len(line))
        self.remember(msgspec.structs.replace(head, sequence=built.sequence, hash=built.hash, stamp=stamp))
        for listener in self.listeners:
            listener(built, line)
        return built

    def _with_room(self, write: Callable[[], T]) -> T:
        """Do it, once more with the reserve given back when the disk is full. Either nothing of it was written, or it is
        written in place."""
        try:
            return write()
        except (LogFullError, OSError) as error:
            if (isinstance(error, OSError) and error.errno not in FULL) or not self.spare():
                raise
        return write()

    def remember(self, head: Head) -> None:
        """Write `head` beside the log and in the lifeboat."""
        try:
            self.head = msgspec.structs.replace(head, folder=self.path.parent.stat().st_ino)
            known = self.head
            self._with_room(lambda: heads.write(paths.head_path(self.path), known))
        except OSError as error:
            if self.mirror is not None and not paths.reachable(self.path):
                self.head = head
                self.mirror.write_head(self.head)
                return
            hint = "Make room on the disk, or its folder writable."
            raise LogError(f"{paths.head_path(self.path)}: {error.strerror}", hint) from error
        if self.mirror is not None:
            self.mirror.write_head(self.head)

    def make_room(self) -> None:
        """The open segment, made when there is none, rotated when it is full."""
        head = self.head
        if head is None:
            self.open_segment(Head(sequence=0, hash="0" * 64, log=uuid7(), segment=0, first=1, stamp=Stamp(0, 0, 0, 0)), None)
        elif self.fd < 0:
            self.open_segment(head, paths.closed_path(self.path, head.segment).name)
        elif head.stamp.size >= self.segment_size and head.sequence > head.first:
            count = head.sequence - head.first + 1
            last = lines.tail(self.fd).last
            if last is None or b'"type":"dev.evolver.segment.closed"' not in last:  # killed between this line and the rename
                self.append(SegmentClosed(segment=head.segment, count=count, bytes=head.stamp.size, last_hash=head.hash))
            closed = paths.closed_path(self.path, head.segment)
            self._set_aside(closed)
            assert self.head is not None
            self.open_segment(self.head, closed.name)

    def _set_aside(self, target: Path) -> None:
        try:
            files.make_way(target)
            self.path.rename(target)
        except OSError as error:
            message = f"{self.path} cannot be renamed to {target.name}: {error.strerror}"
            raise LogError(message, "Make its folder writable.") from error
        self.close()

    def open_segment(self, head: Head, previous: str | None) -> None:
        """Start the segment after `head`. Its first line is complete before the file has its name."""
        event = SegmentOpened(
            log=head.log,
            segment=head.segment + 1,
            previous_segment=previous,
            previous_hash=head.hash if previous else None,
            version=self.genesis.version,
            definition_hash=self.genesis.definition_hash,
            validators=self.genesis.validators,
            pre_ref=self.genesis.pre_ref,
        )
        built, line = envelopes.build(
            event,
            source=self.source,
            sequence=head.sequence + 1,
            prevhash=head.hash,
            run_id=None,
            iteration=None,
            redactor=self.redactor,
        )
        self.close()
        self.fd, after = self._with_room(lambda: files.publish(self.path, line))
        if self.mirror is not None:
            self.mirror.rotated(self.path.with_name(previous)) if previous else self.mirror.attach()
        self.remember(
            msgspec.structs.replace(
                head,
                sequence=built.sequence,
                hash=built.hash,
                segment=head.segment + 1,
                first=built.sequence,
                stamp=Stamp.of(after),
            )
        )
        for listener in self.listeners:
            listener(built, line)
