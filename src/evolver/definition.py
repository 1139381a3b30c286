"""What a loop file may say: typed, strict, frozen. An unknown key is an error, never ignored.

`loopfile.py` finds and reads the files; this module is the shape alone, and the reference page is generated from it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import msgspec
from msgspec import field

from evolver.durations import Duration, Size
from evolver.model import DirtyPolicy, RollbackMode

Count = Annotated[int, msgspec.Meta(ge=0)]
Command = str | tuple[str, ...]  # a string is run by `sh -c`, a list is an argv
Decimal = Annotated[str, msgspec.Meta(pattern=r"^\d+(\.\d+)?$")]  # money and scores are decimal strings, never floats


class Section(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A table of a loop file."""


class Loop(Section, frozen=True):
    """`[loop]`: the goal, where it works, when it ends."""

    goal: str = ""
    max_iters: Annotated[int, msgspec.Meta(ge=1)] = 20
    max_time: Duration | None = None
    until: str = ""  # "" | accepted | score | score >= X | promise
    promise: str = ""  # a regular expression: in the agent's last message, or in `promise_file`
    promise_file: str = ""
    scope: str = "."
    isolation: Literal["inplace", "clone"] = "inplace"
    copy: tuple[str, ...] = ()  # ignored dependencies taken into a clone
    link: tuple[str, ...] = ()
    dirty: DirtyPolicy = DirtyPolicy.REFUSE


class CodegenSection(Section, frozen=True):
    """`[codegen]`: how an attempt is made. Exactly one of command, callable, agent."""

    command: Command | None = None
    callable: str | None = None  # "package.module:name"
    agent: str | None = None
    prompt: str | None = None  # template file, relative to the loop file
    args: tuple[str, ...] = ()  # added to the agent's argv
    timeout: Duration = Duration.parse("30m")
    grace: Duration = Duration.parse("10s")
    on_error: Literal["reject", "validate"] = "reject"
    repairs: Count = 0
    fallback: tuple[str, ...] = ()
    max_wait: Duration = Duration.parse("1h")  # the longest wait for a rate limit to pass
    sandbox: Literal["", "bwrap"] = ""
    network: bool = True
    env: dict[str, str] = field(default_factory=dict)


class ValidatorSection(Section, frozen=True):
    """`[[validator]]`: exit 0 pass, 125 inconclusive, else fail. In order, cheapest first."""

    name: str
    command: Command | None = None
    callable: str | None = None
    timeout: Duration = Duration.parse("10m")
    when: tuple[str, ...] = ()  # run only when a changed path matches; empty: always
    retries: Count = 0
    writes: bool = False  # a formatter: may change the tree, runs first
    network: bool = True
    env: dict[str, str] = field(default_factory=dict)


class ValidateSection(Section, frozen=True):
    """`[validate]`: what to do with a red start."""

    baseline: Literal["record", "require", "skip"] = "record"


class ScoreSection(Section, frozen=True):
    """`[score]`: a number an attempt must improve."""

    validator: str
    pattern: str = ""  # the last matching line's first group
    json: str = ""  # a dotted path into the validator's last JSON line
    file: str = ""  # a file the validator writes, relative to the worktree or to EVOLVER_STEP_DIR
    direction: Literal["higher", "lower"] = "higher"
    min_delta: Decimal = "0"
    noise: Count = 0  # repeat this often; accept only beyond the median absolute deviation


class RollbackSection(Section, frozen=True):
    """`[rollback]`: what becomes of a failed attempt."""

    mode: RollbackMode = RollbackMode.HARD
    keep_attempts: Count = 0
    leave: tuple[str, ...] = ()  # ignored paths that are no part of the baseline
    ignored: Literal["keep", "leave"] = "keep"
    ignored_files: Count = 20_000
    ignored_bytes: Size = Size.parse("256MiB")
    changes_log: str | None = None


class AcceptSection(Section, frozen=True):
    """`[accept]`: how an accepted attempt is committed."""

    commits: Literal["squash", "keep"] = "squash"
    hooks: bool = False
    message: str = ""  # subject; empty: made from the goal and the iteration


class GuardSection(Section, frozen=True):
    """`[guard]`: what an attempt may not do, whatever the validators say."""

    protected: tuple[str, ...] = ()
    max_files: Count = 0  # 0: no limit
    max_lines: Count = 0
    allow_binary: bool = True
    forbid_deletes: bool = False
    secrets: tuple[str, ...] = ()  # extra regular expressions over added lines
    push: Literal["block", "allow"] = "block"
    allow_config: bool = False
    watch: bool = False


