"""What the shells complete: loops, agents, runs, iterations. Never an error, never slow: silence is the fallback."""

from __future__ import annotations

import os
from itertools import islice
from pathlib import Path

from evolver.errors import EvolverError

RECENT = 30  # runs and iterations that are offered


def loops(incomplete: str) -> list[str]:
    """The worktree's own loops, then the built-in ones."""
    from evolver.layout import locate
    from evolver.loopfile import builtin_loops, candidates

    try:
        own = candidates(locate(Path(), os.environ).root / "loops")
    except EvolverError:
        own = {}
    return [name for name in dict.fromkeys([*own, *candidates(builtin_loops())]) if name.startswith(incomplete)]


def agents(incomplete: str) -> list[str]:
    from evolver.steps.presets import PRESETS

    return [name for name in PRESETS if name.startswith(incomplete)]


def iterations(incomplete: str) -> list[str]:
    """`last` and the numbers of the last run, newest first."""
    from evolver.cli import pick
    from evolver.cli.stream import find_stream

    try:
        found = pick.run(find_stream(Path()).path, with_iterations=True)
    except (EvolverError, OSError):
        return []
    names = ["last", *(str(i.number) for i in reversed(found.iterations[-RECENT:]))]
    return [name for name in names if name.startswith(incomplete)]


def runs(incomplete: str) -> list[str]:
    from evolver.cli import pick
    from evolver.cli.stream import find_stream

    try:
        recent = islice(pick.runs(find_stream(Path()).path), RECENT)
        return [run.run_id for run in recent if run.run_id.startswith(incomplete)]
    except (EvolverError, OSError):
        return []
