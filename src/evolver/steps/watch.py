"""Whether a crashed agent had done anything: a cheap look at names, sizes and times, taken before and after.

Only decides about trying again at once. Anything it cannot tell counts as done: then the attempt is judged like any other.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Callable
from pathlib import Path

MOST_FILES = 50_000


def touched_since(root: Path, git_dir: Path) -> Callable[[], bool]:
    """A function that tells whether something below `root`, or HEAD or the index, has changed since this call."""
    before = _look(root, git_dir)

    def touched() -> bool:
        return before is None or _look(root, git_dir) != before

    return touched


def _look(root: Path, git_dir: Path) -> bytes | None:
    """None: too much to look at, or something could not be read."""
    digest = hashlib.blake2b()
    left = MOST_FILES
    folders = [os.fspath(root)]
    try:
        while folders:
            with os.scandir(folders.pop()) as found:
                for item in sorted(found, key=lambda item: item.name):
                    left -= 1
                    if left < 0:
                        return None
                    if item.name == ".git":
                        continue
                    info = item.stat(follow_symlinks=False)
                    digest.update(os.fsencode(item.path))
                    digest.update(f"\0{info.st_mode} {info.st_ino} {info.st_size} {info.st_mtime_ns}\n".encode())
                    if item.is_dir(follow_symlinks=False):
                        folders.append(item.path)
    except OSError:
        return None
    for name in ("HEAD", "index", "logs/HEAD"):
        with contextlib.suppress(OSError):
            info = (git_dir / name).stat()
            digest.update(f"{name} {info.st_ino} {info.st_size} {info.st_mtime_ns}\n".encode())
    return digest.digest()
