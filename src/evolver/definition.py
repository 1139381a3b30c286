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

    goal: str = ""  # what the agent is told; also the subject of accepted commits
    max_iters: Annotated[int, msgspec.Meta(ge=1, le=1_000_000_000)] = 20  # iterations of a run
    max_time: Duration | None = None  # wall time of a run
    until: str = ""  # "" | accepted | score | score >= X | promise
    promise: str = ""  # a regular expression: in the agent's last message, or in `promise_file`
    promise_file: str = ""  # the file the promise is looked for in, relative to where steps run
    scope: str = "."  # the folder steps run in, relative to the worktree's top
    isolation: Literal["inplace", "clone"] = "inplace"  # clone: work beside the person, then `evolver land`
    copy: tuple[str, ...] = ()  # ignored dependencies taken into a clone
    link: tuple[str, ...] = ()  # the same, as links
    dirty: DirtyPolicy = DirtyPolicy.REFUSE  # what to do with uncommitted edits of yours


class CodegenSection(Section, frozen=True):
    """`[codegen]`: how an attempt is made. Exactly one of command, callable, agent."""

    command: Command | None = None  # the command that makes an attempt
    callable: str | None = None  # "package.module:name"
    agent: str | None = None  # a preset, or a name of `[agents.NAME]`
    prompt: str | None = None  # template file, relative to the loop file
    args: tuple[str, ...] = ()  # added to the agent's argv
    timeout: Duration = Duration.parse("30m")  # per call, also of a silent one
    grace: Duration = Duration.parse("10s")  # between SIGTERM and SIGKILL
    on_error: Literal["reject", "validate"] = "reject"  # `validate`: a failing exit alone does not reject the attempt
    repairs: Count = 0  # further calls on top of a failed attempt before it is rejected
    fallback: tuple[str, ...] = ()  # agents that take over when a rate limit lasts
    max_wait: Duration = Duration.parse("1h")  # the longest wait for a rate limit to pass
    sandbox: Literal["", "bwrap"] = ""  # run it in bubblewrap: worktree writable, the rest read-only
    network: bool = True  # false: no network; needs the sandbox
    env: dict[str, str] = field(default_factory=dict)  # variables for the step


class ValidatorSection(Section, frozen=True):
    """`[[validator]]`: exit 0 pass, 125 inconclusive, else fail. In order, cheapest first."""

    name: str  # unique; stands in events and reasons
    command: Command | None = None  # the command that judges
    callable: str | None = None  # "package.module:name"
    timeout: Duration = Duration.parse("10m")  # per call; ending it is inconclusive
    when: tuple[str, ...] = ()  # run only when a changed path matches; empty: always
    retries: Count = 0  # further tries of a failing one; passing on a retry is marked flaky
    writes: bool = False  # a formatter: may change the tree, runs first
    network: bool = True  # false: no network; needs bubblewrap
    env: dict[str, str] = field(default_factory=dict)  # variables for the step


class ValidateSection(Section, frozen=True):
    """`[validate]`: what to do with a red start."""

    baseline: Literal["record", "require", "skip"] = "record"  # `require`: refuse to run on a red baseline; `skip`: do not look


class ScoreSection(Section, frozen=True):
    """`[score]`: a number an attempt must improve."""

    validator: str  # the validator that gives it
    pattern: str = ""  # the last matching line's first group
    json: str = ""  # a dotted path into the validator's last JSON line
    file: str = ""  # a file the validator writes, relative to the worktree or to EVOLVER_STEP_DIR
    direction: Literal["higher", "lower"] = "higher"  # which way is better
    min_delta: Decimal = "0"  # the least improvement that counts
    noise: Count = 0  # repeat this often; accept only beyond the median absolute deviation


class RollbackSection(Section, frozen=True):
    """`[rollback]`: what becomes of a failed attempt."""

    mode: RollbackMode = RollbackMode.HARD  # what becomes of a failed attempt
    keep_attempts: Count = 0  # failed attempts kept as private refs, newest first
    leave: tuple[str, ...] = ()  # ignored paths that are no part of the baseline
    ignored: Literal["keep", "leave"] = "keep"  # `leave`: no ignored file is part of the baseline
    ignored_files: Count = 20_000  # how many ignored files are kept
    ignored_bytes: Size = Size.parse("256MiB")  # how many bytes of ignored files are kept
    changes_log: str | None = None  # a changes log of the agent's whose effects beyond git are undone on rejection


class AcceptSection(Section, frozen=True):
    """`[accept]`: how an accepted attempt is committed."""

    commits: Literal["squash", "keep"] = "squash"  # what becomes of the agent's own commits
    hooks: bool = False  # run the repository's hooks on accepted commits
    message: str = ""  # subject; empty: made from the goal and the iteration


