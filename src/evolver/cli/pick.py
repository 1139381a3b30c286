"""Which iteration, which run: `RUN_ID/N`, `N` of the last run, or `last`. Read from the end of the stream."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from evolver.errors import UsageError
from evolver.events.envelope import Envelope
from evolver.events.reader import read_backwards
from evolver.ui.timeline import Timeline, number_in
from evolver.ui.views import IterationView, RunView

HINT = "Give RUN_ID/N, N (of the last run) or `last`; `evolver log` lists them."


def iteration(path: Path, wanted: str) -> tuple[RunView, IterationView]:
    """Raise `UsageError` when there is none such."""
    run_id, slash, number_text = wanted.rpartition("/")
    number = number_in(f"/{number_text}")
    if (number is None and wanted != "last") or (slash and not run_id):
        raise UsageError(f"{wanted}: no iteration", HINT)
    found_run = run(path, run_id if slash else None, with_iterations=wanted == "last")
    found = found_run.iteration(number) if number is not None else (found_run.iterations[-1] if found_run.iterations else None)
    if found is None:
        raise UsageError(f"{wanted}: run {found_run.run_id} has no such iteration", "`evolver log` lists the iterations.")
    return found_run, found


def run(path: Path, run_id: str | None = None, *, with_iterations: bool = False) -> RunView:
    """The last run, or the newest whose id starts with `run_id`. Raise `UsageError` when there is none."""
    for found in runs(path):
        if run_id is not None and not found.run_id.startswith(run_id):
            continue
        if found.iterations or not with_iterations:
            return found
    raise UsageError(
        f"no run{f' {run_id}' if run_id else ''} in {path}", "`evolver run` starts one; `evolver log --all` lists them."
    )


def runs(path: Path) -> Iterator[RunView]:
    """Every run, the newest first. What later events say of an earlier run (resumed, reverted) is folded in."""
    pending: dict[str, list[Envelope]] = {}
    for envelope in read_backwards(path):
        if envelope.runid is None:
            continue
        pending.setdefault(envelope.runid, []).append(envelope)
        if envelope.name == "run.started":
            folded = Timeline(reversed(pending.pop(envelope.runid))).last()
            if folded is not None:
                yield folded
