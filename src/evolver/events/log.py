"""The append-only log: one lock, one write, one sync a line; never a repair of what is in the middle.

    log = EventLog.open(path, source="…", mirror=lifeboat)
    log.emit(RunStarted(…), run_id=run_id)

Every fault is a `LogError` (exit 8). After one that reports tampering the log goes on in a fresh segment, so that what
the loop still has to do (roll back, end the run) is recorded as well.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import msgspec

from evolver._version import __version__
from evolver.errors import LogError
from evolver.events import envelope as envelopes
from evolver.events import head as heads
from evolver.events import integrity, lines, paths, startup
from evolver.events.envelope import Envelope
from evolver.events.files import append, locked, open_segment, publish
from evolver.events.head import Head, Stamp
from evolver.events.ids import uuid7
from evolver.events.integrity import State
from evolver.events.mirror import Mirror
from evolver.events.types import AlertLogTampered, Event, LogRecovered, SegmentClosed, SegmentOpened
from evolver.redact import Redactor

SEGMENT_SIZE = 64 << 20
Listener = Callable[[Envelope, bytes], None]


class Genesis(msgspec.Struct, frozen=True, kw_only=True):
    """What the first line of a segment says of the definition in force."""

    definition_hash: str | None = None
    validators: tuple[str, ...] = ()  # sha256 of each validator: its argv and its scripts
    pre_ref: str | None = None
    version: str = __version__


@dataclass(frozen=True, slots=True)
class Bound:
    """An emitter that fills in the run's id."""

    log: EventLog
    run_id: str

    def emit(self, event: Event, *, iteration: int | None = None) -> Envelope:
        return self.log.emit(event, run_id=self.run_id, iteration=iteration)


