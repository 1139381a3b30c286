"""What is started, and how it ended."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

RUN_ID = "EVOLVER_RUN_ID"  # in the environment of everything a run starts: recovery finds survivors by it
TAIL_BYTES = 64 * 1024
CHUNK = 64 * 1024


class Redactor(Protocol):
    """Takes secrets out of a stream. One object a stream: a secret may lie across two chunks, so it may hold bytes back.

    What it holds back must be bounded, whatever arrives: a line can be a gibibyte long.
    """

    def feed(self, chunk: bytes) -> bytes: ...

    def flush(self) -> bytes: ...


@dataclass(frozen=True, slots=True)
class Command:
    """A child to start in its own session. Times in milliseconds; `timeout_ms` None: no limit."""

    argv: tuple[str, ...]
    cwd: Path
    env: Mapping[str, str]
    timeout_ms: int | None
    grace_ms: int
    log: Path
    stdin: bytes = b""
    name: str = ""


@dataclass(frozen=True, slots=True)
class Finished:
    """How a child ended, once nothing it started was alive any more (`survivors` apart)."""

    exit_code: int | None = None  # None: ended by a signal, or never started
    signal: int | None = None
    timed_out: bool = False
    interrupted: bool = False
    error: str = ""  # why it could not be started
    duration_ms: int = 0
    log_bytes: int = 0  # what the child wrote, after redaction
    log_error: str = ""  # why the log file is not complete; the child's output was read on
    tail: bytes = b""  # the last `TAIL_BYTES` of it
    survivors: tuple[int, ...] = ()  # pids that could not be killed
    killed: int = 0  # processes the child left behind


@dataclass(frozen=True, slots=True)
class SimpleFinished:
    """How a helper command ended (`run_simple`)."""

    exit_code: int | None = None
    signal: int | None = None
    timed_out: bool = False
    error: str = ""
    duration_ms: int = 0
    stdout: bytes = b""
    stderr: bytes = b""
    truncated: bool = False  # more came than was kept

    @property
    def ok(self) -> bool:
        return self.exit_code == 0 and not self.timed_out and not self.error

    def describe(self) -> str:
        if self.error:
            return f"could not start: {self.error}"
        if self.timed_out:
            return f"timed out after {self.duration_ms} ms"
        if self.signal is not None:
            return f"killed by signal {self.signal}"
        return f"exit {self.exit_code}"
