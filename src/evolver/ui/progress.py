"""What `evolver run` shows while it works: events as JSON, plain lines, or nothing."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

from evolver.assemble import Plan
from evolver.events.envelope import Envelope
from evolver.loop import RunReport
from evolver.recovery import Recovered
from evolver.ui.lines import describe


class Progress(Protocol):
    def event(self, envelope: Envelope, line: bytes) -> None: ...

    def output(self, chunk: bytes) -> None: ...

    def recovered(self, found: Recovered | None) -> None: ...

    def finished(self, report: RunReport) -> None: ...


class Silent:
    """`--quiet`."""

    def event(self, envelope: Envelope, line: bytes) -> None:
        pass

    def output(self, chunk: bytes) -> None:
        pass

    def recovered(self, found: Recovered | None) -> None:
        pass

    def finished(self, report: RunReport) -> None:
        pass


class Json(Silent):
    """`--json`: the envelopes, byte for byte, and nothing else on standard output."""

    def event(self, envelope: Envelope, line: bytes) -> None:
        view = memoryview(line)
        while view:
            view = view[os.write(1, view) :]


class Lines(Silent):
    """One plain line a milestone; for pipes, CI logs and terminals alike."""

    def event(self, envelope: Envelope, line: bytes) -> None:
        text = describe(envelope)
        if text:
            print(text, flush=True)

    def recovered(self, found: Recovered | None) -> None:
        if found is not None and found.action != "nothing_to_do":
            print(f"recovered run {found.run_id}: {found.action.replace('_', ' ')}. {found.reason}".rstrip(), flush=True)

    def finished(self, report: RunReport) -> None:
        state = report.state
        print(
            f"{report.stop.name.replace('_', ' ')}{': ' + report.stop.detail if report.stop.detail else ''}. "
            f"{state.iterations} iterations: {state.accepted} accepted, {state.rolled_back} rolled back, "
            f"{state.no_change} without a change.",
            flush=True,
        )
        if report.exit_code in (3, 4):
            print("Look at the worktree, then run `evolver resume`.", file=sys.stderr, flush=True)


@contextmanager
def progress(planned: Plan, *, as_json: bool, quiet: bool) -> Iterator[Progress]:
    """What fits the flags and the terminal."""
    yield Json() if as_json else Silent() if quiet else Lines()
