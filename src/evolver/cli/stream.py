"""Which log a command reads."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import typer

from evolver.errors import PreflightError
from evolver.events import paths
from evolver.layout import Layout, locate
from evolver.settings import read as read_settings


@contextmanager
def quiet_pipe() -> Iterator[None]:
    """A reader that has what it wanted (`head`, a closed pager) ends the command, quietly and well."""
    try:
        yield
        sys.stdout.flush()
    except BrokenPipeError:
        # Python flushes once more at exit, and would complain then.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise typer.Exit(0) from None


class Stream(NamedTuple):
    """Where a worktree's log is. `layout` None: named by EVOLVER_EVENTS, outside any worktree."""

    path: Path
    layout: Layout | None
    lifeboat: Path | None


def find_stream(directory: Path, env: Mapping[str, str] = os.environ) -> Stream:
    """The log to read: EVOLVER_EVENTS, else the worktree's, else what the lifeboat holds of it. Raise `PreflightError`."""
    try:
        layout = locate(directory, env)
    except PreflightError:
        named = env.get("EVOLVER_EVENTS")
        if not named:
            raise
        return Stream(Path(os.path.realpath(Path(named).expanduser())), None, None)
    path = layout.events(read_settings(env, layout.root / ".env").events)
    kept = layout.lifeboat / path.name
    if not paths.segments(path) and kept.exists():
        return Stream(kept, layout, layout.lifeboat)
    return Stream(path, layout, layout.lifeboat)
