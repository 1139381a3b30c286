"""Every EVOLVER_* variable, in one literal table, and where their values come from.

Precedence: flag, environment, `.env` of the worktree, loop file, default. `.env.example` and the reference page are
compared with this table by a test.
"""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from evolver.durations import Duration, Size
from evolver.errors import UsageError


def _text(value: str) -> object:
    return value


def _count(value: str) -> object:
    if not (value.isascii() and value.isdigit()):
        raise ValueError(f"expected a whole number, got {value!r}")
    return int(value)


def _duration(value: str) -> object:
    Duration.parse(value)
    return value


def _size(value: str) -> object:
    Size.parse(value)
    return value


@dataclass(frozen=True, slots=True)
class Variable:
    """One variable. `key` is the loop-file key it overrides (dotted), empty when it has none."""

    name: str
    default: str
    meaning: str
    key: str = ""
    parse: Callable[[str], object] = _text
    dotenv: bool = True  # False: must be known before anything in the worktree is believed


VARIABLES = (
    Variable("EVOLVER_ROLLBACK_MODE", "hard", "hard, stash or none: what becomes of a failed attempt", "rollback.mode"),
    Variable("EVOLVER_LOOP", "", "the loop to run when none is named"),
    Variable("EVOLVER_MAX_ITERS", "20", "iterations of a run", "loop.max_iters", _count),
    Variable("EVOLVER_MAX_TIME", "", "wall time of a run, such as 8h", "loop.max_time", _duration),
    Variable("EVOLVER_UNTIL", "", "accepted, score, `score >= X` or promise: the goal", "loop.until"),
    Variable("EVOLVER_DIRTY", "refuse", "refuse or keep: your own uncommitted edits of tracked files", "loop.dirty"),
    Variable("EVOLVER_ISOLATION", "inplace", "inplace or clone: where the run works", "loop.isolation"),
    Variable("EVOLVER_CODEGEN", "", "the command that makes an attempt", "codegen.command"),
    Variable("EVOLVER_AGENT", "", "the agent preset that makes an attempt", "codegen.agent"),
    Variable("EVOLVER_CODEGEN_TIMEOUT", "30m", "the longest an attempt may take", "codegen.timeout", _duration),
    Variable("EVOLVER_GRACE", "10s", "between SIGTERM and SIGKILL", "codegen.grace", _duration),
    Variable("EVOLVER_KEEP_ATTEMPTS", "0", "failed attempts kept as private refs", "rollback.keep_attempts", _count),
    Variable("EVOLVER_SIGN_KEY", "", "SSH Ed25519 key that signs checkpoints of the event stream", "audit.sign_key"),
    Variable("EVOLVER_EVENTS", "", "path of the event stream, outside the worktree; empty: in the git folder"),
    Variable("EVOLVER_STATE_DIR", "", "where lifeboats are kept; empty: XDG_STATE_HOME/evolver", dotenv=False),
    Variable(
        "EVOLVER_MAX_VAULT", "2GiB", "the most untracked bytes a run keeps safe; above it the run is refused", parse=_size
    ),
    Variable("EVOLVER_SINK_FILE", "", "forward events to this file"),
    Variable("EVOLVER_SINK_STDOUT", "", "1: forward events to standard output"),
    Variable("EVOLVER_SINK_SYSLOG", "", "forward events to tcp://HOST:PORT, udp://HOST:PORT or tls://HOST:PORT"),
    Variable("EVOLVER_SINK_WEBHOOK", "", "forward events to this URL"),
    Variable("EVOLVER_SINK_WEBHOOK_SECRET", "", "signs webhook deliveries (Standard Webhooks); never written anywhere"),
    Variable("EVOLVER_SINK_OTLP", "", "forward events to this OTLP/HTTP logs endpoint"),
    Variable("EVOLVER_SINK_COMMAND", "", "forward each event to this command's standard input"),
    Variable("EVOLVER_DEBUG", "0", "1: show tracebacks"),
    Variable("EVOLVER_CRASH_AT", "", "for tests: kill evolver at this crash point (see crash.py)", dotenv=False),
)
BY_NAME: Mapping[str, Variable] = {v.name: v for v in VARIABLES}

# What evolver sets for steps; never read as settings.
STEP_VARIABLES: Mapping[str, str] = {
    "EVOLVER_RUN_ID": "the run",
    "EVOLVER_ITERATION": "the iteration's number, from 1",
    "EVOLVER_ITERATION_ID": "RUN_ID/N",
    "EVOLVER_PRE_REF": "the commit the iteration started from",
    "EVOLVER_LAST_FAILURE": "a file with why the last attempt was rejected and the failing validator's output",
    "EVOLVER_STEP_DIR": "scratch outside the worktree, removed when the run ends",
}

