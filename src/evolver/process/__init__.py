"""The only place that starts children (git apart).

`run` is for steps: a session of their own, output streamed to a log, a timeout that fires on a silent child, and nothing
left alive afterwards. `run_simple` is for short helpers. `sweep_dead_run` is for recovery.
"""

from __future__ import annotations

from evolver.process.runner import run
from evolver.process.simple import run_simple
from evolver.process.sweep import sweep_dead_run
from evolver.process.table import is_running, process_started
from evolver.process.tree import contained, quiesce
from evolver.process.values import RUN_ID, TAIL_BYTES, Command, Finished, Redactor, SimpleFinished

__all__ = [
    "RUN_ID",
    "TAIL_BYTES",
    "Command",
    "Finished",
    "Redactor",
    "SimpleFinished",
    "contained",
    "is_running",
    "process_started",
    "quiesce",
    "run",
    "run_simple",
    "sweep_dead_run",
]
