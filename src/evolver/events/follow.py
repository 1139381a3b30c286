"""Following the stream, and waiting for a file to change, through watchfiles.

A notification can be missed (the folder is replaced under the watch, a network filesystem), so every wait also ends after
`NET_MS`; what it then costs is one `stat`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

from evolver.events import lines, paths
from evolver.events.reader import Cursor, Filter, Record

NET_MS = 700
Stop = Callable[[], bool]


class _StopEvent:
    """What watchfiles asks for, from a plain callable."""

    def __init__(self, stop: Stop) -> None:
        self._stop = stop

    def is_set(self) -> bool:
        return self._stop()


def changes(folder: Path, stop: Stop) -> Iterator[None]:
    """One item at once, then one each time something in the folder changed, until `stop` says so."""
    import time

    from watchfiles import watch

    while not stop():
        yield
        if not folder.is_dir():  # deleted with `.git`; it comes back
            time.sleep(NET_MS / 4000)
            continue
        try:
            for _ in watch(
                folder,
                watch_filter=None,
                recursive=False,
                step=10,
                debounce=40,
                rust_timeout=NET_MS,
                yield_on_timeout=True,
                stop_event=_StopEvent(stop),
                ignore_permission_denied=True,
            ):
                yield
                if stop() or not folder.is_dir():
                    break
            else:
                return
        except FileNotFoundError:
            continue


def wait_until(done: Callable[[], bool], folder: Path, stop: Stop) -> bool:
    """Block until `done`, looked at whenever something in `folder` changes. False: `stop` came first."""
    for _ in changes(folder, stop):
        if done():
            return True
    return done()


def wait_for_removal(lock: Path, stop: Stop) -> bool:
    """Block until the file is gone; what `run --wait` does with the resume lock. False: `stop` came first."""
    return wait_until(lambda: not os.path.lexists(lock), lock.parent, stop)


def follow(
    path: Path, wanted: Filter, *, stop: Stop, after: Cursor | None = None, note: Callable[[str], None] | None = None
) -> Iterator[Record]:
    """What is there, then what comes. Whole lines only; rotation loses and repeats nothing; a cut log is named and read on."""
    reader = _Reader(path, note or (lambda _: None))
    for _ in changes(path.parent, stop):
        for record in reader.new():
            if (after is None or after.is_past(record.envelope)) and wanted.wants(record.envelope):
                yield record


class _Reader:
    """A place in the stream: an open segment, an offset, the last sequence seen."""

    def __init__(self, path: Path, note: Callable[[str], None]) -> None:
        self._path = path
        self._note = note
        self._fd = -1
        self._offset = 0
        self._sequence = 0

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
        for file in paths.segments(self._path):
            try:
                fd = os.open(file, os.O_RDONLY | os.O_CLOEXEC)
            except FileNotFoundError:  # renamed meanwhile: the next wake-up sees it under its new name
                break
            self._close()
            self._fd, self._offset = fd, 0
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
            elif envelope.sequence > self._sequence:
                self._sequence = envelope.sequence
                yield Record(line, envelope)
            elif (
                envelope.name == "segment.opened"
                and envelope.sequence == 1
                and self._offset == len(line) + 1
                and self._sequence > 1
            ):
                self._note(f"{self._path} was replaced by a new stream")
                self._sequence = 1
                yield Record(line, envelope)

    def _is_current(self) -> bool:
        try:
            return os.path.samestat(self._path.stat(), os.fstat(self._fd))
        except FileNotFoundError:
            return False

    def _close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
