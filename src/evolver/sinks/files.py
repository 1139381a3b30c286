"""Events as lines in a file, and on standard output."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from evolver.events.reader import Record
from evolver.sinks.base import GoneError, SinkError


class FileSink:
    """Appends each line to a file and syncs it: a forwarded copy, for a disk the agent cannot reach."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._fd = -1

    def deliver(self, record: Record) -> None:
        line = record.line + b"\n"
        try:
            if self._fd < 0 or not self._there():
                self.close()
                self._path.parent.mkdir(parents=True, exist_ok=True)
                flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NONBLOCK
                self._fd = os.open(self._path, flags, 0o600)
            size = os.fstat(self._fd).st_size
            if os.write(self._fd, line) != len(line):
                os.ftruncate(self._fd, size)  # no half line stays
                raise SinkError(f"{self._path}: no space left on device")
            os.fsync(self._fd)
        except OSError as error:
            raise SinkError(f"{self._path}: {error.strerror}") from error

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
