"""What `evolver status` tells: state, last run, lock, counts. From locks and the end of the stream; needs no command line parser."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

import msgspec

from evolver import clone, history, lock, resume_lock
from evolver.events.reader import read_backwards
from evolver.history import LastRun
from evolver.layout import Layout
from evolver.resume_lock import ResumeLock
from evolver.settings import read as read_settings
from evolver.ui.words import GLYPHS, clock, decision, one_line


class Status(msgspec.Struct, frozen=True, kw_only=True):
    """What `--json` prints. `state`: idle, running, held, or died (the next command recovers it)."""

    state: str
    worktree: str
    events: str
    pre_ref: str | None
    last_run: LastRun | None
    lock: ResumeLock | None
    counts: dict[str, int]
    clone: str | None = None  # where isolated runs of this worktree work
    unlanded: tuple[str, ...] = ()  # runs whose commits wait there for `evolver land`


def look(layout: Layout) -> Status:
    """The worktree's state, from its locks and the end of its stream."""
    settings = read_settings(os.environ, layout.root / ".env", strict=False)
    for ignored in settings.ignored:
        print(f"evolver: ignored: {ignored}", file=sys.stderr)
    events = layout.events(settings.events)
    last = history.last_run(read_backwards(events)) if events.exists() else None
    cloned = clone.find(layout)
    held = resume_lock.read(layout) or (resume_lock.read(cloned) if cloned is not None else None)
    active = lock.is_held(layout)
    state = (
        "held" if held is not None else "running" if active else "died" if last is not None and last.state == "open" else "idle"
    )
    pre_ref = (
        held.pre_ref
        if held is not None
        else last.iteration.pre_ref
        if last and last.iteration
        else last.pre_ref
        if last
        else None
    )
    return Status(
        state=state,
        worktree=str(layout.root),
        events=str(events),
        pre_ref=pre_ref,
        last_run=last,
        lock=held,
        counts=dict(last.counts) if last is not None else {},
        clone=str(cloned.root) if cloned is not None else None,
        unlanded=tuple(r.run_id for r in clone.unlanded(cloned)) if cloned is not None and state in ("idle", "died") else (),
    )


def show(directory: Path, *, as_json: bool = False, watch: bool = False) -> None:
    """Print it; with `watch` again every second, until interrupted."""
    layout = clone.locate_person(directory)
    while True:
        found = look(layout)
        text = msgspec.json.encode(found).decode() if as_json else "\n".join(_lines(found))
        if watch and sys.stdout.isatty():
            text = "\x1b[H\x1b[2J" + text
        print(text, flush=True)
        if not watch:
            return
        time.sleep(1)


def _order(counted: tuple[str, int]) -> int:
    """As every other list of outcomes has them."""
    return list(GLYPHS).index(counted[0]) if counted[0] in GLYPHS else len(GLYPHS)


def _lines(found: Status) -> list[str]:
    words = {
        "idle": "idle",
        "running": "running",
        "held": "held: a person must run `evolver resume`",
        "died": "a run died; the next `evolver run` or `evolver resume` recovers it",
    }
    out = [f"state     {words[found.state]}", f"worktree  {found.worktree}"]
    last = found.last_run
    if last is not None:
        counts = ", ".join(f"{count} {name.replace('_', ' ')}" for name, count in sorted(found.counts.items(), key=_order)) or "nothing yet"
        out.append(f"last run  {last.run_id} ({one_line(last.loop)}, {last.mode}), started {clock(last.started, date=True)}")
        out.append(f"          iteration {last.iterations} of {last.max_iterations}: {counts}")
        if last.iteration is not None:
            doing = one_line(last.step or last.iteration.phase)
            out.append(f"          now: {doing} of iteration {last.iteration.number}, last sign {clock(last.last_time, date=True)}")
        if last.exit_code is not None:
            since = f"; {decision(last.resumed, last.resumed_by)}" if last.resumed else ""
            out.append(f"          ended: {one_line(last.reason)}, exit {last.exit_code}{since}")
    else:
        out.append("last run  none yet")
    if found.lock is not None:
        out.append(f"lock      {found.lock.iteration_id} since {found.lock.time}: {one_line(found.lock.reason)}")
    if found.clone is not None:
        out.append(f"clone     {found.clone}")
    for run_id in found.unlanded:
        out.append(f"unlanded  {run_id}: `evolver land` brings its commits to your branch")
    if found.pre_ref:
        out.append(f"pre_ref   {found.pre_ref}")
    out.append(f"events    {found.events}")
    return out
