"""Telling the worktree's event stream what was rolled back, where there is such a stream."""

from __future__ import annotations

import os
from pathlib import Path

from evolver.changes.paths import shown
from evolver.changes.report import ChangesReport
from evolver.events import paths
from evolver.events.types import ChangesRolledBack
from evolver.layout import Layout
from evolver.process import RUN_ID
from evolver.settings import read as read_settings


def announce(layout: Layout, log_path: Path, report: ChangesReport) -> bool:
    """Append `changes.rolled_back`; False: this worktree has no stream. Raise `LogError` when it cannot be written."""
    stream = layout.events(read_settings(os.environ, layout.root / ".env").events)
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
