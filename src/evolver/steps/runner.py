"""Starts a step's child with the right environment and turns its end into a `StepResult`."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from evolver.interrupts import Interrupts
from evolver.model import StepContext, StepResult
from evolver.process import Command, Finished, run
from evolver.redact import Redactor

TAIL_CHARS = 16 * 1024

# What would make git in a step act on another repository than the one it stands in: set when evolver is called from a
# hook, an alias or a `git rebase --exec`.
_REDIRECTS = frozenset(
    (
        "GIT_ALTERNATE_OBJECT_DIRECTORIES",
        "GIT_COMMON_DIR",
        "GIT_CONFIG",
        "GIT_CONFIG_PARAMETERS",
        "GIT_DIR",
        "GIT_GRAFT_FILE",
        "GIT_IMPLICIT_WORK_TREE",
        "GIT_INDEX_FILE",
        "GIT_INTERNAL_SUPER_PREFIX",
        "GIT_NAMESPACE",
        "GIT_NO_REPLACE_OBJECTS",
        "GIT_OBJECT_DIRECTORY",
        "GIT_PREFIX",
        "GIT_REPLACE_REF_BASE",
        "GIT_SHALLOW_FILE",
        "GIT_WORK_TREE",
    )
)


def clean_environment(base: Mapping[str, str], withheld: frozenset[str] = frozenset()) -> dict[str, str]:
    """The user's environment, less what redirects git and `withheld`."""
    return {name: value for name, value in base.items() if name not in _REDIRECTS and name not in withheld}


def step_environment(
    base: Mapping[str, str],
    context: StepContext,
    section: Mapping[str, str] = {},
    extra: Mapping[str, str] = {},
    withheld: frozenset[str] = frozenset(),
) -> dict[str, str]:
    """The user's environment, less what redirects git and `withheld`; then the step's own; then what evolver insists on."""
    # PWD as the shell evolver was called from left it would name another folder, with -C and for a clone.
    here = {"PWD": str(context.cwd)}
    return {**clean_environment(base, withheld), **here, **section, **context.environment(), **extra}


@dataclass(frozen=True, slots=True)
class StepRunner:
    """What all steps of a run share."""

    interrupts: Interrupts
    redactor: Redactor | None = None
    base: Mapping[str, str] = field(default_factory=lambda: dict(os.environ))
    extra: Mapping[str, str] = field(default_factory=dict)  # laid over everything: the push block
    withheld: frozenset[str] = frozenset()  # variables no step gets: secrets of evolver's own, such as a sink's

    def run(
        self,
        context: StepContext,
        *,
        name: str,
        argv: tuple[str, ...],
        timeout_ms: int | None,
        grace_ms: int,
        env: Mapping[str, str] = {},
        stdin: bytes = b"",
    ) -> StepResult:
        """Run one child. `name` is the step's, as it stands in events."""
        log = free_log(context.log_dir, name, context.repair_round)
        command = Command(
            argv=argv,
            cwd=context.cwd,
            env=step_environment(self.base, context, env, self.extra, self.withheld),
            timeout_ms=timeout_ms,
            grace_ms=grace_ms,
            log=log,
            stdin=stdin,
            name=name,
        )
        done = run(
            command,
            interrupts=self.interrupts,
            redactor=self.redactor.stream() if self.redactor is not None else None,
            on_start=context.on_start,
            on_output=context.on_output,
        )
        return to_result(name, log, done)


def to_result(name: str, log: Path, done: Finished) -> StepResult:
    return StepResult(
        name=name,
        exit_code=done.exit_code,
        signal=done.signal,
        timed_out=done.timed_out,
        interrupted=done.interrupted,
        error=done.error,
        duration_ms=done.duration_ms,
        log=str(log),
        log_bytes=done.log_bytes,
        log_error=done.log_error,
        tail=done.tail.decode("utf-8", "replace")[-TAIL_CHARS:],
        survivors=done.survivors,
        killed=done.killed,
    )


def free_log(folder: Path, name: str, repair_round: int) -> Path:
    """A file name for a step's log that is not taken: a step may run again in its iteration, and no log is overwritten."""
    stem = re.sub(r"[^A-Za-z0-9._-]+", "_", name).strip("._")[:80] or "step"
    if repair_round:
        stem += f".r{repair_round}"
    path, number = folder / f"{stem}.log", 1
    while path.exists() or path.is_symlink():
        number += 1
        path = folder / f"{stem}.{number}.log"
    return path
