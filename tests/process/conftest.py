"""Children are small Python or shell programs; everything is real."""

from __future__ import annotations

import os
import sys
import uuid
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from evolver.process import Command

Make = Callable[..., Command]


@pytest.fixture
def run_id() -> str:
    return str(uuid.uuid4())


@pytest.fixture
def make(tmp_path: Path, run_id: str) -> Make:
    """A command: a string is a shell program, `python=` a Python one."""

    def build(
        shell: str = "",
        *,
        python: str = "",
        argv: tuple[str, ...] = (),
        timeout_ms: int | None = 20_000,
        grace_ms: int = 2_000,
        stdin: bytes = b"",
        env: Mapping[str, str] = {},
        cwd: Path | None = None,
    ) -> Command:
        command = argv or (("sh", "-c", shell) if shell else (sys.executable, "-c", python))
        return Command(
            argv=command,
            cwd=cwd or tmp_path,
            env={**os.environ, "EVOLVER_RUN_ID": run_id, **env},
            timeout_ms=timeout_ms,
            grace_ms=grace_ms,
            log=tmp_path / "logs" / "step.log",
            stdin=stdin,
            name="step",
        )

    return build


def alive(pid: int) -> bool:
    """Whether a process runs (a zombie does not)."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
    except OSError:
        return False
    return fields[0] not in (b"Z", b"X")
