"""Going through a folder's tree without leaving it: relative to open folders, links not followed, one descriptor at a time.

Iterative, as an agent can nest folders deeper than any stack, path length or descriptor limit.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable

from evolver.changes.paths import is_git_name

DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
Identity = tuple[int, int]


class UnsafePathError(OSError):
    """The filesystem leads somewhere else than the path says. `strerror` is the reason."""

    def __init__(self, reason: str) -> None:
        super().__init__(errno.ELOOP, reason)


def identity(status: os.stat_result) -> Identity:
    return status.st_dev, status.st_ino


def walk(
    enter: Callable[[int, bytes], int],
    parent: int,
    top: bytes,
    visit: Callable[[int], list[bytes]],
    leave: Callable[[int, bytes], None],
) -> None:
    """Visit the folder `top` of the open folder `parent` and those that each visit names, depth first.

    `enter(folder, name)` opens a folder; `visit(folder)` answers with the names to go into; `leave(folder, name)` is called in
    the folder above when everything below `name` is done (for `top` itself it is not). Raise `OSError`.
    """
    current = enter(parent, top)
    try:
        device = os.fstat(current).st_dev
        if device != os.fstat(parent).st_dev:
            raise UnsafePathError("is another filesystem's mount point")
        trail: list[tuple[bytes, Identity]] = []  # a folder's name, and the identity of the folder above it
        pending = [visit(current)]  # names still to be gone into, a list a level
        while True:
            if pending[-1]:
                name = pending[-1].pop()
                inner = enter(current, name)
                trail.append((name, identity(os.fstat(current))))
                os.close(current)
                current = inner
                if os.fstat(current).st_dev != device:
                    raise UnsafePathError("holds another filesystem's mount point")
                pending.append(visit(current))
                continue
            if not trail:
                return
            pending.pop()
            name, expected = trail.pop()
            above = os.open(b"..", DIRECTORY, dir_fd=current)
            os.close(current)
            current = above
            if identity(os.fstat(current)) != expected:
                raise UnsafePathError("was moved while it was gone through")
            leave(current, name)
    finally:
        os.close(current)


def look(folder: int) -> list[bytes]:
    """The folders in it. Raise `UnsafePathError` when one of its names is a git folder's."""
    folders = []
    with os.scandir(folder) as entries:
        for entry in entries:
            name = os.fsencode(entry.name)
            if is_git_name(name):
                raise UnsafePathError("holds a git repository; remove it by hand")
            if entry.is_dir(follow_symlinks=False):
                folders.append(name)
    return folders


def unlink_files(folder: int) -> list[bytes]:
    """Unlink what is no folder; the names of the folders that are left."""
    with os.scandir(folder) as entries:
        found = [(os.fsencode(entry.name), entry.is_dir(follow_symlinks=False)) for entry in entries]
    for name, is_dir in found:
        if not is_dir:
            os.unlink(name, dir_fd=folder)
    return [name for name, is_dir in found if is_dir]
