"""Every event evolver writes, as a frozen class: its wire type, severity and `data`.

The wire name of the class `RunStarted` is `dev.evolver.run.started`. Durations are integers in milliseconds and end in
`_ms`; scores are strings; nothing here may hold a secret, a prompt or the contents of a file. New types may be added,
none renamed; readers pass unknown fields through.
"""

from __future__ import annotations

from typing import ClassVar, Literal, Protocol

import msgspec
from msgspec import field

PREFIX = "dev.evolver."
Severity = Literal["debug", "info", "warning", "error", "alert"]


class Event(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=False):
    """The `data` of one event. Subclasses name their wire type and severity."""

    TYPE: ClassVar[str] = ""
    SEVERITY: ClassVar[Severity] = "info"


class Emitter(Protocol):
    """Where events go: the log, and through it every sink. Synced to disk when it returns."""

    def emit(self, event: Event, *, iteration: int | None = None) -> object: ...


class Transition(Event, frozen=True, kw_only=True):
    """An event that changes a state names both ends of the edge."""

    from_: str = field(name="from")
    to: str


# ---------------------------------------------------------------- runs


class RunStarted(Transition, frozen=True, kw_only=True):
    TYPE = "run.started"
    loop: str
    definition_hash: str  # sha256 of the loop definition as used
    validators_hash: str  # sha256 over the validators: their argvs and their scripts
    version: str
    rollback_mode: str
    pre_ref: str
    branch: str | None  # None: detached HEAD
    scope: str
    max_iterations: int
    pid: int
    pid_started: str  # the process's start time, so that a reused pid is not taken for this run
    baseline: str = ""  # fingerprint of what the user had when the run started
    left_out: tuple[str, ...] = ()  # ignored directories beyond the budget
    isolation: str = "inplace"
    git_dir_id: str = ""  # device and inode of the git folder, so that a copy of a live repository is not taken for it


class BaselineValidated(Event, frozen=True, kw_only=True):
    """What the validators said of the baseline, before any attempt: already red, or green."""

    TYPE = "baseline.validated"
    red: bool
    failed: tuple[str, ...] = ()  # the validators that did not pass
    reason: str
    restored: int = 0  # what the validators had dropped or altered


class RunRecovered(Transition, frozen=True, kw_only=True):
    TYPE = "run.recovered"
    SEVERITY: ClassVar[Severity] = "warning"
    iteration_id: str | None
    found: str  # the phase the dead run was in
    action: str  # rolled_back | held | acceptance_recorded | nothing_to_do | rollback_failed
    pre_ref: str | None
    killed: tuple[int, ...] = ()
    attempt_ref: str | None = None  # where what was removed is kept
    copies: str | None = None  # folder with what of it no commit can hold


class RunHeld(Transition, frozen=True, kw_only=True):
    TYPE = "run.held"
    SEVERITY: ClassVar[Severity] = "alert"
    iteration_id: str
    rollback_mode: str
    pre_ref: str
    post_ref: str | None
    reason: str
    exit_code: int


class RunResumed(Transition, frozen=True, kw_only=True):
    TYPE = "run.resumed"
    iteration_id: str
    action: str  # unchanged | kept | rolled_back
    pre_ref: str
    post_ref: str | None
    note: str = ""
    by: str = ""


class RunPaused(Transition, frozen=True, kw_only=True):
    TYPE = "run.paused"
    reason: str = ""


class RunFinished(Transition, frozen=True, kw_only=True):
    TYPE = "run.finished"
    reason: str  # the stop condition's name
    detail: str = ""
    exit_code: int
    iterations: int
    accepted: int
    no_change: int
    rolled_back: int
    held: int
    head: str | None
    duration_ms: int
    tokens: int = 0
    cost_usd: str = "0"
    best_score: str | None = None


class RunLanded(Event, frozen=True, kw_only=True):
    TYPE = "run.landed"
    branch: str
    old: str
    new: str
    commits: int
    how: str  # ff | squash | rebase | merged (found on the branch already)


# ---------------------------------------------------------------- iterations


class IterationStarted(Transition, frozen=True, kw_only=True):
    TYPE = "iteration.started"
    iteration_id: str
    rollback_mode: str
    pre_ref: str
    branch: str | None
    baseline: str  # fingerprint of everything the user had
    files: int
    changes_digest: str | None = None  # of a changes log that the user had: it tells of nothing this attempt did


class IterationAccepting(Transition, frozen=True, kw_only=True):
    """The intent: validators passed, the commit is about to be made."""

    TYPE = "iteration.accepting"
    iteration_id: str
    pre_ref: str
    post_ref: str | None
    tree: str