class BudgetSection(Section, frozen=True):
    """`[budget]`: checked before each iteration, cost mid-way where the agent reports it."""

    tokens: Count = 0  # 0: no limit
    cost_usd: Decimal = "0"
    cost_usd_per_day: Decimal = "0"


class BreakerSection(Section, frozen=True):
    """`[breaker]`: limits in a row; one acceptance resets; 0 switches one off."""

    rejections: Count = 10
    same_failure: Count = 3
    no_change: Count = 3
    inconclusive: Count = 5


class EffectSection(Section, frozen=True):
    """`[[effect]]`: something that changes the world outside the worktree."""

    name: str
    when: Literal["before_validate", "after_validate"] = "after_validate"
    action: str = "command"  # from the registry
    run: Command | None = None
    undo: Command | None = None
    args: dict[str, str] = field(default_factory=dict)
    timeout: Duration = Duration.parse("10m")
    risk: Literal["low", "medium", "high"] | None = None


class EffectsSection(Section, frozen=True):
    """`[effects]`: who may run risky effects."""

    approve: Literal["ask", "listed", "never"] = "ask"


class ChangesSection(Section, frozen=True):
    """`[changes]`: additions to the revert mapping: what was executed, the argv that reverts it."""

    revert: dict[str, tuple[str, ...]] = field(default_factory=dict)


class SinkSection(Section, frozen=True):
    """`[[sink]]`: where events are forwarded."""

    kind: Literal["file", "stdout", "syslog", "webhook", "otlp", "command"]
    name: str = ""
    path: str = ""
    url: str = ""
    host: str = "127.0.0.1"
    port: int = 514
    protocol: Literal["tcp", "udp", "tls"] = "tcp"
    command: Command | None = None
    secret_env: str = ""  # the environment variable that holds the webhook's signing secret
    types: tuple[str, ...] = ()  # globs; empty: all
    severity: Literal["debug", "info", "warning", "error", "alert"] = "debug"
    drain: Duration = Duration.parse("5s")


class RedactSection(Section, frozen=True):
    """`[redact]`: what never reaches an event, a step log or a sink."""

    patterns: tuple[str, ...] = ()
    env: tuple[str, ...] = ()  # more names of environment variables whose values are secret


class AuditSection(Section, frozen=True):
    """`[audit]`: rotation and signatures of the event stream."""

    sign_key: str | None = None
    segment_size: Size = Size.parse("64MiB")


class AlertsSection(Section, frozen=True):
    """`[alerts]`: who is told."""

    command: Command | None = None
    tracker: bool = False  # an issue by `gh` or `glab`
    ls_remote: bool = False


class AgentSection(Section, frozen=True):
    """`[agents.NAME]`: an agent CLI of one's own."""

    argv: tuple[str, ...]  # `{prompt}` and `{prompt_file}` are replaced
    prompt: Literal["stdin", "argument", "file"] = "stdin"
    parser: str = "plain"  # a parser of the registry
    env: dict[str, str] = field(default_factory=dict)
    rate_limit: str = ""  # a regular expression over the output
    version: tuple[str, ...] = ()


class LoopDefinition(Section, frozen=True):
    """One whole loop."""

    loop: Loop = Loop()
    codegen: CodegenSection = CodegenSection()
    validator: tuple[ValidatorSection, ...] = ()
    validate: ValidateSection = ValidateSection()
    score: ScoreSection | None = None
    rollback: RollbackSection = RollbackSection()
    accept: AcceptSection = AcceptSection()
    guard: GuardSection = GuardSection()
    budget: BudgetSection = BudgetSection()
    breaker: BreakerSection = BreakerSection()
    effect: tuple[EffectSection, ...] = ()
    effects: EffectsSection = EffectsSection()
    changes: ChangesSection = ChangesSection()
    sink: tuple[SinkSection, ...] = ()
    redact: RedactSection = RedactSection()
    audit: AuditSection = AuditSection()
    alerts: AlertsSection = AlertsSection()
    agents: dict[str, AgentSection] = field(default_factory=dict)


class LoadedLoop(msgspec.Struct, frozen=True, kw_only=True):
    """A definition and where it came from."""

    name: str
    definition: LoopDefinition
    source: Path | None  # None: made from flags
    directory: Path  # what relative paths in it are relative to
    digest: str  # sha256 of the definition as used (after flags and environment)
