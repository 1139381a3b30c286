"""The values everything else is written in. Frozen, no I/O.

A *loop* is a definition; a *run* is one `evolver run`; an *iteration* is one attempt inside a run; a *step*
is a child process or callable of an iteration. The *baseline* is everything the user had when the iteration
started, the *attempt* is what changed until everything the agent started was dead.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Protocol

import msgspec


class RollbackMode(StrEnum):
    """What becomes of a failed attempt (`EVOLVER_ROLLBACK_MODE`)."""

    HARD = "hard"  # discarded
    STASH = "stash"  # kept as one ordinary stash entry, untracked files included
    NONE = "none"  # left in place; the loop stops until a person resumes


class DirtyPolicy(StrEnum):
    """What to do with tracked or staged changes the user already has."""

    REFUSE = "refuse"
    KEEP = "keep"


class Judgement(StrEnum):
    PASS = "pass"
    FAIL = "fail"
    INCONCLUSIVE = "inconclusive"


class Outcome(StrEnum):
    """How an iteration ended."""

    ACCEPTED = "accepted"
    NO_CHANGE = "no_change"
    ROLLED_BACK = "rolled_back"
    HELD = "held"
    ROLLBACK_FAILED = "rollback_failed"
    INTERRUPTED = "interrupted"


class Verdict(msgspec.Struct, frozen=True):
    """A judgement and why, in words a person can act on."""

    judgement: Judgement
    reason: str
    step: str = ""  # the step that decided it

    @property
    def passed(self) -> bool:
        return self.judgement is Judgement.PASS


class AgentReport(msgspec.Struct, frozen=True, kw_only=True):
    """What an agent CLI said about its own run. Exit codes alone are never believed."""

    ok: bool
    reason: str = ""
    input_tokens: int | None = None
    output_tokens: int | None = None
    cost_usd: str | None = None  # a decimal string: the stream holds no floats
    turns: int | None = None
    session_id: str | None = None
    retry_after_ms: int | None = None
    transient: bool = False  # rate limit, overload, network: not an attempt
    last_message: str = ""  # for completion promises; never written to the stream
    agent: str = ""  # which one spoke: a fallback may have taken over
    calls: int = 1  # how often an agent was started for this attempt; more than one: the others failed by themselves
    waited_ms: int = 0  # between those calls


class StepResult(msgspec.Struct, frozen=True, kw_only=True):
    """How one step ended. Ordinary failure is a value."""

    name: str
    exit_code: int | None = None  # None: killed by a signal, or never started
    signal: int | None = None
    timed_out: bool = False
    interrupted: bool = False
    error: str = ""  # why it could not be started
    duration_ms: int = 0
    log: str = ""  # path of the full output
    log_bytes: int = 0
    log_error: str = ""  # why `log` does not hold all of the output
    tail: str = ""  # last bytes of the output, decoded and redacted; bounded
    survivors: tuple[int, ...] = ()  # pids that could not be killed: nothing may be restored under them
    killed: int = 0  # descendants that had to be killed after the step ended
    flaky: bool = False  # passed only on a retry
    report: AgentReport | None = None

    @property
    def ok(self) -> bool:
        return self.exit_code == 0 and not (self.timed_out or self.interrupted or self.error)

    def describe(self) -> str:
        """One phrase for reasons: `exit 1`, `timed out after 30000 ms`, `killed by signal 9`, `could not start: …`."""
        if self.error:
            return f"could not start: {self.error}"
        if self.interrupted:
            return "interrupted"
        if self.timed_out:
            return f"timed out after {self.duration_ms} ms"
        if self.signal is not None:
            return f"killed by signal {self.signal}"
        return f"exit {self.exit_code}"


@dataclass(frozen=True, slots=True)
class StepContext:
    """What a step is told: where it works and which iteration it belongs to."""

    run_id: str
    iteration: int
    pre_ref: str
    cwd: Path
    step_dir: Path  # scratch outside the worktree, `EVOLVER_STEP_DIR`
    log_dir: Path
    last_failure: Path  # `EVOLVER_LAST_FAILURE`; exists and is empty when nothing failed yet
    repair_round: int = 0
    prompt: str = ""  # rendered for an agent; not in the environment, never in the stream
    on_start: Callable[[int, str], None] | None = None  # told pid and start time as soon as the child lives
    on_output: Callable[[bytes], None] | None = None  # told each chunk, redacted

    @property
    def iteration_id(self) -> str:
        return f"{self.run_id}/{self.iteration}"

    def environment(self) -> dict[str, str]:
        """The variables every step gets, on top of the user's own environment."""
        return {
            "EVOLVER_RUN_ID": self.run_id,
            "EVOLVER_ITERATION": str(self.iteration),
            "EVOLVER_ITERATION_ID": self.iteration_id,
            "EVOLVER_PRE_REF": self.pre_ref,
            "EVOLVER_LAST_FAILURE": str(self.last_failure),
            "EVOLVER_STEP_DIR": str(self.step_dir),
        }


class Codegen(Protocol):
    """Changes the worktree. Extension point: `[codegen] callable = "package.module:name"`."""

    def generate(self, context: StepContext) -> StepResult: ...


class Validator(Protocol):
    """Judges the worktree. May leave droppings; they are removed."""

    @property
    def name(self) -> str: ...

    def validate(self, context: StepContext) -> StepResult: ...