class IterationAccepted(Transition, frozen=True, kw_only=True):
    TYPE = "iteration.accepted"
    iteration_id: str
    pre_ref: str
    commit: str
    branch: str | None
    paths: tuple[str, ...]  # the first hundred
    paths_total: int
    insertions: int = 0
    deletions: int = 0
    squashed: tuple[str, ...] = ()  # the agent's own commits
    user_files: tuple[str, ...] = ()  # untracked files of the user that the attempt changed
    user_files_kept: str = ""  # where their earlier bytes are
    score: str | None = None
    duration_ms: int = 0


class IterationNoChange(Transition, frozen=True, kw_only=True):
    TYPE = "iteration.no_change"
    iteration_id: str
    pre_ref: str
    reason: str
    restored: int = 0
    verified: bool = True
    stash_ref: str | None = None  # what nothing would have committed is kept here (mode stash)
    attempt_ref: str | None = None  # or here ([rollback] keep_attempts)
    duration_ms: int = 0


class IterationInspected(Event, frozen=True, kw_only=True):
    """What the attempt changed, counted once nothing of it was alive any more."""

    TYPE = "iteration.inspected"
    iteration_id: str
    pre_ref: str
    post_ref: str | None
    added: int
    modified: int
    deleted: int
    paths: tuple[str, ...]  # the first hundred
    commits: int
    refs: tuple[str, ...]
    control: tuple[str, ...]
    committable: bool
    patch_id: str = ""


class IterationReverted(Event, frozen=True, kw_only=True):
    TYPE = "iteration.reverted"
    iteration_id: str
    commit: str
    revert_commit: str | None
    conflicts: tuple[str, ...] = ()


class StepStarted(Event, frozen=True, kw_only=True):
    TYPE = "step.started"
    iteration_id: str
    step: str  # codegen | baseline-validate | validate | effect
    name: str
    argv_hash: str = ""
    timeout_ms: int | None = None
    round: int = 0


class StepRunning(Event, frozen=True, kw_only=True):
    """The child lives: its pid and start time, so that a later process can find and kill it."""

    TYPE = "step.running"
    SEVERITY: ClassVar[Severity] = "debug"
    iteration_id: str
    name: str
    pid: int
    pid_started: str


class StepFinished(Event, frozen=True, kw_only=True):
    TYPE = "step.finished"
    iteration_id: str
    step: str
    name: str
    judgement: str  # pass | fail | inconclusive
    reason: str
    exit_code: int | None
    signal: int | None = None
    timed_out: bool = False
    duration_ms: int
    log: str
    log_bytes: int
    log_error: str = ""  # why the log does not hold all of the output
    round: int = 0
    flaky: bool = False
    score: str | None = None
    killed: int = 0  # descendants that had to be killed at quiesce
    agent: str | None = None
    calls: int = 1  # how often an agent was started; more than one: the others failed by themselves (rate limits)
    waited_ms: int = 0  # between those calls
    input_tokens: int | None = None
    output_tokens: int | None = None
    cost_usd: str | None = None
    turns: int | None = None
    session_id: str | None = None
    transient: bool = False


# ---------------------------------------------------------------- rollback


class Rollback(Transition, frozen=True, kw_only=True):
    """What every `rollback.*` event says, so that a run can be reconstructed when the tree is gone."""

    iteration_id: str
    rollback_mode: str
    pre_ref: str
    post_ref: str | None
    reason: str


class RollbackStarted(Rollback, frozen=True, kw_only=True):
    TYPE = "rollback.started"


class RollbackFinished(Rollback, frozen=True, kw_only=True):
    TYPE = "rollback.finished"
    verified: bool
    left: tuple[str, ...]
    rollback_ref: str
    stash_ref: str | None = None
    attempt_ref: str | None = None
    copies: str | None = None  # folder with what no commit can hold: nested repositories; after a crash ignored files too
    restored: int = 0
    deleted: int = 0
    refs: int = 0
    changes_report: dict[str, object] | None = None  # the report of the changes log, in its document's own fields
    duration_ms: int


class RollbackFailed(Rollback, frozen=True, kw_only=True):
    TYPE = "rollback.failed"
    SEVERITY: ClassVar[Severity] = "alert"
    verified: bool
    left: tuple[str, ...]
    leftovers: tuple[str, ...]  # what still differs, the first hundred
    rollback_ref: str
    stash_ref: str | None = None
    vault: str  # where the baseline is kept, so that a person can finish by hand
    duration_ms: int


class RollbackSkipped(Rollback, frozen=True, kw_only=True):
    TYPE = "rollback.skipped"
    SEVERITY: ClassVar[Severity] = "warning"
    vault: str


# ---------------------------------------------------------------- effects, changes logs


class EffectEvent(Transition, frozen=True, kw_only=True):
    iteration_id: str
    effect: str
    action: str
    definition_hash: str = ""
    rollback_available: bool = False


