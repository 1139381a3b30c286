"""Logs for tests, written by the real log; and evolver's command line on them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from evolver.events import paths
from evolver.events.log import EventLog
from evolver.events.types import RunPaused

RUN = "01900000-0000-7000-8000-000000000001"
EVOLVER = (sys.executable, "-m", "evolver")


def pause(reason: str = "why") -> RunPaused:
    return RunPaused(from_="running", to="paused", reason=reason)


def write(path: Path, count: int, *, segment_size: int = 64 << 20, mirror: Path | None = None) -> Path:
    """A log of `count` events besides its segments' own."""
    with EventLog.open(path, source="/test", segment_size=segment_size, mirror=mirror) as log:
        for number in range(count):
            log.emit(pause(f"event {number}"), run_id=RUN, iteration=number % 7 + 1)
    return path


def lines(path: Path) -> list[bytes]:
    """Every line of every segment."""
    return [line for file in paths.segments(path) for line in file.read_bytes().splitlines()]


def evolver(*words: str, cwd: Path, **env: str) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        [*EVOLVER, *words], cwd=cwd, env={**os.environ, **env}, capture_output=True, timeout=60, stdin=subprocess.DEVNULL
    )
