"""Room set aside while something foreign may fill the disk, so that undoing it can be told, journalled and begun.

An attempt that fills the disk would otherwise take away what its own rollback needs: a line in the stream, the journal, the
head of the log. The reserve is a file of allocated, empty blocks in the state folder; giving it up makes that room.
"""

from __future__ import annotations

import errno
import os
import stat
from contextlib import suppress
from pathlib import Path

SIZE = 1 << 20  # bytes: events, journal and locks of one rollback, with room to spare
FULL = frozenset({errno.ENOSPC, errno.EDQUOT})


def hold(path: Path, size: int = SIZE) -> None:
    """Have `size` bytes allocated at `path`. Best effort: where there is no room for them, there is no reserve."""
    try:
        known = path.lstat()
        if stat.S_ISREG(known.st_mode) and known.st_size >= size and known.st_blocks * 512 >= size:
            return
    except OSError:
        pass
    let_go(path)
    try:
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    except OSError:
        return
    try:
        _allocate(fd, size)
    except OSError:
        let_go(path)
    finally:
        os.close(fd)


def _allocate(fd: int, size: int) -> None:
    if hasattr(os, "posix_fallocate"):
        os.posix_fallocate(fd, 0, size)
        return
    for _ in range(0, size, 1 << 16):  # macOS: written, as it cannot be asked for
        os.write(fd, bytes(1 << 16))


def let_go(path: Path) -> bool:
    """Give the room back; True when there was some."""
    try:
        path.unlink()
    except OSError:
        return False
    return True


def free(folder: Path) -> int:
    """Bytes an ordinary user may still write on the file system of `folder`; a very large number when it does not say."""
    with suppress(OSError):
        told = os.statvfs(folder)
        return told.f_bavail * told.f_frsize
    return 1 << 62


def let_go_if_needed(path: Path, size: int = SIZE) -> None:
    """Give the room back when the disk has less than that left without it."""
    if free(path.parent) < size:
        let_go(path)
