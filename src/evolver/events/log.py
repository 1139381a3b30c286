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

from evolver.errors import LogError
from evolver.events import evidence, integrity, paths, startup
from evolver.events.envelope import Envelope
from evolver.events.files import locked, open_segment
from evolver.events.head import Head
from evolver.events.integrity import State
from evolver.events.mirror import Mirror
from evolver.events.types import AlertLogTampered, Event, LogRecovered
from evolver.events.writer import Genesis, Listener, SegmentWriter
from evolver.redact import Redactor

__all__ = ["SEGMENT_SIZE", "Bound", "EventLog", "Genesis", "Listener"]

SEGMENT_SIZE = 64 << 20


@dataclass(frozen=True, slots=True)
class Bound:
    """An emitter that fills in the run's id."""

    log: EventLog
    run_id: str

    def emit(self, event: Event, *, iteration: int | None = None) -> Envelope:
        return self.log.emit(event, run_id=self.run_id, iteration=iteration)


class EventLog:
    """Opened with `EventLog.open`. Safe to use from several threads, and beside other processes."""

    def __init__(self, writer: SegmentWriter) -> None:
        self.path = writer.path
        self._writer = writer
        self._mirror = writer.mirror
        self._thread = threading.RLock()
        # Called with each line after it is on disk, in order, the lock held.
        self.listeners: list[Listener] = writer.listeners
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
        spare: Callable[[], bool] = lambda: False,
    ) -> EventLog:
        """Open or prepare the log at `path`; a new one is made by the first `emit`. The cost does not grow with the log.

        `mirror` is the lifeboat's folder; `spare` gives room back when the disk is full. A torn last line is set aside
        (`log.recovered`). Raise `LogError`: the file is not ours (untouched), was written by a newer evolver (untouched), or
        does not end where we last left it (reported in a fresh segment; the next `open` goes on there).
        """
        path = Path(os.path.realpath(path.parent)) / path.name  # a symlink in the log's own place is none of ours
        kept = Mirror(mirror, path) if mirror is not None else None
        log = cls(SegmentWriter(path, source, kept, redactor, segment_size, genesis or Genesis(), spare=spare))
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
        return self._writer.head

    @property
    def redactor(self) -> Redactor | None:
        """What hides secrets in this log."""
        return self._writer.redactor

    @property
    def genesis(self) -> Genesis:
        """What the next segment says of the definition in force; set anew when a run's definition is known."""
        return self._writer.genesis

    @genesis.setter
    def genesis(self, genesis: Genesis) -> None:
        self._writer.genesis = genesis

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
            self._writer.make_room()
            return self._writer.append(event, run_id, iteration)

    def _adrift(self) -> bool:
        """The git folder is gone or closed to us (an agent's doing). It is not ours to make again; the lifeboat has the log."""
        return (
            self._mirror is not None
            and self._writer.fd >= 0
            and self._writer.head is not None
            and not paths.reachable(self.path)
        )

    def _emit_lost(self, event: Event, run_id: str | None, iteration: int | None) -> Envelope:
        """Append to the open file, which the lifeboat names too. `ensure_present` puts it back once there is a git folder."""
        assert self._mirror is not None
        with self._thread, locked(self._mirror.stream):
            return self._writer.append(event, run_id, iteration)

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
            self._writer.close()

    def __enter__(self) -> EventLog:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @contextmanager
    def _locked(self) -> Iterator[None]:
        with self._thread, locked(self.path):
            yield

    # ------------------------------------------------------------ what happened meanwhile

    def _begin(self, found: startup.End) -> None:
        """Take over what `startup` found of the log on disk."""
        if found.tampered is not None:
            self._writer.head = found.tampered.head
            self._report(found.tampered)
        self._writer.head = found.head
        self._notes = list(dict.fromkeys([*self._notes, *found.recovered]))
        if found.head is None:
            return  # the first `emit` makes the log, and tells the notes
        if self._mirror is not None:
            self._mirror.attach()  # before the stamp is taken: a new hard link is a change of ours
        if found.open:
            self._writer.take(found.head)
        self._tell_notes()

    def _tell_notes(self) -> None:
        while self._notes:
            self._writer.make_room()
            self._writer.append(self._notes[0])
            del self._notes[0]  # not before: on a full disk it is still to be told

    def _reconcile(self) -> None:
        """Compare the log with what we wrote last, and adopt, put back or report."""
        if self._writer.head is None or self._writer.fd < 0:
            # Another process may have made the log, or the segment that we had no room for, since we looked.
            self._begin(startup.find_end(self.path, self._mirror))
            return
        found = integrity.examine(self.path, self._writer.fd, self._writer.head)
        if found.state is State.SAME:
            self._writer.head = found.head
            if found.file is not None:  # another process rotated
                self._writer.close()
                if found.file == self.path:
                    self._writer.fd = open_segment(self.path)
            if found.torn:
                self._begin(startup.find_end(self.path, self._mirror))
            return
        moved = found.state is State.LOST or self.path.parent.stat().st_ino != self._writer.head.folder
        if moved and found.state is not State.TAMPERED and integrity.holds(self._writer.fd, self._writer.head):
            self._put_back(found)
            return
        self._report(found)

    def _put_back(self, found: integrity.Finding) -> None:
        """The folder went away with the log in it, and our copy leads to the last hash: back with it."""
        assert self._writer.head is not None
        evidence.put_back(self.path, self._mirror, self._writer.fd)
        self._writer.close()
        self._begin(startup.find_end(self.path, self._mirror))
        self._writer.append(
            LogRecovered(torn_bytes=0, kept_as="", reason=f"the log was {found.kind} with its folder; put back")
        )

    def _report(self, found: integrity.Finding) -> None:
        """Name the break in a fresh segment and raise. The damaged file is kept as a closed segment, unrepaired."""
        expected = found.head
        with evidence.witness(self._writer.fd, self._mirror) as fd:
            broken = evidence.keep_broken(self.path, expected, fd)
        number = max([expected.segment, *(n for n, _ in paths.closed_segments(self.path))])
        self._writer.open_segment(
            msgspec.structs.replace(expected, segment=number), broken.name if broken is not None else None
        )
        alert = AlertLogTampered(
            file=str(broken or self.path),
            kind=found.kind,
            expected_sequence=expected.sequence,
            expected_hash=expected.hash,
            found=found.found,
        )
        self._writer.append(alert)
        raise LogError(
            f"the event stream was tampered with ({found.kind}): {found.found}; expected sequence {expected.sequence}",
            f"What is left of it is kept as {broken or 'nothing'}; `evolver audit verify` names the first bad line.",
        )
