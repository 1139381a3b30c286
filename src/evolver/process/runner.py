"""One step's child, from start to the proof that nothing of it is alive."""

from __future__ import annotations

import contextlib
import math
import os
import selectors
import signal
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from evolver.interrupts import Interrupts
from evolver.process.output import Output
from evolver.process.subreaper import adopting
from evolver.process.table import process_started
from evolver.process.tree import Scope, end
from evolver.process.values import CHUNK, RUN_ID, Command, Finished, Redactor

LEFTOVER_GRACE = 0.5  # seconds that what a child left running gets to end by itself
HURRIED_GRACE = 0.5  # seconds of grace after a second signal
DRAIN_SECONDS = 2.0  # how long a pipe is read that a survivor keeps open
_TICK = 0.05  # how often the child is looked at where there is no pidfd


@dataclass(slots=True)
class _Child:
    """A started child: its pipes, and a selector that wakes for output, exit and interrupts."""

    process: subprocess.Popen[bytes]
    output: Output
    stdin: bytes
    pidfd: int = -1
    selector: selectors.BaseSelector = field(default_factory=selectors.DefaultSelector)
    open: bool = True  # the output pipe has not ended yet

    def __post_init__(self) -> None:
        assert self.process.stdout is not None
        os.set_blocking(self.process.stdout.fileno(), False)
        self.selector.register(self.process.stdout.fileno(), selectors.EVENT_READ, "output")
        if self.process.stdin is not None:
            os.set_blocking(self.process.stdin.fileno(), False)
            self.selector.register(self.process.stdin.fileno(), selectors.EVENT_WRITE, "input")
        if hasattr(os, "pidfd_open"):
            with contextlib.suppress(OSError):
                self.pidfd = os.pidfd_open(self.process.pid)
                self.selector.register(self.pidfd, selectors.EVENT_READ, "exit")

    def pump(self, seconds: float) -> None:
        """Move what can be moved; wait at most `seconds` for something to happen."""
        # At most an hour: the system takes no wait of more than some weeks.
        for key, _ in self.selector.select(max(0.0, min(seconds, 3600.0 if self.pidfd >= 0 else _TICK))):
            if key.data == "output":
                self._read()
            elif key.data == "input":
                self._write()

    def _read(self) -> None:
        assert self.process.stdout is not None
        try:
            chunk = os.read(self.process.stdout.fileno(), CHUNK)
        except BlockingIOError:
            return
        if chunk:
            self.output.feed(chunk)
        else:
            self.selector.unregister(self.process.stdout.fileno())
            self.open = False

    def _write(self) -> None:
        assert self.process.stdin is not None
        try:
            self.stdin = self.stdin[os.write(self.process.stdin.fileno(), self.stdin[:CHUNK]) :]
        except BlockingIOError:
            return
        except OSError:  # a child need not read what it is told
            self.stdin = b""
        if not self.stdin:
            self.end_input()

    def end_input(self) -> None:
        if self.process.stdin is not None and not self.process.stdin.closed:
            self.selector.unregister(self.process.stdin.fileno())
            with contextlib.suppress(OSError):
                self.process.stdin.close()

    def drain(self, seconds: float) -> None:
        """Read what is left in the pipe. It ends when its last writer is dead; a survivor may hold it, so not for ever."""
        if self.pidfd >= 0:
            self.selector.unregister(self.pidfd)  # readable for good, it would make this a busy loop
            os.close(self.pidfd)
            self.pidfd = -1
        self.end_input()
        deadline = time.monotonic() + seconds
        while self.open and time.monotonic() < deadline:
            self.pump(max(0.0, deadline - time.monotonic()))

    def close(self) -> None:
        self.end_input()
        if self.pidfd >= 0:
            os.close(self.pidfd)
        self.selector.close()
        assert self.process.stdout is not None
        self.process.stdout.close()
        self.output.close()


def _start(command: Command) -> subprocess.Popen[bytes]:
    if not command.argv:
        raise ValueError("there is nothing to start")
    # Its own session: no terminal signal reaches it past us, no terminal to ask a password on, and a mark that it
    # cannot take off. Nothing is inherited but the three standard streams.
    return subprocess.Popen(
        command.argv,
        cwd=command.cwd,
        env=dict(command.env),
        stdin=subprocess.PIPE if command.stdin else subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
        close_fds=True,
        bufsize=0,
    )


