"""A log that is not as we left it: put back from the lifeboat, or kept as it is beside what we wrote."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from evolver.errors import LogError
from evolver.events import lines, paths
from evolver.events.files import sync_folder
from evolver.events.head import Head
from evolver.events.ids import uuid7
from evolver.events.integrity import holds
from evolver.events.mirror import Mirror
from evolver.events.types import LogRecovered


def _last_sequence(path: Path) -> int:
    for file in reversed(paths.segments(path)):
        try:
            with file.open("rb") as stream:
                last = lines.tail(stream.fileno()).last
        except OSError:
            continue
        envelope = lines.ours(last) if last is not None else None
        if envelope is not None:
            return envelope.sequence
    return 0


def from_lifeboat(path: Path, mirror: Mirror, kept: Head | None) -> list[LogRecovered]:
    """Put a stream back that went away with its folder."""
    if kept is None or not mirror.stream.is_file():
        return []
    gone = not paths.segments(path)
    replaced = kept.folder != path.parent.stat().st_ino
    lost_open = not regular(path)
    if not (gone or replaced or lost_open) or _last_sequence(mirror.stream) <= _last_sequence(path):
        return []
    put_back(path, mirror, -1)
    how = " with its folder" if gone or replaced else ""
    return [LogRecovered(torn_bytes=0, kept_as="", reason=f"the log was lost{how}; put back from the lifeboat")]


def regular(path: Path) -> bool:
    try:
        return stat.S_ISREG(path.lstat().st_mode)
    except OSError:
        return False


@contextmanager
def witness(fd: int, mirror: Mirror | None) -> Iterator[int]:
    """The file that we wrote to: still open in `fd`, else in the lifeboat; -1 when it is nowhere."""
    found = fd
    if fd < 0 and mirror is not None:
        with suppress(OSError):
            found = os.open(mirror.stream, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK)
    try:
        yield found
    finally:
        if found != fd:
            os.close(found)


def put_back(path: Path, mirror: Mirror | None, fd: int) -> None:
    """The open segment from `fd` (-1: from the lifeboat), the closed ones from the lifeboat. What is there is moved aside."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        if os.path.lexists(path):
            path.rename(path.with_name(f"{path.name}.displaced-{uuid7()}"))
        if fd >= 0 and not (mirror is not None and _same(mirror.stream, fd)):
            copy_from(fd, path)
        if mirror is not None:
            mirror.put_back()
        sync_folder(path.parent)
    except OSError as error:
        raise LogError(f"{path} was lost and cannot be put back: {error.strerror}", "Make room on the disk.") from error


def keep_broken(path: Path, expected: Head, fd: int) -> Path | None:
    """Make the damaged file a closed segment, as it is; beside it what we wrote, when that still exists. None: no file."""
    number = expected.segment
    while os.path.lexists(paths.closed_path(path, number)):
        number += 1
    target = paths.closed_path(path, number)
    try:
        if fd >= 0 and not _same(path, fd) and holds(fd, expected):
            copy_from(fd, target.with_name(f"{target.name}.original"))
        if not os.path.lexists(path):
            return None
        if not regular(path):
            # A folder, a link or a pipe is no segment: readers of the trail would stumble over it, or wait for ever.
            path.rename(path.with_name(f"{path.name}.displaced-{uuid7()}"))
            original = target.with_name(f"{target.name}.original")
            if not os.path.lexists(original):
                return None
            original.rename(target)
            return target
        path.rename(target)
    except OSError as error:
        raise LogError(f"{path} was tampered with and cannot be kept: {error.strerror}", "Make room on the disk.") from error
    return target


def _same(path: Path, fd: int) -> bool:
    try:
        return os.path.samestat(os.lstat(path), os.fstat(fd))
    except OSError:
        return False


def copy_from(fd: int, target: Path, at: int = 0) -> None:
    """What the file behind `fd` holds from `at` on, synced; in blocks, since an agent may have written gigabytes."""
    fresh = target.with_name(f"{target.name}.new")
    with fresh.open("wb") as out:
        while block := os.pread(fd, 1 << 20, at):
            out.write(block)
            at += len(block)
        out.flush()
        os.fsync(out.fileno())
    fresh.rename(target)
