"""The files of a log at one moment, for readers: a rotation meanwhile neither hides a segment nor shows one twice."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from evolver.events import paths


class Segment(NamedTuple):
    path: Path
    fd: int = -1  # of the open segment; closed ones keep their names and are opened when their turn comes

    @contextmanager
    def opened(self) -> Iterator[int]:
        if self.fd >= 0:
            yield self.fd
            return
        fd = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        try:
            yield fd
        finally:
            os.close(fd)


@contextmanager
def listed(path: Path) -> Iterator[list[Segment]]:
    """Oldest first. The open segment is opened before the others are listed: a rotation gives it a second name, no new one."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError:  # none, or between two
        fd = -1
    if fd >= 0 and not stat.S_ISREG(os.fstat(fd).st_mode):  # a folder, a pipe: nothing to be read in order
        os.close(fd)
        fd = -1
    try:
        closed = [Segment(file) for _, file in paths.closed_segments(path) if fd < 0 or not _same(file, fd)]
        yield closed + ([Segment(path, fd)] if fd >= 0 else [])
    finally:
        if fd >= 0:
            os.close(fd)


def _same(path: Path, fd: int) -> bool:
    try:
        return os.path.samestat(path.stat(), os.fstat(fd))
    except OSError:
        return False
