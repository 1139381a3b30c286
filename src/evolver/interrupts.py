"""Ctrl-C, SIGTERM and a closed terminal as a value that every wait looks at.

Nothing is raised out of a signal handler: an exception there could land in the middle of a restore. The handler counts and
wakes; whoever waits decides. The first signal ends the step, a second one shortens the grace its processes get; neither
ever cuts a rollback short.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import threading
import time
from collections.abc import Callable, Iterable
from types import FrameType, TracebackType
from typing import Self

HANDLED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Interrupts:
    """Which signal asked us to stop, and how often. Use as a context manager to install the handlers.

    Without `with` (library use, tests) nothing is installed; `trigger` then plays the signal. `listeners` are called in the
    main thread between two bytecodes: they may set flags, nothing more. `last` says that the process ends after the `with`:
    then further signals are ignored from there on, so that the tenth Ctrl-C cannot change the exit status of a run that has
    already undone its attempt and only has to leave the interpreter.
    """

    def __init__(self, *, signals: Iterable[signal.Signals] = HANDLED, last: bool = False) -> None:
        self.signal: int | None = None
        self.count = 0
        self.cancelled = False  # the running step is to end; the run goes on
        self.listeners: list[Callable[[int], None]] = []
        self._wanted = tuple(signals)
        self._last = last
        self._previous: dict[signal.Signals, object] = {}
        self._read, self._write = os.pipe()  # never inherited: file descriptors are close-on-exec
        os.set_blocking(self._read, False)
        os.set_blocking(self._write, False)

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            for number in self._wanted:
                # `nohup` and some supervisors start us with SIGHUP ignored; then it is meant to stay ignored.
                if number is signal.SIGHUP and signal.getsignal(number) is signal.SIG_IGN:
                    continue
                self._previous[number] = signal.signal(number, self._handle)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        for number, previous in self._previous.items():
            after = signal.SIG_IGN if self._last and self.signal is not None else previous
            signal.signal(number, after if after is not None else signal.SIG_DFL)  # type: ignore[arg-type]
        self._previous.clear()

    def __del__(self) -> None:
        for descriptor in (self._read, self._write):
            with contextlib.suppress(OSError):
                os.close(descriptor)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        self.trigger(number)

    def trigger(self, number: int) -> None:
        """Act as if the signal had arrived."""
        if self.signal is None:
            self.signal = number
        self.count += 1
        with contextlib.suppress(BlockingIOError):  # a full pipe wakes as well
            os.write(self._write, b"!")
        for listener in self.listeners:
            listener(number)

    def cancel(self) -> None:
        """End the running step alone. To be taken back with `uncancel` before the next one."""
        self.cancelled = True
        with contextlib.suppress(BlockingIOError):
            os.write(self._write, b"!")

    def uncancel(self) -> None:
        self.cancelled = False

    def __bool__(self) -> bool:
        return self.signal is not None or self.cancelled

    @property
    def name(self) -> str:
        """`SIGINT`, or the empty string, also for a stop that was asked for without a signal (0)."""
        return signal.Signals(self.signal).name if self.signal else ""

    def fileno(self) -> int:
        """Readable after a signal, until `drain`."""
        return self._read

    def drain(self) -> None:
        with contextlib.suppress(BlockingIOError):
            while os.read(self._read, 512):
                pass

    def wait(self, seconds: float) -> bool:
        """Sleep, at most `seconds`. True at once when a signal has arrived or arrives."""
        deadline = time.monotonic() + seconds
        while not self:
            left = deadline - time.monotonic()
            if left <= 0:
                return False
            if select.select([self._read], [], [], min(left, 3600.0))[0] and not self:
                self.drain()  # woken by what has been taken back since
        return True
