"""Events as lines in a file, and on standard output."""

from __future__ import annotations

import os
import stat
import sys
from pathlib import Path

from evolver.events.reader import Record
from evolver.sinks.base import GoneError, SinkError

LOOK_BACK = 1 << 20  # bytes at the end of a copy in which a line may stand that we do not remember to have written


class FileSink:
    """Appends each line to a file and syncs it: a forwarded copy, for a disk the agent cannot reach.

    A kill may come between a line and the cursor that remembers it, or in the middle of a line. So what is at the end of
    the copy is looked at before the first lines are written: none stands there twice, and none behind half of one.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._fd = -1
        self._regular = False
        self._known = False  # whether what stands at the end of the file is ours, and whole

    def deliver(self, record: Record) -> None:
        line = record.line + b"\n"
        try:
            if self._fd < 0 or not self._there():
                self.close()
                self._open()
            rest = line if self._known or not self._regular else self._missing(line)
            if rest:
                self._known = False  # until it is there, whole and synced
                self._write(rest)
                self._known = True
        except OSError as error:
            raise SinkError(f"{self._path}: {error.strerror}") from error

    def _open(self) -> None:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NONBLOCK
        self._fd = os.open(self._path, flags, 0o600)
        self._regular, self._known = stat.S_ISREG(os.fstat(self._fd).st_mode), False
        if not self._regular:  # a terminal, a pipe: it may take its time, and half a line cannot be taken back
            os.set_blocking(self._fd, True)

    def _missing(self, line: bytes) -> bytes:
        """What of the line is not at the end of the file yet; empty: nothing, an earlier process wrote it."""
        size = os.fstat(self._fd).st_size
        end = os.pread(self._fd, LOOK_BACK, max(0, size - LOOK_BACK))
        if line in end:
            return b""
        torn = end[end.rfind(b"\n") + 1 :]
        return line[len(torn) :] if line.startswith(torn) else b"\n" + line

    def _write(self, data: bytes) -> None:
        size = os.fstat(self._fd).st_size
        written = os.write(self._fd, data)
        if not self._regular:  # nothing of it is kept, so there is nothing to sync
            while written < len(data):
                written += os.write(self._fd, data[written:])
            return
        if written != len(data):
            os.ftruncate(self._fd, size)  # no half line stays
            raise SinkError(f"{self._path}: no space left on device")
        os.fsync(self._fd)

    def _there(self) -> bool:
        """Whether the path is still the file we hold: log rotation elsewhere renames it."""
        try:
            return os.path.samestat(self._path.stat(), os.fstat(self._fd))
        except OSError:
            return False

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


class StdoutSink:
    """Writes each line to standard output. A reader that went away ends it; that is no fault of the loop."""

    def deliver(self, record: Record) -> None:
        try:
            sys.stdout.buffer.write(record.line + b"\n")
            sys.stdout.buffer.flush()
        except (OSError, ValueError) as error:
            raise GoneError(f"standard output: {error}") from error

    def close(self) -> None:
        pass
