"""The one family of errors a user can meet, and the exit statuses of the command line.

Ordinary failure of an attempt is a value (`Verdict`, `StepResult`); an exception means that evolver
cannot go on. They are caught in `cli/` and nowhere else.
"""

from __future__ import annotations

import errno
from enum import IntEnum
from typing import ClassVar

# What a machine says when it has run out of something; never a bug of ours.
EXHAUSTED = frozenset(
    {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS, errno.EIO, errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EAGAIN}
)


class ExitStatus(IntEnum):
    """What the process exits with; stable, for scripts."""

    ACCEPTED = 0
    NOTHING_ACCEPTED = 1
    USAGE = 2
    HELD = 3
    NOT_RESTORED = 4
    PREFLIGHT = 5
    BUSY = 6
    LOG_BROKEN = 8
    CANNOT_TELL = 9
    BUG = 70
    HANGUP = 129
    INTERRUPTED = 130
    TERMINATED = 143


class EvolverError(Exception):
    """A fault, told to the user as one line (`message`: what and where) and a `hint` (what to do)."""

    exit_code: ClassVar[ExitStatus] = ExitStatus.BUG

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint


class UsageError(EvolverError):
    """A wrong flag, environment variable, loop file or argument. Nothing was started."""

    exit_code = ExitStatus.USAGE


class HeldError(EvolverError):
    """A resume lock blocks the worktree until a person runs `evolver resume`."""

    exit_code = ExitStatus.HELD


class NotRestoredError(EvolverError):
    """The tree could not be put back, or it could not be proved; the vault is kept."""

    exit_code = ExitStatus.NOT_RESTORED


class PreflightError(EvolverError):
    """The run was refused before the agent was started; nothing changed."""

    exit_code = ExitStatus.PREFLIGHT


class BusyError(EvolverError):
    """Another run holds this worktree."""

    exit_code = ExitStatus.BUSY


class LogError(EvolverError):
    """The event stream is broken or cannot be written."""

    exit_code = ExitStatus.LOG_BROKEN


class LogFullError(LogError):
    """There is no room on the disk for the event stream's next line; nothing of it was written."""


class GitError(EvolverError):
    """A git command failed where success was needed; `message` holds its argv and its last words."""

    exit_code = ExitStatus.NOT_RESTORED

    @property
    def disk_full(self) -> bool:
        """Git had no room to write (its words are English: it runs with LC_ALL=C)."""
        return any(words in self.message for words in ("No space left on device", "Disk quota exceeded"))