def run(
    command: Command,
    *,
    interrupts: Interrupts,
    redactor: Redactor | None = None,
    on_start: Callable[[int, str], None] | None = None,
    on_output: Callable[[bytes], None] | None = None,
) -> Finished:
    """Run a child to its end; when this returns, everything it started is dead, or is named in `survivors`.

    Does not start anything when a signal has arrived already. `on_start` gets the pid and its start time, `on_output` each
    redacted chunk. One step at a time: what another thread started here meanwhile would count as this step's.
    """
    if interrupts:
        return Finished(interrupted=True)
    begun = time.monotonic()
    with adopting():
        scope = Scope.take(command.env.get(RUN_ID, ""))
        output = Output(command.log, redactor, on_output)
        try:
            process = _start(command)
        except (OSError, ValueError) as error:  # ValueError: a NUL byte in an argument
            output.close()
            return Finished(error=f"{command.argv[0] if command.argv else '(empty command)'}: {_why(error)}")
        scope.root = process.pid
        child = _Child(process, output, command.stdin)
        try:
            if on_start is not None:
                _announce(process.pid, on_start)
            return _supervise(child, scope, command, interrupts, begun)
        finally:
            # Also when a callback raised, or evolver itself has a bug: nothing is left running behind a traceback.
            scope.kill()
            with contextlib.suppress(subprocess.TimeoutExpired):  # one that cannot be killed is named, not waited for
                process.wait(1.0)
            child.close()


def _announce(pid: int, on_start: Callable[[int, str], None]) -> None:
    """Tell of the child while it is stopped: a quick agent may take `.git` away, and with it where its pid is written.

    Not by `Popen.send_signal`: that reaps a child which has ended already, and its start time is gone with it.
    """
    with contextlib.suppress(PermissionError):
        os.kill(pid, signal.SIGSTOP)
    try:
        on_start(pid, process_started(pid))
    finally:
        with contextlib.suppress(PermissionError):
            os.kill(pid, signal.SIGCONT)


def _why(error: Exception) -> str:
    return (error.strerror or str(error)) if isinstance(error, OSError) else str(error)


def _supervise(child: _Child, scope: Scope, command: Command, interrupts: Interrupts, begun: float) -> Finished:
    deadline = None if command.timeout_ms is None else begun + command.timeout_ms / 1000
    interrupts.drain()
    child.selector.register(interrupts.fileno(), selectors.EVENT_READ, "interrupt")
    timed_out = False
    while child.process.poll() is None and not interrupts:
        left = math.inf if deadline is None else deadline - time.monotonic()
        if left <= 0:
            timed_out = True
            break
        child.pump(left)
    ended_itself = child.process.poll() is not None
    child.selector.unregister(interrupts.fileno())

    if ended_itself:
        left_behind = len(scope.members())
        survivors = _end(child, scope, min(LEFTOVER_GRACE, command.grace_ms / 1000), interrupts)
    else:
        survivors = _end(child, scope, command.grace_ms / 1000, interrupts)
        left_behind = max(0, len(scope.seen) - 1)
    if child.process.pid not in survivors:
        child.process.wait()
    child.drain(DRAIN_SECONDS)
    child.output.close()
    code = child.process.returncode
    return Finished(
        exit_code=code if code is not None and code >= 0 else None,
        signal=-code if code is not None and code < 0 else None,
        timed_out=timed_out,
        # A service manager signals the child together with us: that it died of it is our interrupt, not its failure.
        interrupted=bool(interrupts) and not timed_out and (not ended_itself or code != 0),
        duration_ms=round((time.monotonic() - begun) * 1000),
        log_bytes=child.output.bytes,
        log_error=child.output.error,
        tail=child.output.tail,
        survivors=survivors,
        killed=left_behind,
    )


def _end(child: _Child, scope: Scope, grace: float, interrupts: Interrupts) -> tuple[int, ...]:
    """End the whole tree. Meanwhile its output is read: a process blocked on a full pipe could not end in its grace."""
    asked = interrupts.count
    begun = time.monotonic()

    def hurried() -> bool:
        child.pump(0)
        child.process.poll()
        # The signal that made us stop is counted by now; one more asks for haste.
        return interrupts.count > max(asked, 1) and time.monotonic() - begun > min(grace, HURRIED_GRACE)

    return end(scope, grace, give_up=hurried)
