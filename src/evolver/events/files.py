"""The log's system calls: its lock, one append, a new segment. Every `OSError` becomes a `LogError`."""

from __future__ import annotations

import fcntl
import os
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from evolver.errors import LogError, LogFullError
from evolver.events import paths
from evolver.events.ids import uuid7
from evolver.reserve import FULL

LOCK_WAIT_S = 60.0
_ROOM = "Make room on the disk, or put the stream elsewhere with EVOLVER_EVENTS."


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold the log's lock. The lock is a file of its own: the log itself is renamed when it is rotated."""
    lock = paths.lock_path(path)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        make_way(lock)
        fd = _take(lock)
    except OSError as error:
        hint = "Make the folder writable, or put the stream elsewhere with EVOLVER_EVENTS."
        raise LogError(f"{lock}: {error.strerror}", hint) from error
    try:
        yield
    finally:
        os.close(fd)


@contextmanager
def glimpse(path: Path) -> Iterator[None]:
    """For readers: between two appends, when the lock can be had within a second. Makes no file, changes nothing."""
    try:
        fd = os.open(paths.lock_path(path), os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError:
        yield
        return
    try:
        for _ in range(100):
            try:
                fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
                break
            except OSError:
                time.sleep(0.01)
        yield
    finally:
        os.close(fd)


def make_way(path: Path) -> None:
    """Move aside what an agent put in the place of a file of ours (a folder, a symlink, a pipe). Raise `OSError`."""
    try:
        mode = path.lstat().st_mode
    except FileNotFoundError:
        return
    if not stat.S_ISREG(mode):
        path.rename(path.with_name(f"{path.name}.displaced-{uuid7()}"))


def _take(lock: Path) -> int:
    deadline = time.monotonic() + LOCK_WAIT_S
    pause = 0.0005
    while True:
        fd = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            there = lock.stat()
            # An agent may have deleted the file between open and flock: then this lock keeps nobody out.
            if (there.st_dev, there.st_ino) == (os.fstat(fd).st_dev, os.fstat(fd).st_ino):
                return fd
        except (BlockingIOError, FileNotFoundError):
            pass
        os.close(fd)
        if time.monotonic() > deadline:
            message = f"{lock} is held by another process for more than {LOCK_WAIT_S:.0f} s"
            raise LogError(message, "Is a stopped evolver holding it?")
        time.sleep(pause)
        pause = min(pause * 2, 0.02)


def open_segment(path: Path) -> int:
    """The open segment, for appending. Raise `LogError` when it is no regular file."""
    try:
        fd = os.open(path, os.O_RDWR | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError as error:
        raise LogError(f"{path}: {error.strerror}", "The event stream needs a regular file that may be written.") from error
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        raise LogError(f"{path} is no regular file", "Name another file in EVOLVER_EVENTS.")
    return fd


def append(fd: int, line: bytes, path: Path) -> os.stat_result:
    """All of the line, synced, or nothing of it. Returns what `stat` said right after the write.

    Not after the sync, which takes milliseconds: what somebody else writes meanwhile would be taken for ours.
    """
    size = os.fstat(fd).st_size
    full = False
    try:
        written = os.write(fd, line)
        after = os.fstat(fd)
        if written == len(line):
            os.fdatasync(fd) if hasattr(os, "fdatasync") else os.fsync(fd)
            return after
        problem, full = "no space left on device", True
    except OSError as error:
        problem, full = (error.strerror or str(error)).lower(), error.errno in FULL
    try:
        os.ftruncate(fd, size)  # no half line stays behind; shrinking needs no space
    except OSError:
        problem, full = problem + "; the unfinished line could not be removed", False
    raise (LogFullError if full else LogError)(f"{path} cannot be written: {problem}", _ROOM)


def publish(path: Path, line: bytes) -> tuple[int, os.stat_result]:
    """A new segment whose first line is `line`, opened for appending, and its `stat`. It has its name only when it is whole."""
    fresh = path.with_name(f"{path.name}.new")
    try:
        fresh.unlink(missing_ok=True)
        fd = os.open(fresh, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644)
        try:
            after = append(fd, line, fresh)
            fresh.rename(path)
        except BaseException:
            os.close(fd)
            fresh.unlink(missing_ok=True)
            raise
        sync_folder(path.parent)
    except OSError as error:
        kind = LogFullError if error.errno in FULL else LogError
        raise kind(f"{path} cannot be made: {error.strerror}", _ROOM) from error
    return fd, after


def sync_folder(folder: Path) -> None:
    fd = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
