"""What the filesystem says of a log's paths, asked before the first action.

An entry refused here refuses the whole log: a log that lies about one path is believed in nothing. What can change between
this look and the act is checked again by the act itself (`files.py`).
"""

from __future__ import annotations

import os
import stat
import sys
import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from evolver.changes.files import Root
from evolver.changes.model import BACKUPS, Backup, ChangesLog
from evolver.changes.parse import MAX_ERRORS, refusal
from evolver.changes.paths import RelativePath, relative
from evolver.changes.trees import UnsafePathError

_ROLLBACK = relative(BACKUPS)
_CASE_BLIND = sys.platform == "darwin"


def check(root: Root, log: ChangesLog, log_path: RelativePath | None) -> tuple[str, ...]:
    """Why this log is refused; empty: it is not. `log_path`: the log itself, when it lies below the root."""
    found: list[str] = []
    for problem in _problems(root, log, log_path):
        found.append(problem)
        if len(found) >= MAX_ERRORS:
            break
    return tuple(found)


def _problems(root: Root, log: ChangesLog, log_path: RelativePath | None) -> Iterator[str]:
    for item in log.modified:
        yield from _target(root, item)
        yield from _backup(root, item)
    for entry in (*log.created, *log.artifacts, *log.plan_files):
        _, problem = _look(root, entry.path, entry.field)
        if problem is not None:
            yield problem
    made = {entry.path.names[:depth] for entry in log.created for depth in range(1, len(entry.path.names))}
    for path in log.created_dirs:
        if path.names not in made:
            yield refusal("metadata.evolver.created_dirs", path.text, "holds nothing of files_created")
        _, problem = _look(root, path, "metadata.evolver.created_dirs")
        if problem is not None:
            yield problem
    for item in log.modified:
        # A log that "restores" itself or another backup turns what is believed into what an agent chose.
        if _ROLLBACK.holds(item.path) or (log_path is not None and log_path.holds(item.path)):
            yield refusal(f"{item.field}.path", item.path.text, "is the log or a backup")


@dataclass(frozen=True, slots=True)
class Keep:
    """What may not be deleted, whatever a log says: the log, its backups, the files it restores, and all that holds them."""

    holders: frozenset[tuple[bytes, ...]]  # every path that is or holds one of them

    @classmethod
    def of(cls, log: ChangesLog, log_path: RelativePath | None) -> Keep:
        exact = [
            _ROLLBACK,
            *([log_path] if log_path else []),
            *(m.backup for m in log.modified),
            *(m.path for m in log.modified),
        ]
        prefixes = {path.names[:depth] for path in exact for depth in range(1, len(path.names) + 1)}
        return cls(frozenset(_as_compared(names) for names in prefixes))

    def covers(self, path: RelativePath) -> bool:
        names = _as_compared(path.names)
        return names in self.holders or names[:1] == _as_compared(_ROLLBACK.names)


def _as_compared(names: tuple[bytes, ...]) -> tuple[bytes, ...]:
    """Names as the usual filesystem of this system compares them: on macOS `A` and `a` are one file."""
    if not _CASE_BLIND:
        return names
    return tuple(
        unicodedata.normalize("NFD", name.decode("utf-8", "surrogateescape").casefold()).encode("utf-8", "surrogateescape")
        for name in names
    )


def _look(root: Root, path: RelativePath, where: str) -> tuple[os.stat_result | None, str | None]:
    try:
        return root.status(path), None
    except UnsafePathError as error:
        return None, refusal(where, path.text, f"{error.strerror}, so may be outside the root")
    except OSError:
        return None, None  # not readable: told as an error when its turn comes


def _target(root: Root, item: Backup) -> Iterator[str]:
    where = f"{item.field}.path"
    status, problem = _look(root, item.path, where)
    if problem is not None:
        yield problem
    elif status is not None and stat.S_ISLNK(status.st_mode) and not _points_inside(root, item.path):
        yield refusal(where, item.path.text, "is a symlink that leads outside the root")
    elif status is not None and stat.S_ISREG(status.st_mode) and status.st_nlink > 1:
        # Its other names have the changed bytes as well, and may be anywhere: putting back one would hide that.
        yield refusal(where, item.path.text, "has other hard links")


def _backup(root: Root, item: Backup) -> Iterator[str]:
    where = f"{item.field}.backup"
    status, problem = _look(root, item.backup, where)
    if problem is not None:
        yield problem
    elif status is not None and not stat.S_ISREG(status.st_mode):
        yield refusal(where, item.backup.text, "is no regular file")
    elif status is not None and status.st_nlink > 1:
        yield refusal(where, item.backup.text, "has other hard links, so is no copy")


def _points_inside(root: Root, path: RelativePath) -> bool:
    """Where a link would lead. Only a question: nothing is ever opened through it."""
    target = Path(os.path.realpath(root.path / os.fsdecode(path.raw)))
    return target.is_relative_to(root.path)
