"""Undoing what a changes log lists: files from backups, created files, commands, commits, artifacts.

    report = rollback_changes(".bug-changes.json", confirm=None)

`rollback.py` is the whole operation for a log of its own, `prepare.py` the part of it that a loop needs beside its own
restore, `recorder.py` writes such logs. The log is written by an agent, so nothing in it is believed.
"""

from __future__ import annotations

from importlib import import_module
from types import MappingProxyType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from evolver.changes.recorder import ChangesRecorder
    from evolver.changes.report import ChangesReport
    from evolver.changes.rollback import rollback_changes

__all__ = ["ChangesRecorder", "ChangesReport", "rollback_changes"]

# Loaded when first used: most of evolver needs one module of this package, not the whole.
_HOMES = MappingProxyType({"ChangesRecorder": "recorder", "ChangesReport": "report", "rollback_changes": "rollback"})


def __getattr__(name: str) -> object:
    if name in _HOMES:
        return getattr(import_module(f"evolver.changes.{_HOMES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
