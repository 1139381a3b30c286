"""`info/exclude`: a changes log and its backups are nobody's to commit.

Inside a run nothing is written: git's control files belong to the baseline, and an attempt that changes one is rejected. The
loop that has a `changes_log` sees to it before its first iteration.
"""

from __future__ import annotations

import os
import re
import stat
from pathlib import Path

from evolver.changes.model import BACKUPS
from evolver.crash import crash_point
from evolver.layout import Layout


def exclude(layout: Layout, log: Path) -> bool:
    """Have git ignore `log` and the `.rollback/` beside it. Idempotent. False: it cannot be said in this file."""
    try:
        where = log.parent.relative_to(layout.root)
    except ValueError:
        return False
    folder = b"" if where == Path() else os.fsencode(where) + b"/"
    wanted = [_pattern(folder + BACKUPS.encode()) + b"/", _pattern(folder + os.fsencode(log.name))]
    if any(b"\n" in line for line in wanted):
        return False
    try:
        (layout.common_dir / "info").mkdir(exist_ok=True)
        folder_fd = os.open(layout.common_dir / "info", os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:  # neither through a link that somebody put in the way
            flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
            fd = os.open("exclude", flags, 0o644, dir_fd=folder_fd)
        finally:
            os.close(folder_fd)
    except OSError:
        return False
    try:
        status = os.fstat(fd)
        if not stat.S_ISREG(status.st_mode):
            return False
        present = os.pread(fd, status.st_size, 0)
        missing = [line for line in wanted if line not in present.split(b"\n")]
        if missing:
            lead = b"\n" if present and not present.endswith(b"\n") else b""
            crash_point("changes.write")
            os.write(fd, lead + b"".join(line + b"\n" for line in missing))
    finally:
        os.close(fd)
    return True


def _pattern(path: bytes) -> bytes:
    """A path as a pattern that matches it alone."""
    escaped = re.sub(rb"([\\*?\[])", rb"\\\1", path)
    stripped = escaped.rstrip(b" ")
    return b"/" + stripped + b"\\ " * (len(escaped) - len(stripped))
