"""What is shown of a run: its iterations and their steps. Frozen values, made by `timeline.py` from events alone."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal

RUNNING = "running"  # an iteration or run of which no end was seen
# What a person made of a held iteration, where the events of the iteration itself stop at `held`.
KEPT = "kept"
PUT_BACK = "put_back"


@dataclass(frozen=True, slots=True)
class StepView:
    """One step, started or finished."""

    step: str  # codegen | validate | baseline-validate | effect
    name: str
    round: int = 0
    judgement: str = RUNNING
    reason: str = ""
    exit_code: int | None = None
    duration_ms: int = 0
    log: str = ""
    log_bytes: int = 0
    log_error: str = ""
    score: str | None = None
    flaky: bool = False
    killed: int = 0
    agent: str | None = None
    tokens: int = 0
    cost: Decimal = Decimal(0)
    transient: bool = False
    timeout_ms: int | None = None
    started_at: str = ""


@dataclass(frozen=True, slots=True)
class IterationView:
    """One iteration. `outcome` is the contract's word, `running`, or what `resume` made of a held one: `kept`, `put_back`."""

    number: int
    iteration_id: str
    outcome: str = RUNNING
    mode: str = ""
    reason: str = ""
    pre_ref: str = ""
    post_ref: str | None = None
    commit: str | None = None
    branch: str | None = None
    paths: tuple[str, ...] = ()
    paths_total: int = 0
    insertions: int = 0
    deletions: int = 0
    added: int = 0
    modified: int = 0
    deleted: int = 0
    squashed: tuple[str, ...] = ()
    user_files: tuple[str, ...] = ()
    user_files_kept: str = ""
    score: str | None = None
    steps: tuple[StepView, ...] = ()
    verified: bool | None = None
    left: tuple[str, ...] = ()
    leftovers: tuple[str, ...] = ()
    rollback_ref: str = ""
    stash_ref: str | None = None
    attempt_ref: str | None = None
    restored: int = 0
    removed: int = 0
    refs: int = 0
    vault: str = ""
    reverted_by: str | None = None
    recovered: bool = False
    resumed: str = ""  # what `resume` did: kept, rolled_back, unchanged
    resumed_by: str = ""
    note: str = ""  # what the person who resumed said about it
    alerts: tuple[str, ...] = ()
    effects: tuple[str, ...] = ()  # what became of effects that failed or were reverted, a sentence each
    started_at: str = ""
    ended_at: str = ""
    seen_at: str = ""  # its newest event
    closing_at: str = ""  # what came before it was accepted, held or undone: the last sign of one that was killed

    @property
    def duration_ms(self) -> int:
        """From its start to its own end: what `resume` or a recovery did hours later is not counted."""
        return between(self.started_at, self.ended_at)

    @property
    def stayed(self) -> bool:
        """Whether what it made is in the history: accepted, or kept by a person."""
        return self.outcome in ("accepted", KEPT)

    @property
    def judged(self) -> str:
        """The outcome before a person had their say."""
        return "held" if self.outcome in (KEPT, PUT_BACK) else self.outcome

    @property
    def tokens(self) -> int:
        return sum(step.tokens for step in self.steps)

    @property
    def cost(self) -> Decimal:
        return sum((step.cost for step in self.steps), Decimal(0))

    @property
    def best_guess_score(self) -> str | None:
        """The accepted score, else what a validator printed: a rejected attempt has a score, too."""
        return self.score or next((step.score for step in reversed(self.steps) if step.score is not None), None)

    @property
    def failing_step(self) -> StepView | None:
        """The last step that did not pass."""
        return next(
            (step for step in reversed(self.steps) if step.judgement in ("fail", "inconclusive") and not step.transient), None
        )


@dataclass(frozen=True, slots=True)
class RunView:
    """One run."""

    run_id: str
    loop: str = ""
    version: str = ""
    definition_hash: str = ""
    validators_hash: str = ""
    mode: str = ""
    pre_ref: str = ""
    branch: str | None = None
    max_iterations: int = 0
    isolation: str = "inplace"
    left_out: tuple[str, ...] = ()
    red: bool | None = None  # the validators on the baseline
    red_reason: str = ""
    iterations: tuple[IterationView, ...] = ()
    steps: tuple[StepView, ...] = ()  # outside iterations: the baseline's validation
    alerts: tuple[str, ...] = ()
    started_at: str = ""
    ended_at: str = ""
    last_at: str = ""
    reason: str = ""  # the stop condition's name; empty while running, or after a crash
    detail: str = ""
    exit_code: int | None = None
    head: str | None = None
    best: str | None = None
    held: str = ""  # iteration_id the resume lock names; empty: none, or resumed
    recovered: str = ""  # what recovery did
    resumed: str = ""  # what `resume` did about it
    resumed_by: str = ""
    landed: str = ""
    first_sequence: int = 0
    last_sequence: int = 0

    @property
    def finished(self) -> bool:
        return self.exit_code is not None

    @property
    def duration_ms(self) -> int:
        return between(self.started_at, self.ended_at or self.last_at)

    def count(self, outcome: str) -> int:
        return sum(iteration.outcome == outcome for iteration in self.iterations)

    @property
    def tokens(self) -> int:
        return sum(iteration.tokens for iteration in self.iterations)

    @property
    def cost(self) -> Decimal:
        return sum((iteration.cost for iteration in self.iterations), Decimal(0))

    def iteration(self, number: int) -> IterationView | None:
        return next((iteration for iteration in self.iterations if iteration.number == number), None)


def parse_time(text: str) -> datetime | None:
    try:
        return datetime.strptime(text, "%Y-%m-%dT%H:%M:%S.%fZ").replace(tzinfo=UTC)
    except ValueError:
        return None


def between(start: str, end: str) -> int:
    """Milliseconds; 0 when either is missing."""
    first, last = parse_time(start), parse_time(end)
    return max(0, int((last - first).total_seconds() * 1000)) if first and last else 0
