"""A real repository, a real event stream, real commands; effects are run as an iteration would run them."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from evolver.definition import EffectSection
from evolver.effects.approval import Policy
from evolver.effects.runner import EffectRunner
from evolver.events.ids import uuid7
from evolver.events.log import EventLog
from evolver.events.reader import read_backwards
from evolver.events.types import IterationStarted
from evolver.interrupts import Interrupts
from evolver.layout import Layout, locate
from evolver.model import StepContext


def git(cwd: Path, *args: str) -> str:
    return subprocess.run(["git", *args], cwd=cwd, check=True, capture_output=True, text=True).stdout.strip()


@dataclass
class World:
    """One worktree and its stream."""

    root: Path
    layout: Layout
    log: EventLog
    run_id: str
    env: dict[str, str]
    interrupts: Interrupts = field(default_factory=Interrupts)

    def runner(self, *effects: EffectSection, approve: Policy = "listed", loop: str = "") -> EffectRunner:
        """Another call is another process: it knows nothing but the stream."""
        return EffectRunner(
            effects,
            emitter=self.log.bind(self.run_id),
            layout=self.layout,
            interrupts=self.interrupts,
            approve=approve,
            env=self.env,
            loop=loop,
            events=self.log.path,
        )

    def context(self, number: int = 1, cwd: Path | None = None) -> StepContext:
        """Begin an iteration."""
        scratch = self.layout.state / "scratch"
        scratch.mkdir(parents=True, exist_ok=True)
        head = git(self.root, "rev-parse", "HEAD")
        self.log.bind(self.run_id).emit(
            IterationStarted(
                from_="idle",
                to="codegen",
                iteration_id=f"{self.run_id}/{number}",
                rollback_mode="hard",
                pre_ref=head,
                branch="refs/heads/main",
                baseline="",
                files=0,
            ),
            iteration=number,
        )
        return StepContext(
            run_id=self.run_id,
            iteration=number,
            pre_ref=head,
            cwd=cwd or self.root,
            step_dir=scratch,
            log_dir=self.layout.step_logs,
            last_failure=scratch / "last-failure",
        )

    @property
    def iteration(self) -> str:
        return f"{self.run_id}/1"

    def told(self, pattern: str = "effect.") -> list[tuple[str, dict[str, object]]]:
        """Name and data of the stream's events that begin so, oldest first."""
        found = [(e.name, e.decoded()) for e in read_backwards(self.log.path) if e.name.startswith(pattern)]
        return found[::-1]

    def edges(self) -> list[tuple[object, object]]:
        """From and to of every effect event but the approvals."""
        return [(data["from"], data["to"]) for name, data in self.told() if name != "effect.approved"]


def make_world(root: Path) -> World:
    root.mkdir(parents=True, exist_ok=True)
    git(root, "init", "-q")
    (root / "file.txt").write_text("one\n")
    git(root, "add", "-A")
    git(root, "commit", "-qm", "one")
    layout = locate(root)
    layout.state.mkdir(parents=True, exist_ok=True)
    log = EventLog.open(layout.events(None), source="evolver:test", mirror=layout.lifeboat)
    return World(root, layout, log, uuid7(), dict(os.environ))


@pytest.fixture
def world(tmp_path: Path) -> World:
    return make_world(tmp_path / "work")


Effect = Callable[..., EffectSection]


def command(
    name: str = "act", run: str | tuple[str, ...] = "true", undo: str | tuple[str, ...] | None = "true", **more: object
) -> EffectSection:
    return EffectSection(name=name, run=run, undo=undo, **more)  # type: ignore[arg-type]  # the struct checks nothing here