# What evolver sets for a `[[sink]]` command, which gets the event itself on standard input.
SINK_VARIABLES: Mapping[str, str] = {
    "EVOLVER_EVENT_ID": "the event's id, the same at every attempt to deliver it",
    "EVOLVER_EVENT_TYPE": "the event's type",
}


_OTHERS = frozenset({*STEP_VARIABLES, "EVOLVER_CRASH_AT"})


@dataclass(frozen=True, slots=True)
class Override:
    """A loop-file key set from outside the file, and by what, for error messages."""

    key: str
    value: object
    source: str


@dataclass(frozen=True, slots=True)
class Settings:
    """The variables as found, each with its source."""

    values: Mapping[str, tuple[str, str]]  # name -> (text, source)
    unknown: tuple[str, ...] = ()  # EVOLVER_* names that are no setting: most likely slips
    ignored: tuple[str, ...] = ()  # what is wrong with the `.env`, where it was not read strictly

    def text(self, name: str) -> str:
        return self.values[name][0] if name in self.values else BY_NAME[name].default

    @property
    def events(self) -> str | None:
        return self.text("EVOLVER_EVENTS") or None

    @property
    def max_vault(self) -> int:
        return Size.parse(self.text("EVOLVER_MAX_VAULT"))

    @property
    def debug(self) -> bool:
        return self.text("EVOLVER_DEBUG") not in ("", "0")

    def overrides(self) -> Iterator[Override]:
        """Loop-file keys that variables set, checked."""
        for name, (text, source) in self.values.items():
            variable = BY_NAME[name]
            if variable.key:
                yield Override(variable.key, _parsed(variable, text, source), source)


def _parsed(variable: Variable, text: str, source: str) -> object:
    try:
        return variable.parse(text)
    except ValueError as error:
        raise UsageError(f"{source}: {error}", f"{variable.name}: {variable.meaning}.") from error


def read(env: Mapping[str, str] = os.environ, dotenv: Path | None = None, *, strict: bool = True) -> Settings:
    """The variables from `env` and, below them, from the file `dotenv`. An empty value counts as not set.

    Not `strict`: what is wrong in `dotenv` is left out and named in `ignored`. For what looks at a worktree or puts it back:
    an attempt may have written that file, and it may not stand in the way of undoing the attempt.
    """
    found: dict[str, tuple[str, str]] = {}
    ignored: list[str] = []
    if dotenv is not None and dotenv.is_file() and not dotenv.is_symlink():
        from dotenv import dotenv_values  # not needed by a worktree without .env

        try:
            # Only EVOLVER_* lines matter here: another program's bytes in the file need not be UTF-8.
            content = io.StringIO(dotenv.read_bytes().decode(errors="surrogateescape"))
        except OSError as error:
            if strict:
                raise UsageError(f"{dotenv} cannot be read: {error.strerror}", "Make it readable for this user.") from error
            ignored.append(f"{dotenv} cannot be read: {error.strerror}")
            content = io.StringIO()
        for name, value in dotenv_values(stream=content, interpolate=False).items():
            if value and name in BY_NAME and BY_NAME[name].dotenv:
                source = f"{name} in {dotenv}"
                try:
                    check_text(value, source)
                    _parsed(BY_NAME[name], value, source)
                except UsageError as error:
                    if strict and not env.get(name):
                        raise
                    ignored.append(error.message)
                    continue
                found[name] = (value, source)
    for name in BY_NAME:
        if env.get(name):
            found.pop(name, None)  # the order is that of precedence: what is found last replaces another way to make attempts
            found[name] = (env[name], f"environment variable {name}")
    for name, (text, source) in found.items():
        _parsed(BY_NAME[name], text, source)
    unknown = tuple(sorted(n for n in env if n.startswith("EVOLVER_") and n not in BY_NAME and n not in _OTHERS))
    return Settings(found, unknown, tuple(ignored))


def slips(settings: Settings) -> Iterator[str]:
    """One sentence for each variable that looks like a setting and is none: it would be ignored without a word."""
    import difflib

    for name in settings.unknown:
        near = difflib.get_close_matches(name, BY_NAME, n=1)
        yield f"{name} is no setting and is ignored" + (f"; did you mean {near[0]}?" if near else "")


def check_text(text: str, source: str) -> None:
    """A definition is stored and told as UTF-8, and what is no text in this locale cannot be. Raise `UsageError`."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise UsageError(
            f"{source}: {text!r} has bytes that are no {sys.getfilesystemencoding()} text",
            "Put such bytes into a script and give that; or choose a UTF-8 locale, such as LC_ALL=C.UTF-8.",
        ) from error
