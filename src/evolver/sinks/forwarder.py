"""Reads the stream behind the loop's back and hands it to the sinks: a thread and a cursor each.

The loop never waits for a sink. Each cursor lies beside the log, so that an outage, a restart or a crash replays from the
first event the sink has not taken: at least once, in order.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Iterator, Sequence

import msgspec
import tenacity

from evolver.errors import EvolverError
from evolver.events.log import EventLog
from evolver.events.reader import Record
from evolver.events.tailer import Place, Tailer
from evolver.events.types import SinkGap
from evolver.sinks.base import Configured, EventSink, GoneError, RefusedError, SinkError

FIRST_WAIT_S, LONGEST_WAIT_S = 0.1, 2.0
LONGEST_ASKED_S = 60.0  # of what a receiver asks for
CURSOR_WIDTH = 256
IDLE_S = 1.0  # a wake-up may be missed when another process appended


class Cursor(msgspec.Struct, frozen=True, kw_only=True):
    """What a sink has taken: everything up to this place of this stream."""

    log: str
    place: Place


class Forwarder:
    """All sinks of a run."""

    def __init__(self, log: EventLog, sinks: Sequence[Configured]) -> None:
        self._log = log
        self._workers = [_Worker(log, sink) for sink in sinks]

    def start(self) -> None:
        for worker in self._workers:
            worker.start()
        if self._workers:
            self._log.after.append(self.wake)

    def wake(self) -> None:
        """There is something new. Never blocks."""
        for worker in self._workers:
            worker.wake()

    def drain(self, timeout_ms: int | None = None) -> tuple[str, ...]:
        """Wait until every sink has everything, each at most its own `drain` (or `timeout_ms`); then stop.

        Returns in words what is not forwarded yet (it is not lost: the next run goes on there), and what was given up.
        """
        begun = time.monotonic()
        for worker in self._workers:
            worker.finish()
        late: list[str] = []
        for worker in self._workers:
            limit = worker.sink.drain_ms if timeout_ms is None else timeout_ms
            worker.join(max(0.0, begun + limit / 1000 - time.monotonic()))
        for worker in self._workers:
            if worker.is_alive():
                worker.abandon()
                late.append(
                    f"sink {worker.sink.name} has not taken everything yet{worker.problem()}; the next run goes on there"
                )
            if worker.given_up:
                late.append(f"sink {worker.sink.name} never got {worker.given_up} events{worker.problem()}; `sink.gap` in the stream names them")
        return tuple(late)


def _may_help(state: tenacity.RetryCallState) -> bool:
    """Whether trying the same event again makes sense."""
    error = state.outcome.exception() if state.outcome is not None else None
    return isinstance(error, SinkError) and not isinstance(error, RefusedError | GoneError)


class _Worker(threading.Thread):
    def __init__(self, log: EventLog, sink: Configured) -> None:
        super().__init__(name=f"sink-{sink.name}", daemon=True)  # a hung receiver must not keep the process alive
        self.sink = sink
        self._log = log
        self._wake = threading.Event()
        self._finishing = threading.Event()
        self._abandoned = threading.Event()
        self._last_error = ""
        self._dropped: list[int] = []
        self.given_up = 0  # events that it will never get
        self._reason = ""
        self._file = log.path.with_name("sinks") / f"{log.path.stem}.{sink.name}.json"
        cursor = self._load() if sink.replay else None
        head = log.head
        # A cursor of another stream says nothing of this one: it would skip as many lines as the old one had.
        if cursor is not None and cursor.log in ((head.log, "") if head is not None else ("",)):
            place = cursor.place
        elif head is not None:  # a sink that is new starts with what happens now, and remembers that it did
            place = Place(sequence=head.sequence, hash=head.hash, offset=head.stamp.size)
            self._save(place)
        else:
            place = Place(sequence=0, hash="", offset=0)
            self._save(place)
        self._tailer = Tailer(log.path, place=place)
        self._opened: EventSink | None = None

    def wake(self) -> None:
        self._wake.set()

    def finish(self) -> None:
        self._finishing.set()
        self._wake.set()

    def abandon(self) -> None:
        self._abandoned.set()
        self._wake.set()

    def problem(self) -> str:
        error = self._last_error or self._reason
        return f" ({error})" if error else ""

    def run(self) -> None:
        try:
            while not self._abandoned.is_set():
                finishing = self._finishing.is_set()
                self._wake.clear()
                if self._forward() == 0:
                    # All caught up: a gap is told in one event, however many it dropped.
                    if self._dropped and self._tell_gap():
                        continue
                    if finishing:
                        break
                if not finishing:
                    self._wake.wait(IDLE_S)
        except GoneError:
            self._tell_gap()
        finally:
            self._tailer.close()
            self._close()

    def _forward(self) -> int:
        """Hand over everything new; how many lines there were."""
        seen = 0
        for record in self._new():
            seen += 1
            if self.sink.wants(record.envelope) and not self._deliver(record):
                return seen
            if not self._dropped:  # a gap nobody was told of yet must not be passed: killed now, it would be silent
                self._save(Place(sequence=record.envelope.sequence, hash=record.envelope.hash, offset=self._tailer.offset))
        return seen

    def _new(self) -> Iterator[Record]:
        try:
            yield from self._tailer.new()
        except OSError as error:  # the folder is being put back, say; looked at again a moment later
            self._last_error = f"the stream cannot be read: {error.strerror}"
            self._abandoned.wait(FIRST_WAIT_S)

    def _deliver(self, record: Record) -> bool:
        """Until it is taken, refused for good, or tried often enough. False: the run is over and so is our time."""
        policy = tenacity.Retrying(retry=_may_help, wait=self._pause, stop=self._enough, sleep=self._sleep, reraise=True)
        try:
            policy(self._once, record)
        except SinkError as error:
            if self._abandoned.is_set():
                return False
            self._drop(record, str(error))
            if isinstance(error, GoneError):
                raise
        else:
            self._last_error = ""
            if self._dropped:
                self._tell_gap()
        return True

    def _once(self, record: Record) -> None:
        try:
            if self._abandoned.is_set():
                raise SinkError("the run is over")
            if self._opened is None:
                self._opened = self.sink.open()
            self._opened.deliver(record)
        except SinkError as error:
            self._last_error = str(error)
            raise
        except Exception as error:  # a sink of somebody else, an answer nobody thought of: the thread must outlive it
            self._close()
            self._last_error = f"{type(error).__name__}: {error}"
            raise SinkError(self._last_error) from error

    def _pause(self, state: tenacity.RetryCallState) -> float:
        error = state.outcome.exception() if state.outcome is not None else None
        if isinstance(error, SinkError) and error.retry_after_ms is not None:
            # A server that says "at once", or in the past, must not be asked thousands of times a second.
            return min(max(error.retry_after_ms / 1000, FIRST_WAIT_S), LONGEST_ASKED_S)
        wait = tenacity.wait_exponential(multiplier=FIRST_WAIT_S, max=LONGEST_WAIT_S) + tenacity.wait_random(0, FIRST_WAIT_S)
        return float(wait(state))

    def _enough(self, state: tenacity.RetryCallState) -> bool:
        return self._abandoned.is_set() or bool(self.sink.tries and state.attempt_number >= self.sink.tries)

    def _sleep(self, seconds: float) -> None:
        self._abandoned.wait(seconds)

    def _drop(self, record: Record, reason: str) -> None:
        """Remember what this sink will never get. A gap in reporting a gap ends there."""
        if record.envelope.name != SinkGap.TYPE:
            self._dropped.append(record.envelope.sequence)
            self.given_up += 1
            self._reason = reason

    def _tell_gap(self) -> bool:
        """One event for all that was dropped. False: there was nothing to tell, or it could not be written yet."""
        dropped = self._dropped
        if not dropped:
            return False
        event = SinkGap(
            sink=self.sink.name, dropped=len(dropped), first_sequence=dropped[0], last_sequence=dropped[-1], reason=self._reason
        )
        try:
            self._log.emit(event)
        except EvolverError as error:  # the loop meets the same fault at its own next event, and stops on it
            self._last_error = error.message
            return False
        self._dropped = []
        return True

    def _close(self) -> None:
        opened, self._opened = self._opened, None
        if opened is not None:
            with contextlib.suppress(Exception):  # of somebody else's sink
                opened.close()

    # ------------------------------------------------------------ cursor

    def _load(self) -> Cursor | None:
        try:
            return msgspec.json.decode(self._file.read_bytes(), type=Cursor)
        except (OSError, msgspec.DecodeError):
            return None

    def _save(self, place: Place) -> None:
        head = self._log.head
        log = head.log if head is not None else ""  # "": there was no log yet
        data = msgspec.json.encode(Cursor(log=log, place=place)).ljust(CURSOR_WIDTH)
        try:
            self._file.parent.mkdir(mode=0o700, exist_ok=True)
            # In place, in one write of one length: no second file comes and goes under those who look after the folder.
            fd = os.open(self._file, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK, 0o600)
            try:
                os.pwrite(fd, data, 0)
            finally:
                os.close(fd)
        except OSError as error:  # it will be handed over twice: at least once is what is promised
            self._last_error = f"its cursor cannot be kept: {error.strerror}"
