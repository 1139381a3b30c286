"""What `evolver run` shows while it works: a live view on a terminal, plain lines elsewhere, the events as JSON, or nothing.

All of it is called in the middle of a transaction, so nothing here may raise: a reader that went away (`| head`, a closed
terminal) ends the telling, never the run.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Protocol

from evolver.errors import ExitStatus
from evolver.events.envelope import Envelope
from evolver.loop import RunReport
from evolver.planning import Plan
from evolver.recovery import Recovered
from evolver.ui.lines import closing, describe, recovery


class Progress(Protocol):
    def event(self, envelope: Envelope, line: bytes) -> None: ...

    def output(self, chunk: bytes) -> None: ...

    def recovered(self, found: Recovered | None) -> None: ...

    def finished(self, report: RunReport) -> None: ...


class Silent:
    """`--quiet`: nothing but what a person must act on."""

    def event(self, envelope: Envelope, line: bytes) -> None:
        pass

    def output(self, chunk: bytes) -> None:
        pass

    def recovered(self, found: Recovered | None) -> None:
        pass

    def finished(self, report: RunReport) -> None:
        if report.exit_code in (ExitStatus.HELD, ExitStatus.NOT_RESTORED):
            with suppress(OSError, ValueError):
                print(f"evolver: {report.stop.detail or report.stop.name}; run `evolver resume`", file=sys.stderr, flush=True)


class Json(Silent):
    """`--json`: the envelopes, byte for byte, and nothing else on standard output."""

    def __init__(self) -> None:
        self._open = True

    def event(self, envelope: Envelope, line: bytes) -> None:
        view = memoryview(line)
        try:
            while self._open and view:
                view = view[os.write(1, view) :]
        except OSError:
            self._open = False


class Lines(Silent):
    """One plain line a milestone; for pipes and CI logs."""

    def __init__(self) -> None:
        self._open = True

    def say(self, text: str) -> None:
        if not (text and self._open):
            return
        try:
            data = (text + "\n").encode(sys.stdout.encoding or "utf-8", "backslashreplace")
            sys.stdout.flush()
            while data:
                data = data[os.write(1, data) :]
        except (OSError, ValueError):
            self._open = False

    def event(self, envelope: Envelope, line: bytes) -> None:
        self.say(describe(envelope))

    def recovered(self, found: Recovered | None) -> None:
        self.say(recovery(found))

    def finished(self, report: RunReport) -> None:
        for text in closing(report):
            self.say(text)


def _dumb() -> bool:
    return os.environ.get("TERM", "") in ("", "dumb") or os.environ.get("CI", "") not in ("", "0", "false")


def chooser(*, as_json: bool, quiet: bool, tty: bool) -> Callable[[], Progress] | None:
    """What fits the flags and the terminal; None: the live view."""
    if as_json:
        return Json
    if quiet:
        return Silent
    return Lines if not tty or _dumb() else None


@contextmanager
def progress(planned: Plan, *, as_json: bool, quiet: bool, breaker: bool = True) -> Iterator[Progress]:
    """Entered before the run is prepared, left when nothing more happens."""
    plain = chooser(as_json=as_json, quiet=quiet, tty=sys.stdout.isatty())
    if plain is not None:
        yield plain()
        return
    from evolver.ui.live import LiveView  # rich: only for a person who watches

    with LiveView(planned.loaded, breaker=breaker) as view:
        yield view
