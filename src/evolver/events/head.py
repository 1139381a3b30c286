"""The `head` file: where the log ended when we last wrote to it. An anchor against a cut tail.

Written in place after every append, without syncing: after a crash it may be behind the log, never ahead of it.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple

import msgspec
import orjson

from evolver.events.files import make_way

WIDTH = 320  # padded to one length, so that one `pwrite` replaces it whole


class Stamp(NamedTuple):
    """What `stat` said of the open segment after our last write."""

    device: int
    inode: int
    size: int
    ctime_ns: int

    @classmethod
    def of(cls, st: os.stat_result) -> Stamp:
        return cls(st.st_dev, st.st_ino, st.st_size, st.st_ctime_ns)


class Head(msgspec.Struct, frozen=True, kw_only=True):
    sequence: int
    hash: str
    log: str  # identity of the stream
    segment: int
    first: int  # sequence of the segment's first line
    stamp: Stamp
    folder: int = 0  # inode of the folder: tells a replaced `.git` from a replaced log


def read(path: Path) -> Head | None:
    """None when there is none, or when what is there is no head."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError:
        return None
    try:
        return msgspec.json.decode(os.read(fd, 4096), type=Head)
    except (msgspec.DecodeError, OSError):
        return None
    finally:
        os.close(fd)


def write(path: Path, head: Head) -> None:
    """Raise `OSError`. A symlink in its place is not followed; whatever is no file of ours is moved aside."""
    data = orjson.dumps(msgspec.to_builtins(head)).ljust(WIDTH - 1) + b"\n"
    flags = os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK  # a pipe nobody reads would block
    try:
        fd = os.open(path, flags, 0o644)
    except OSError:
        make_way(path)
        fd = os.open(path, flags, 0o644)
    try:
        os.pwrite(fd, data, 0)
        if os.fstat(fd).st_size != len(data):
            os.ftruncate(fd, len(data))
    finally:
        os.close(fd)
