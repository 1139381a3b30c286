"""What is mounted inside a worktree. A file system that an attempt mounts hides the user's files; putting them back would write on top
of it, and comparing would find them there. So it is told, never called restored. Linux only: elsewhere nothing is known.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

_TABLE = "/proc/self/mountinfo"
_OCTAL = re.compile(rb"\\([0-7]{3})")


def inside(root: Path) -> frozenset[str]:
    """Mount points below `root` (real, absolute), relative to it. Source: proc(5), field 5 of a line."""
    try:
        with open(_TABLE, "rb") as file:
            table = file.read()
    except OSError:
        return frozenset()
    top = os.fsencode(root).rstrip(b"/") + b"/"
    points = (_OCTAL.sub(lambda m: bytes((int(m[1], 8),)), line.split(b" ", 5)[4]) for line in table.splitlines())
    return frozenset(os.fsdecode(point[len(top) :]) for point in points if point.startswith(top))


def differences(before: frozenset[str], now: frozenset[str]) -> list[str]:
    """In words, for `Verified.differences`."""
    told = [f"{path} has another file system mounted over it (`umount` it)" for path in sorted(now - before)]
    return told + [f"{path} is no longer a mount point" for path in sorted(before - now)]
