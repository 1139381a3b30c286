"""What a run shows while it runs: a live view on a terminal, plain lines elsewhere, envelopes for `--json`, or nothing.

Every view is fed the same two things: envelopes as they are written, and the current step's output as it comes.
"""

from __future__ import annotations

import os
import sys
from types import TracebackType
from typing import Protocol, Self, TextIO

from evolver.definition import LoadedLoop
from evolver.events.envelope import Envelope
from evolver.ui import words
from evolver.ui.timeline import Timeline


class View(Protocol):
    """A context manager that is fed."""

    def feed(self, envelope: Envelope) -> None: ...

    def output(self, chunk: bytes) -> None: ...

    def __enter__(self) -> Self: ...

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None: ...


class Silent:
    """`--quiet`, and what the others are built on."""

    def feed(self, envelope: Envelope) -> None:
        """Nothing."""

    def output(self, chunk: bytes) -> None:
        """Nothing."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        """Nothing."""


class PlainLines(Silent):
    """One line when an iteration starts a step that takes its time, one when it ends: for pipes and CI logs."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._timeline = Timeline()

    def _say(self, text: str) -> None:
        # A closed pipe ends the telling, never the run: nobody is left to read, the work goes on.
        try:
            self._stream.write(text + "\n")
            self._stream.flush()
        except (BrokenPipeError, ValueError):
            return
        except UnicodeEncodeError:
            self._stream.write(text.encode("ascii", "replace").decode() + "\n")

    def feed(self, envelope: Envelope) -> None:
        self._timeline.feed(envelope)
        if envelope.name not in _SAID:
            return
        run = self._timeline.run(envelope.runid or "")
        if run is None:
            return
        iteration = run.iteration(envelope.iteration) if envelope.iteration else None
        match envelope.name:
            case "run.started":
                self._say(f"run {run.run_id}: loop {words.one_line(run.loop)}, mode {run.mode}, at {words.short(run.pre_ref)}")
                for path in run.left_out:
                    self._say(f"not kept (ignored, over the budget): {words.one_line(path)}")
            case "baseline.validated":
                self._say("validators on the baseline: " + (f"red ({words.one_line(run.red_reason)})" if run.red else "green"))
            case "run.recovered":
                self._say(f"recovered a run that died: {run.recovered}")
            case "run.finished":
                self._say(f"run finished: {run.reason}" + (f" ({words.one_line(run.detail)})" if run.detail else ""))
            case name if name.startswith("alert.") and run.alerts:
                self._say(f"alert: {words.one_line(run.alerts[-1])}")
            case _ if iteration is not None:
                score = words.score_of(iteration)
                facts = [f for f in (words.size(iteration), f"score {score}" if score else "", words.why(iteration)) if f]
                of = f"{iteration.number}/{run.max_iterations}" if run.max_iterations else str(iteration.number)
                self._say(f"{of} {words.LABELS[iteration.outcome]} in {words.took(iteration.duration_ms)}: {', '.join(facts)}")


_SAID = frozenset(
    {
        "run.started", "baseline.validated", "run.recovered", "run.finished", "iteration.accepted", "iteration.no_change",
        "rollback.finished", "rollback.failed", "rollback.skipped", "alert.pushed_attempt", "alert.control_changed",
        "alert.log_tampered", "alert.stalled", "alert.refs_left",
    }
)  # fmt: skip


def view(loaded: LoadedLoop, *, quiet: bool, json: bool, breaker: bool = True) -> View:
    """The view that fits where standard output goes. With `--json` the envelopes are written by a sink, not here."""
    if quiet or json:
        return Silent()
    if not sys.stdout.isatty() or _dumb():
        return PlainLines(sys.stdout)
    from evolver.ui.live import LiveView  # rich: only for a person who watches

    return LiveView(loaded, breaker=breaker)


def _dumb() -> bool:
    return os.environ.get("TERM", "") in ("", "dumb") or bool(os.environ.get("CI"))
