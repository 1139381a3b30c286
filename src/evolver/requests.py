"""`evolver pause` and `evolver stop`: how another process reaches a running loop without signals."""

from __future__ import annotations

import os
import threading
from pathlib import Path
from typing import Literal

from evolver.interrupts import Interrupts
from evolver.layout import Layout

Request = Literal["pause", "stop"]
POLL_S = 0.3
STOP_SIGNAL = 0  # what an asked-for stop looks like among the interrupts: no signal at all


def path_of(layout: Layout, request: Request) -> Path:
    return layout.lifeboat / f"{request}.request"


def ask(layout: Layout, request: Request) -> None:
    """Leave the request; the loop finds it within a second (`stop`), or after its iteration (`pause`)."""
    layout.lifeboat.mkdir(parents=True, exist_ok=True, mode=0o700)
    path_of(layout, request).write_bytes(b"")


def clear(layout: Layout) -> None:
    """Forget what was asked of an earlier run."""
    for request in ("pause", "stop"):
        path_of(layout, request).unlink(missing_ok=True)


def is_asked(layout: Layout, request: Request) -> bool:
    return os.path.exists(path_of(layout, request))  # noqa: PTH110 - `Path.exists` raises where an attempt closed the folder


class StopWatch:
    """Turns a `stop` request into an interrupt while a step runs. Use as a context manager."""

    def __init__(self, layout: Layout, interrupts: Interrupts) -> None:
        self._layout, self._interrupts = layout, interrupts
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="stop-watch", daemon=True)

    def _watch(self) -> None:
        while not self._ended.wait(POLL_S):
            if is_asked(self._layout, "stop"):
                self._interrupts.trigger(STOP_SIGNAL)
                return

    def __enter__(self) -> StopWatch:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()
