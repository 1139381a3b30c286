"""A step context in a scratch folder, and the runner all steps share."""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from evolver.definition import LoadedLoop, LoopDefinition
from evolver.interrupts import Interrupts
from evolver.model import StepContext
from evolver.steps.runner import StepRunner

Load = Callable[[str], LoadedLoop]


@pytest.fixture
def context(tmp_path: Path) -> StepContext:
    for name in ("tree", "scratch", "logs", "loop"):
        (tmp_path / name).mkdir()
    (tmp_path / "last-failure.txt").write_text("")
    return StepContext(
        run_id=str(uuid.uuid4()),
        iteration=3,
        pre_ref="0" * 40,
        cwd=tmp_path / "tree",
        step_dir=tmp_path / "scratch",
        log_dir=tmp_path / "logs",
        last_failure=tmp_path / "last-failure.txt",
    )


@pytest.fixture
def runner() -> StepRunner:
    return StepRunner(Interrupts(), base=dict(os.environ))


@pytest.fixture
def load(tmp_path: Path) -> Load:
    """A loop from the text of a loop file; it lies in `loop/`."""

    def build(text: str) -> LoadedLoop:
        definition = msgspec.toml.decode(text.encode(), type=LoopDefinition, dec_hook=_durations)
        return LoadedLoop(name="test", definition=definition, source=None, directory=tmp_path / "loop", digest="0" * 64)

    return build


def _durations(kind: type, value: object) -> object:
    return kind.parse(value)  # type: ignore[attr-defined]
