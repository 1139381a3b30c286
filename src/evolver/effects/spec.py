"""What an action is made of. An action without a `RollbackSpec` is one that evolver never reverts; nothing else says so."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Literal

from evolver.errors import UsageError

if TYPE_CHECKING:
    from evolver.effects.host import Host

Risk = Literal["low", "medium", "high"]
RISKS: tuple[Risk, ...] = ("low", "medium", "high")

# One argument of a package tool or a ref: never an option, nothing that a shell or a line-based tool would split.
WORD = re.compile(r"[A-Za-z0-9@/.~_+][^\s\x00-\x1f\x7f]*")


class Arguments:
    """The `args` table of an effect, read once: what is missing, malformed or left over is a `UsageError`."""

    def __init__(self, effect: str, given: Mapping[str, str]) -> None:
        self._effect = effect
        self._given = given
        self._read: set[str] = set()

    def wrong(self, key: str, expected: str) -> UsageError:
        return UsageError(
            f"effect {self._effect!r}: args.{key}: {expected}", "`evolver effects list` names each action's args."
        )

    def text(self, key: str, default: str = "") -> str:
        """Any text without NUL; the default when it is not given."""
        self._read.add(key)
        value = self._given.get(key, default)
        if "\0" in value:
            raise self.wrong(key, "expected text without a NUL byte")
        return value

    def word(self, key: str) -> str:
        """One word that no tool can take for an option."""
        value = self.text(key)
        if not value:
            raise self.wrong(key, "is needed")
        if not WORD.fullmatch(value):
            raise self.wrong(key, f"expected one word that does not begin with `-`, got {value!r}")
        return value

    def words(self, key: str, *, needed: bool = True) -> tuple[str, ...]:
        """Words separated by blanks."""
        found = tuple(self.text(key).split())
        if needed and not found:
            raise self.wrong(key, "is needed: one or more words separated by blanks")
        for value in found:
            if not WORD.fullmatch(value):
                raise self.wrong(key, f"expected words that do not begin with `-`, got {value!r}")
        return found

    def finish(self) -> None:
        """Raise when something was given that no one asked for."""
        extra = sorted(self._given.keys() - self._read)
        if extra:
            raise self.wrong(extra[0], f"not an argument of this action (it takes {', '.join(sorted(self._read)) or 'none'})")


@dataclass(frozen=True, slots=True)
class Recorded:
    """What the revert will need, taken before the act. `problem`: it cannot be had, so the act must not happen."""

    values: Mapping[str, str]
    problem: str = ""


class UndoneKind(StrEnum):
    UNCHANGED = "unchanged"  # everything is as recorded: nothing was run
    DONE = "done"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class Undone:
    """How a revert went. `ref` names what did it, for events."""

    kind: UndoneKind
    reason: str = ""
    ref: str = ""


@dataclass(frozen=True, slots=True)
class Undoing:
    """What a revert is told."""

    recorded: Mapping[str, str]
    undo: tuple[str, ...]  # the effect's own undo command
    act_succeeded: bool  # False: it failed, or its run died, and nobody knows how far it came
    begun: bool  # True: a revert of this very effect was begun by a run that died


@dataclass(frozen=True, slots=True)
class RollbackSpec:
    """How an action is reverted.

    `record` runs before the act and gets what earlier effects of this family recorded in the same iteration. `undo` is
    judged by the state it leaves, so it may be called again after a crash; `Undoing.begun` tells those for which a second
    run would not be harmless.
    """

    ref: str
    record: Callable[[Host, Mapping[str, str], Sequence[Mapping[str, str]]], Recorded]
    undo: Callable[[Host, Undoing], Undone]


@dataclass(frozen=True, slots=True)
class ActionSpec:
    """One registered action. `argv` builds the command from the effect's args and refuses bad ones (`UsageError`)."""

    name: str
    family: str
    summary: str
    argv: Callable[[Arguments], tuple[str, ...]]
    risk: Risk
    rollback: RollbackSpec | None
    mutating: bool = True
    in_worktree: bool = False  # what it does is part of the attempt: held, restored and committed with it
    takes_run: bool = False  # the effect's `run` is the command; elsewhere `run` may replace what `argv` builds
    note: str = ""  # what a person must know, shown wherever the action is

    @property
    def rollback_available(self) -> bool:
        """evolver reverts this action by itself when it fails, or when its iteration is rejected later."""
        return self.rollback is not None