class GuardSection(Section, frozen=True):
    """`[guard]`: what an attempt may not do, whatever the validators say."""

    protected: tuple[str, ...] = ()  # globs; the loop's files, `.env` and the validators' scripts always are
    max_files: Count = 0  # 0: no limit
    max_lines: Count = 0  # added and removed lines
    allow_binary: bool = True  # whether binary files may change
    forbid_deletes: bool = False  # no file may be deleted
    secrets: tuple[str, ...] = ()  # extra regular expressions over added lines
    push: Literal["block", "allow"] = "block"  # `git push` fails inside steps
    allow_config: bool = False  # an attempt may change git's own files
    watch: bool = False  # end codegen the moment a protected path is written


class BudgetSection(Section, frozen=True):
    """`[budget]`: checked before each iteration, cost mid-way where the agent reports it."""

    tokens: Count = 0  # 0: no limit
    cost_usd: Decimal = "0"  # US dollars of one run
    cost_usd_per_day: Decimal = "0"  # US dollars of all runs of this worktree since midnight UTC


class BreakerSection(Section, frozen=True):
    """`[breaker]`: limits in a row; one acceptance resets; 0 switches one off."""

    rejections: Count = 10  # rejected
    same_failure: Count = 3  # rejected with the same failure and the same patch
    no_change: Count = 3  # without a change
    inconclusive: Count = 5  # that could not be judged


class EffectSection(Section, frozen=True):
    """`[[effect]]`: something that changes the world outside the worktree."""

    name: str  # unique; stands in events
    when: Literal["before_validate", "after_validate"] = "after_validate"  # before or after the validators
    action: str = "command"  # from the registry
    run: Command | None = None  # what it does, for `command`
    undo: Command | None = None  # what takes it back, for `command`
    args: dict[str, str] = field(default_factory=dict)  # the action's arguments
    timeout: Duration = Duration.parse("10m")  # per call, also of the undo
    risk: Literal["low", "medium", "high"] | None = None  # overrides the action's own


class EffectsSection(Section, frozen=True):
    """`[effects]`: who may run risky effects."""

    approve: Literal["ask", "listed", "never"] = "ask"  # when a risky one may run


class ChangesSection(Section, frozen=True):
    """`[changes]`: additions to the revert mapping: what was executed, the argv that reverts it."""

    revert: dict[str, tuple[str, ...]] = field(default_factory=dict)  # such as `"make install" = ["make", "uninstall"]`


class SinkSection(Section, frozen=True):
    """`[[sink]]`: where events are forwarded."""

    kind: Literal["file", "stdout", "syslog", "webhook", "otlp", "command"]  # where to
    name: str = ""  # for messages; unique
    path: str = ""  # for `file`
    url: str = ""  # for `webhook` and `otlp`
    host: str = "127.0.0.1"  # for `syslog`
    port: int = 514  # for `syslog`
    protocol: Literal["tcp", "udp", "tls"] = "tcp"  # for `syslog`
    command: Command | None = None  # for `command`; it gets each event on standard input
    secret_env: str = ""  # the environment variable that holds the webhook's signing secret
    types: tuple[str, ...] = ()  # globs; empty: all
    severity: Literal["debug", "info", "warning", "error", "alert"] = "debug"  # the least that is forwarded
    drain: Duration = Duration.parse("5s")  # how long the end of a run waits for delivery


class RedactSection(Section, frozen=True):
    """`[redact]`: what never reaches an event, a step log or a sink."""

    patterns: tuple[str, ...] = ()  # regular expressions; what they match is replaced
    env: tuple[str, ...] = ()  # more names of environment variables whose values are secret


class AuditSection(Section, frozen=True):
    """`[audit]`: rotation and signatures of the event stream."""

    sign_key: str | None = None  # SSH Ed25519 key that signs checkpoints
    segment_size: Size = Size.parse("64MiB")  # when a new segment is begun


class AlertsSection(Section, frozen=True):
    """`[alerts]`: who is told."""

    command: Command | None = None  # run for each alert, the event on standard input
    tracker: bool = False  # an issue by `gh` or `glab`
    ls_remote: bool = False  # ask remotes whether an attempt is there; needs the network


class AgentSection(Section, frozen=True):
    """`[agents.NAME]`: an agent CLI of one's own."""

    argv: tuple[str, ...]  # `{prompt}` and `{prompt_file}` are replaced
    prompt: Literal["stdin", "argument", "file"] = "stdin"  # how the prompt is given
    parser: str = "plain"  # a parser of the registry
    env: dict[str, str] = field(default_factory=dict)  # variables for the agent
    rate_limit: str = ""  # a regular expression over the output
    version: tuple[str, ...] = ()  # argv that prints the version


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
