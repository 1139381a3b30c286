"""The values of a changes log, and how large one may be."""

from __future__ import annotations

from dataclasses import dataclass, field

from evolver.changes.paths import RelativePath

MAX_LOG_BYTES = 8 << 20
MAX_ENTRIES = 20_000  # of all lists together
MAX_DEPTH = 64  # of brackets; the log itself needs four
MAX_DIGITS = 100  # of a number; Python's own limit is an exception in the middle of parsing
MAX_BACKUP_BYTES = 1 << 30
MAX_ALL_BACKUPS_BYTES = 8 << 30
BACKUPS = ".rollback"


@dataclass(frozen=True, slots=True)
class Backup:
    """A file that was changed, and where its earlier bytes are."""

    path: RelativePath
    backup: RelativePath
    field: str  # `files_modified[3]`, for messages
    sha256: str | None = None  # of the backup, lower case
    mode: int | None = None  # permission bits of the original


@dataclass(frozen=True, slots=True)
class Entry:
    """A path of one of the lists of names."""

    path: RelativePath
    field: str  # `files_created[0]`


@dataclass(frozen=True, slots=True)
class ChangesLog:
    """A log whose shape and paths (as far as text shows) are sound. What the filesystem says is asked later."""

    phase: str
    timestamp: str
    modified: tuple[Backup, ...] = ()
    created: tuple[Entry, ...] = ()
    commands: tuple[str, ...] = ()
    commits: tuple[str, ...] = ()
    artifacts: tuple[Entry, ...] = ()
    plan_files: tuple[Entry, ...] = ()
    recording: RelativePath | None = None  # the recorder's own folder below `.rollback/`
    created_dirs: tuple[RelativePath, ...] = ()  # parents the recorder saw missing; removed again when empty
    warnings: tuple[str, ...] = field(default=())  # unknown fields


@dataclass(frozen=True, slots=True)
class Refused:
    """Why nothing was done: each reason as it stands in the report's `errors`."""

    errors: tuple[str, ...]
