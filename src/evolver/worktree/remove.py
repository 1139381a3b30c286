"""Removes one name and all below it: fd-relative, never through a symlink, however deep, read-only folders included.

git's own `clean` gives up on paths longer than PATH_MAX (hazard 40), on folders without permission (35), and skips nested
repositories (33). A mount point or a foreign file stops it with an `OSError`.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from functools import partial

from evolver.worktree.manifest import DIR_FLAGS, Descriptors


def remove(parent: int, name: str) -> int:
    """How many names went away. Missing: none."""
    try:
        st = os.stat(name, dir_fd=parent, follow_symlinks=False)
    except FileNotFoundError:
        return 0
    if not stat.S_ISDIR(st.st_mode):
        _permitted(parent, partial(os.unlink, name, dir_fd=parent))
        return 1
    return _remove_folder(parent, name)


def _permitted(folder: int, act: Callable[[], object]) -> None:
    try:
        act()
    except PermissionError:
        mode = stat.S_IMODE(os.fstat(folder).st_mode)
        if mode & 0o700 == 0o700:
            raise
        os.fchmod(folder, mode | 0o700)
        act()


def _enter(parent: int, name: str) -> int:
    try:
        return os.open(name, DIR_FLAGS, dir_fd=parent)
    except PermissionError:
        _permitted(parent, partial(os.chmod, name, 0o700, dir_fd=parent))
        return os.open(name, DIR_FLAGS, dir_fd=parent)


def _remove_folder(parent: int, name: str) -> int:
    removed = 0
    nofile = Descriptors()
    stack: list[tuple[int, str, list[str]]] = []
    try:
        fd = _enter(parent, name)
        count, below = _empty(fd)
        stack.append((fd, name, below))
        removed += count
        while stack:
            fd, own, below = stack[-1]
            if below:
                child = below.pop()
                nofile.want(len(stack))
                inner = _enter(fd, child)
                stack.append((inner, child, []))
                count, names = _empty(inner)
                stack[-1] = (inner, child, names)
                removed += count
                continue
            os.close(fd)
            stack.pop()
            above = stack[-1][0] if stack else parent
            _permitted(above, partial(os.rmdir, own, dir_fd=above))
            removed += 1
    finally:
        for fd, _, _ in stack:
            os.close(fd)
        nofile.restore()
    return removed


def _empty(fd: int) -> tuple[int, list[str]]:
    """Unlink everything that is no folder; (how many, the folders)."""
    names: list[str] = []
    folders: list[str] = []
    with os.scandir(fd) as listing:
        for item in listing:
            (folders if item.is_dir(follow_symlinks=False) else names).append(item.name)
    for name in names:
        _permitted(fd, partial(os.unlink, name, dir_fd=fd))
    return len(names), folders
