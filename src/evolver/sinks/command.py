"""Each event on a command's standard input. Exit 0: taken."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path

from evolver.definition import Command
from evolver.events.reader import Record
from evolver.process import run_simple
from evolver.sinks.base import SinkError

TIMEOUT_MS = 30_000


class CommandSink:
    def __init__(self, command: Command, env: Mapping[str, str], cwd: Path) -> None:
        self._argv = (shutil.which("sh") or "/bin/sh", "-c", command) if isinstance(command, str) else command
        self._env = env
        self._cwd = cwd

    def deliver(self, record: Record) -> None:
        env = {**self._env, "EVOLVER_EVENT_TYPE": record.envelope.name, "EVOLVER_EVENT_ID": record.envelope.id}
        done = run_simple(self._argv, input=record.line + b"\n", timeout_ms=TIMEOUT_MS, env=env, cwd=self._cwd, keep_bytes=4096)
        if not done.ok:
            raise SinkError(f"{Path(self._argv[0]).name}: {done.describe()}")

    def close(self) -> None:
        pass