class EventLog:
    """Opened with `EventLog.open`. Safe to use from several threads, and beside other processes."""

    def __init__(
        self, path: Path, *, source: str, mirror: Mirror | None, redactor: Redactor | None, segment_size: int, genesis: Genesis
    ) -> None:
        self.path = path
        self._source = source
        self._mirror = mirror
        self._redactor = redactor
        self._segment_size = segment_size
        self.genesis = genesis  # may be set anew when a run's definition is known; used by the next segment
        self._thread = threading.RLock()
        self._fd = -1
        self._head: Head | None = None  # None: no segment yet, the first `emit` makes it
        self.listeners: list[Listener] = []  # called with each line after it is on disk, in order, the lock held
        self.after: list[Callable[[], None]] = []  # called after each `emit`, the lock free: these may emit themselves
        self._in_after = False
        self._notes: list[LogRecovered] = []  # of the opening, not written yet

    @classmethod
    def open(
        cls,
        path: Path,
        *,
        source: str,
        mirror: Path | None = None,
        redactor: Redactor | None = None,
        segment_size: int = SEGMENT_SIZE,
        genesis: Genesis | None = None,
    ) -> EventLog:
        """Open or prepare the log at `path`; a new one is made by the first `emit`. The cost does not grow with the log.

        `mirror` is the lifeboat's folder. A torn last line is set aside (`log.recovered`). Raise `LogError`: the file is
        not ours (untouched), was written by a newer evolver (untouched), or does not end where we last left it (reported
        in a fresh segment; the next `open` goes on there).
        """
        path = Path(os.path.realpath(path))
        log = cls(
            path,
            source=source,
            mirror=Mirror(mirror, path) if mirror is not None else None,
            redactor=redactor,
            segment_size=segment_size,
            genesis=genesis or Genesis(),
        )
        try:
            with log._locked():
                log._begin(startup.find_end(path, log._mirror))
        except BaseException:
            log.close()
            raise
        return log

    @property
    def head(self) -> Head | None:
        """Where the log ended when we last looked."""
        return self._head

    def bind(self, run_id: str) -> Bound:
        return Bound(self, run_id)

    def emit(self, event: Event, *, run_id: str | None = None, iteration: int | None = None) -> Envelope:
        """Append one event and sync it; the envelope as written. Raise `LogError`."""
        try:
            written = self._emit_lost(event, run_id, iteration) if self._adrift() else self._emit(event, run_id, iteration)
        except (OSError, LogError):
            if not self._adrift():  # an agent takes `.git` away just now
                raise
            written = self._emit_lost(event, run_id, iteration)
        if not self._in_after:
            self._in_after = True
            try:
                for call in self.after:
                    call()
            finally:
                self._in_after = False
        return written

    def _emit(self, event: Event, run_id: str | None, iteration: int | None) -> Envelope:
        with self._locked():
            self._reconcile()
            self._tell_notes()
            self._make_room()
            return self._append(event, run_id, iteration)

    def _adrift(self) -> bool:
        """The git folder itself is gone (an agent's doing), and ours to make again it is not: the lifeboat still has the log."""
        return self._mirror is not None and self._fd >= 0 and self._head is not None and not self.path.parent.parent.is_dir()

    def _emit_lost(self, event: Event, run_id: str | None, iteration: int | None) -> Envelope:
        """Append to the open file, which the lifeboat names too. `ensure_present` puts it back once there is a git folder."""
        assert self._mirror is not None
        with self._thread, locked(self._mirror.stream):
            return self._append(event, run_id, iteration)

    def ensure_present(self) -> None:
        """Put the log back when it went away with `.git`; raise `LogError` when it was tampered with."""
        with self._locked():
            self._reconcile()

    def prune_mirror(self) -> None:
        """Forget the lifeboat's copy, its head excepted."""
        if self._mirror is not None:
            self._mirror.prune()

    def close(self) -> None:
        with self._thread:
            if self._fd >= 0:
                os.close(self._fd)
                self._fd = -1

    def __enter__(self) -> EventLog:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # ------------------------------------------------------------ one append

    @contextmanager
    def _locked(self) -> Iterator[None]:
        with self._thread, locked(self.path):
            yield

    def _append(self, event: Event, run_id: str | None = None, iteration: int | None = None) -> Envelope:
        head = self._head
        assert head is not None  # _make_room made one
        built, line = envelopes.build(
            event,
            source=self._source,
            sequence=head.sequence + 1,
            prevhash=head.hash,
            run_id=run_id,
            iteration=iteration,
            redactor=self._redactor,
        )
        after = append(self._fd, line, self.path)
        if self._mirror is not None:
            self._mirror.appended(line)
        # The size that we expect, not the one that is: bytes that slipped in beside ours must be noticed next time.
        stamp = Stamp.of(after)._replace(size=head.stamp.size + len(line))
        self._remember(msgspec.structs.replace(head, sequence=built.sequence, hash=built.hash, stamp=stamp))
        for listener in self.listeners:
            listener(built, line)
        return built

    def _remember(self, head: Head) -> None:
        """Write `head` beside the log and in the lifeboat."""
        try:
            self._head = msgspec.structs.replace(head, folder=self.path.parent.stat().st_ino)
            heads.write(paths.head_path(self.path), self._head)
        except OSError as error:
            if self._mirror is not None and not self.path.parent.parent.is_dir():
                self._head = head
                self._mirror.write_head(self._head)
                return
            hint = "Make room on the disk, or its folder writable."
            raise LogError(f"{paths.head_path(self.path)}: {error.strerror}", hint) from error
        if self._mirror is not None:
            self._mirror.write_head(self._head)

    def _make_room(self) -> None:
        """The open segment, made when there is none, rotated when it is full."""
        head = self._head
        if head is None:
            self._open_segment(Head(sequence=0, hash="0" * 64, log=uuid7(), segment=0, first=1, stamp=Stamp(0, 0, 0, 0)), None)
        elif self._fd < 0:
            self._open_segment(head, paths.closed_path(self.path, head.segment).name)
        elif head.stamp.size >= self._segment_size and head.sequence > head.first:
            count = head.sequence - head.first + 1
            last = lines.tail(self._fd).last
            if last is None or b'"type":"dev.evolver.segment.closed"' not in last:  # killed between this line and the rename
                self._append(SegmentClosed(segment=head.segment, count=count, bytes=head.stamp.size, last_hash=head.hash))
            closed = paths.closed_path(self.path, head.segment)
            self._set_aside(closed)
            assert self._head is not None
            self._open_segment(self._head, closed.name)

    def _set_aside(self, target: Path) -> None:
        try:
            self.path.rename(target)
        except OSError as error:
            message = f"{self.path} cannot be renamed to {target.name}: {error.strerror}"
            raise LogError(message, "Make its folder writable.") from error
        self.close()

    def _open_segment(self, head: Head, previous: str | None) -> None:
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
            source=self._source,
            sequence=head.sequence + 1,
            prevhash=head.hash,
            run_id=None,
            iteration=None,
            redactor=self._redactor,
        )
        self.close()
        self._fd, after = publish(self.path, line)
        if self._mirror is not None:
            self._mirror.rotated(self.path.with_name(previous)) if previous else self._mirror.attach()
        self._remember(
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

    # ------------------------------------------------------------ what happened meanwhile

    def _begin(self, found: startup.End) -> None:
        """Take over what `startup` found of the log on disk."""
        if found.tampered is not None:
            self._head = found.tampered.head
            self._report(found.tampered)
        self._head = found.head
        self._notes = list(dict.fromkeys([*self._notes, *found.recovered]))
        if found.head is None:
            return  # the first `emit` makes the log, and tells the notes
        if found.open:
            self._fd = open_segment(self.path)
        if self._mirror is not None:
            self._mirror.attach()
        if found.open:
            self._head = msgspec.structs.replace(
                found.head, stamp=Stamp.of(os.fstat(self._fd)), folder=self.path.parent.stat().st_ino
            )
        self._tell_notes()

    def _tell_notes(self) -> None:
        while self._notes:
            self._make_room()
            self._append(self._notes.pop(0))

    def _reconcile(self) -> None:
        """Compare the log with what we wrote last, and adopt, put back or report."""
        if self._head is None:
            # Another process may have made the log since we looked.
            self._begin(startup.find_end(self.path, self._mirror))
            return
        if self._fd < 0:
            return
        found = integrity.examine(self.path, self._fd, self._head)
        if found.state is State.SAME:
            if found.file is not None:
                self._follow_rotation(found)
            self._head = found.head
            if found.torn:
                self._begin(startup.find_end(self.path, self._mirror))
            return
        moved = found.state is State.LOST or self.path.parent.stat().st_ino != self._head.folder
        if moved and found.state is not State.TAMPERED and integrity.holds(self._fd, self._head):
            self._put_back(found)
            return
        self._report(found)

    def _follow_rotation(self, found: integrity.Finding) -> None:
        self.close()
        if found.file == self.path:
            self._fd = open_segment(self.path)

    def _put_back(self, found: integrity.Finding) -> None:
        """The folder went away with the log in it, and our copy leads to the last hash: back with it."""
        assert self._head is not None
        startup.put_back(self.path, self._mirror, self._fd)
        self.close()
        self._begin(startup.find_end(self.path, self._mirror))
        self._append(LogRecovered(torn_bytes=0, kept_as="", reason=f"the log was {found.kind} with its folder; put back"))

    def _report(self, found: integrity.Finding) -> None:
        """Name the break in a fresh segment and raise. The damaged file is kept as a closed segment, unrepaired."""
        expected = found.head
        broken = startup.keep_broken(self.path, expected, self._fd)
        number = max([expected.segment, *(n for n, _ in paths.closed_segments(self.path))])
        self._open_segment(msgspec.structs.replace(expected, segment=number), broken.name if broken is not None else None)
        alert = AlertLogTampered(
            file=str(broken or self.path),
            kind=found.kind,
            expected_sequence=expected.sequence,
            expected_hash=expected.hash,
            found=found.found,
        )
        self._append(alert)
        raise LogError(
            f"the event stream was tampered with ({found.kind}): {found.found}; expected sequence {expected.sequence}",
            f"What is left of it is kept as {broken or 'nothing'}; `evolver audit verify` names the first bad line.",
        )
