"""A child's output on its way to the log file: redacted, counted, never whole in memory."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path

from evolver.process.values import TAIL_BYTES, Redactor

LOG_BYTES = 1 << 30  # that a log file may have: an agent that prints without end would fill the user's disk


class Output:
    """Where a child's output goes. A full disk, or a log as long as it may be, ends the log and not the reading: a child blocked
    on its pipe would hang."""

    def __init__(self, log: Path, redactor: Redactor | None, listener: Callable[[bytes], None] | None) -> None:
        self.bytes = 0
        self.error = ""
        self._tail = bytearray()
        self._redactor = redactor
        self._listener = listener
        self._log = -1
        self._room = LOG_BYTES
        try:
            log.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            self._log = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        except OSError as error:
            self.error = f"{log}: {error.strerror}"

    def feed(self, chunk: bytes) -> None:
        self._put(self._redactor.feed(chunk) if self._redactor is not None else chunk)

    def close(self) -> None:
        if self._redactor is not None:
            self._put(self._redactor.flush())
        if self._log >= 0:
            os.close(self._log)
            self._log = -1

    @property
    def tail(self) -> bytes:
        return bytes(self._tail[-TAIL_BYTES:])

    def _put(self, data: bytes) -> None:
        if not data:
            return
        self.bytes += len(data)
        self._tail += data[-TAIL_BYTES:]
        if len(self._tail) > 4 * TAIL_BYTES:
            del self._tail[:-TAIL_BYTES]
        self._write(data)
        if self._listener is not None:
            self._listener(data)

    def _write(self, data: bytes) -> None:
        view = memoryview(data)
        while view and self._log >= 0:
            try:
                if not self._room:
                    raise OSError(errno.EFBIG, f"it has {LOG_BYTES >> 20} MiB")
                written = os.write(self._log, view[: self._room])
                view, self._room = view[written:], self._room - written
            except OSError as error:
                self.error = f"the log is cut short: {error.strerror}"
                os.close(self._log)
                self._log = -1
