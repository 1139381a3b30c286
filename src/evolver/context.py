"""What every part of a run shares. Made once by `loop.py`, frozen."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from evolver.definition import LoadedLoop
from evolver.effects.outcome import Compensation
from evolver.events.types import Emitter
from evolver.feedback import Feedback
from evolver.interrupts import Interrupts
from evolver.layout import Layout
from evolver.model import Codegen, RollbackMode, StepContext, Validator, Verdict
from evolver.stop import RunState
from evolver.worktree.values import Attempt
from evolver.worktree.workspace import Workspace


class Effects(Protocol):
    """What changes the world outside the worktree, and takes it back."""

    def preflight(self) -> None:
        """Raise `PreflightError` when a risky effect may not run."""
        ...

    def run(self, when: str, context: StepContext) -> tuple[Verdict | None, bool]:
        """Verdict (None: nothing to do or all well) and whether a person is needed."""
        ...

    def compensate(self, iteration_id: str) -> Compensation: ...

    @property
    def output(self) -> str:
        """What the effect printed that failed last; empty when none did."""
        ...


@dataclass(frozen=True)
class RunContext:
    """One run: its definition, its worktree, its stream, its steps."""

    run_id: str
    loaded: LoadedLoop
    layout: Layout
    workspace: Workspace
    events: Emitter
    interrupts: Interrupts
    codegen: Codegen
    validators: tuple[Validator, ...]
    scratch: Path  # outside the worktree, removed at the end
    protected: tuple[str, ...] = ()
    packages: tuple[tuple[Path, str], ...] = ()  # package.json files whose scripts validators run, and what they said
    person: Layout | None = None  # whose worktree it is for, when the run works in a clone
    effects: Effects | None = None
    render_prompt: Callable[[StepContext, Feedback, RunState], str] | None = None
    on_output: Callable[[bytes], None] | None = None
    restore_log: Callable[[], None] = lambda: None  # the agent may have deleted the stream with `.git`
    alert_pushed: Callable[[str, int, Attempt], int] = lambda iteration_id, number, attempt: 0

    @property
    def mode(self) -> RollbackMode:
        return self.loaded.definition.rollback.mode

    @property
    def home(self) -> Layout:
        """Where a person looks for the run: its stream, its logs, requests to stop it."""
        return self.person or self.layout

    @property
    def workdir(self) -> Path:
        """Where steps run: the folder the user stands in, or the loop's scope."""
        scope = self.loaded.definition.loop.scope
        return self.layout.root / (scope if scope != "." else self.layout.prefix)

    def iteration_id(self, number: int) -> str:
        return f"{self.run_id}/{number}"

    def step_context(self, number: int, pre_ref: str) -> StepContext:
        """What the steps of an iteration are told; makes their scratch folder."""
        scratch = self.scratch / str(number)
        scratch.mkdir(parents=True, exist_ok=True)
        return StepContext(
            run_id=self.run_id,
            iteration=number,
            pre_ref=pre_ref,
            cwd=self.workdir,
            step_dir=scratch,
            log_dir=self.home.step_logs / self.run_id / str(number),
            last_failure=self.scratch / "last-failure.txt",
        )