class EffectStarted(EffectEvent, frozen=True, kw_only=True):
    TYPE = "effect.started"
    recorded: dict[str, str] = field(default_factory=dict)  # what the compensation needs, taken before the act


class EffectFinished(EffectEvent, frozen=True, kw_only=True):
    TYPE = "effect.finished"
    exit_code: int | None
    reason: str = ""
    duration_ms: int = 0


class EffectRollingBack(EffectEvent, frozen=True, kw_only=True):
    """The intent to revert: the effect failed, or its iteration was rejected after it."""

    TYPE = "effect.rolling_back"
    SEVERITY: ClassVar[Severity] = "warning"
    reason: str
    exit_code: int | None = None


class EffectRolledBack(EffectEvent, frozen=True, kw_only=True):
    TYPE = "effect.rolled_back"
    rollback_ref: str
    reason: str = ""
    duration_ms: int = 0


class EffectFailed(EffectEvent, frozen=True, kw_only=True):
    TYPE = "effect.failed"
    SEVERITY: ClassVar[Severity] = "error"
    reason: str
    exit_code: int | None = None
    rollback_ref: str | None = None


class EffectApproved(Transition, frozen=True, kw_only=True):
    TYPE = "effect.approved"
    effect: str
    action: str
    definition_hash: str  # of this effect: its command, its undo, its args, its risk
    risk: str
    rollback_available: bool
    by: str  # the person who granted it; `loop file` where the loop says `approve = "listed"`


class ChangesRolledBack(Event, frozen=True, kw_only=True):
    TYPE = "changes.rolled_back"
    log: str
    report: dict[str, object]


# ---------------------------------------------------------------- audit, alerts, sinks


class AuditCheckpoint(Event, frozen=True, kw_only=True):
    TYPE = "audit.checkpoint"
    origin: str
    at_sequence: int
    at_hash: str
    signature: str
    public_key: str


class AlertPushedAttempt(Event, frozen=True, kw_only=True):
    TYPE = "alert.pushed_attempt"
    SEVERITY: ClassVar[Severity] = "alert"
    iteration_id: str
    remote: str
    refs: tuple[str, ...]
    commits: tuple[str, ...]


class AlertControlChanged(Event, frozen=True, kw_only=True):
    TYPE = "alert.control_changed"
    SEVERITY: ClassVar[Severity] = "alert"
    iteration_id: str
    paths: tuple[str, ...]
    reverted: bool


class AlertLogTampered(Event, frozen=True, kw_only=True):
    TYPE = "alert.log_tampered"
    SEVERITY: ClassVar[Severity] = "alert"
    file: str
    kind: str
    expected_sequence: int
    expected_hash: str
    found: str


class AlertStalled(Event, frozen=True, kw_only=True):
    TYPE = "alert.stalled"
    SEVERITY: ClassVar[Severity] = "alert"
    condition: str
    detail: str


class AlertRefsLeft(Event, frozen=True, kw_only=True):
    TYPE = "alert.refs_left"
    SEVERITY: ClassVar[Severity] = "alert"
    iteration_id: str
    refs: tuple[str, ...]  # another worktree's: not put back
    put_back: tuple[str, ...] = ()  # may be another worktree's doing: put back, what they said kept below refs/evolver/attempts/moved/


class SinkGap(Event, frozen=True, kw_only=True):
    TYPE = "sink.gap"
    SEVERITY: ClassVar[Severity] = "warning"
    sink: str
    dropped: int
    first_sequence: int
    last_sequence: int
    reason: str


class LogRecovered(Event, frozen=True, kw_only=True):
    TYPE = "log.recovered"
    SEVERITY: ClassVar[Severity] = "warning"
    torn_bytes: int
    kept_as: str
    reason: str = "torn tail"


class SegmentOpened(Event, frozen=True, kw_only=True):
    """The first line of a segment: what ties it to the one before and to the definition in force."""

    TYPE = "segment.opened"
    log: str  # identity of the whole stream: the same in all its segments
    segment: int
    previous_segment: str | None
    previous_hash: str | None
    version: str
    definition_hash: str | None = None
    validators: tuple[str, ...] = ()  # sha256 of each validator: its argv and its scripts
    pre_ref: str | None = None


class SegmentClosed(Event, frozen=True, kw_only=True):
    TYPE = "segment.closed"
    segment: int
    count: int
    bytes: int
    last_hash: str


def all_types() -> dict[str, type[Event]]:
    """Wire type (without prefix) to class, for the schema, the docs and the tests."""
    found: dict[str, type[Event]] = {}
    pending: list[type[Event]] = [Event]
    while pending:
        cls = pending.pop()
        pending.extend(cls.__subclasses__())
        if cls.TYPE:
            found[cls.TYPE] = cls
    return dict(sorted(found.items()))
