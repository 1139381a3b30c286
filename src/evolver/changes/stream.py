"""The worktree's event stream, where there is one: is a run unfinished here, and telling it what was rolled back."""

from __future__ import annotations

import os
from pathlib import Path

from evolver.changes.paths import shown
from evolver.changes.report import ChangesReport
from evolver.errors import BusyError, HeldError, PreflightError
from evolver.events import paths
from evolver.events.reader import read_backwards
from evolver.events.types import ChangesRolledBack
from evolver.history import last_run
from evolver.layout import Layout, locate
from evolver.lock import is_held
from evolver.process import RUN_ID
from evolver.resume_lock import read as read_lock
from evolver.settings import read as read_settings


def refuse_unfinished(folder: Path) -> None:
    """Raise when a run is held, at work or dead in this worktree: its attempt's git settings may be in place, and git would
    run the filters they name. Inside the run itself they are the agent's own.
    """
    if os.environ.get(RUN_ID):
        return
    try:
        layout = locate(folder)
    except PreflightError:
        return
    hint = "Run `evolver resume` first (`--dry-run` shows what it would do)."
    lock = read_lock(layout)
    if lock is not None:
        raise HeldError(f"iteration {lock.iteration_id} is held since {lock.time}: {lock.reason}", hint)
    if is_held(layout):
        raise BusyError("another run is active in this worktree", "Wait for it, or end it with `evolver stop`.")
    stream = _stream(layout)
    last = last_run(read_backwards(stream)) if paths.segments(stream) else None
    if last is not None and last.state == "open":
        raise HeldError(f"run {last.run_id} died here and its attempt is still in the worktree", hint)


def _stream(layout: Layout) -> Path:
    return layout.events(read_settings(os.environ, layout.root / ".env").events)


def announce(layout: Layout, log_path: Path, report: ChangesReport) -> bool:
    """Append `changes.rolled_back`; False: this worktree has no stream. Raise `LogError` when it cannot be written."""
    stream = _stream(layout)
    if not paths.segments(stream):
        return False
    from evolver.events.log import EventLog
    from evolver.redact import Redactor

    source = f"evolver:{layout.root.as_uri().removeprefix('file:')}"
    redactor = Redactor.from_environment(os.environ)
    with EventLog.open(stream, source=source, mirror=layout.lifeboat, redactor=redactor) as log:
        log.emit(ChangesRolledBack(log=shown(str(log_path)), report=report.to_event()), run_id=os.environ.get(RUN_ID) or None)
        if not os.environ.get(RUN_ID) and not layout.resume_lock.exists():
            log.prune_mirror()  # no run is active: the lifeboat keeps nothing but the head
    return True
