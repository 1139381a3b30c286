"""What was there before an attempt began, told by change times: nobody can set those back.

A loop knows when its iteration began. What a log calls created and is older than that was the user's, and a file nobody wrote to
since needs no restoring; the log is not asked.
"""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass
from pathlib import Path

from evolver.changes.files import Root
from evolver.changes.paths import RelativePath
from evolver.changes.trees import UnsafePathError, walk

UNKNOWN = 1 << 63  # later than any file: then everything counts as having been there


@dataclass(frozen=True, slots=True)
class Before:
    """`since`: nanoseconds on the filesystem's own clock. `folders`: known to have been there, whatever is in them now."""

    since: int
    folders: frozenset[tuple[bytes, ...]] = frozenset()

    def had(self, root: Root, path: RelativePath, status: os.stat_result) -> bool:
        """Was this, or a file in it, there before? Raise `OSError` when it cannot be looked through."""
        return path.names in self.folders or holds_older(root, path, status, self.since)


def holds_older(root: Root, path: RelativePath, status: os.stat_result, since: int) -> bool:
    """Is it, or (for a folder, whose own time changes with what is put into it) any file in it, older?"""
    if not stat.S_ISDIR(status.st_mode):
        return status.st_ctime_ns < since

    class Found(Exception):  # ends the walk
        pass

    def visit(folder: int) -> list[bytes]:
        inner = []
        with os.scandir(folder) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    inner.append(os.fsencode(entry.name))
                elif entry.stat(follow_symlinks=False).st_ctime_ns < since:
                    raise Found
        return inner

    try:
        with root.parent(path) as parent:
            walk(root.enter, parent, path.names[-1], visit, lambda folder, name: None)
    except Found:
        return True
    except UnsafePathError:
        return True  # another filesystem, or git's folder: nobody's to delete
    return False


def mark(path: Path) -> None:
    """An attempt begins now: remember the instant, by the clock of the filesystem. Raise `OSError`."""
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    path.unlink(missing_ok=True)
    os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))


def marked(path: Path) -> int:
    """When the attempt began; `UNKNOWN` when nobody can tell any more."""
    try:
        status = path.lstat()
    except OSError:
        return UNKNOWN
    return status.st_ctime_ns if stat.S_ISREG(status.st_mode) else UNKNOWN
