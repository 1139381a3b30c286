"""The run lock: one run per worktree, held by the kernel (`flock`), freed by it when the holder dies.

The lock file is never unlinked, and a pid written in it only informs: a dead one never blocks. It is taken in the git folder
and in the lifeboat, since an agent may delete the git folder and a second run could then lock a new file.
"""

from __future__ import annotations

import fcntl
import os
import stat
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from evolver.errors import BusyError, PreflightError
from evolver.layout import Layout


def _take(fd: int, attempts: int = 8) -> None:
    """Lock, or raise BlockingIOError. Tries for 160 ms, since `is_held` in another process holds a shared lock for a moment."""
    for left in reversed(range(attempts)):
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            if not left:
                raise
            time.sleep(0.02)


def _clear_way(path: Path) -> None:
    """An attempt may have put a folder or a pipe in the lock's place: nobody can hold such a thing, so it goes aside."""
    with suppress(FileNotFoundError):
        if not stat.S_ISREG(path.lstat().st_mode):
            path.rename(path.with_name(f"{path.name}.displaced-{time.time_ns()}"))


@contextmanager
def _flock(path: Path) -> Iterator[int]:
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        _clear_way(path)
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    except OSError as error:
        raise PreflightError(
            f"cannot lock {path}: {error.strerror}",
            "The git folder and the state folder must be writable; EVOLVER_STATE_DIR moves the latter.",
        ) from error
    try:
        try:
            _take(fd)
        except BlockingIOError as error:
            holder = os.pread(fd, 200, 0).decode(errors="replace").strip() or "unknown"
            raise BusyError(
                f"another run is active in this worktree ({holder})",
                "Wait for it, or end it with `evolver stop`; `evolver status` shows it.",
            ) from error
        yield fd
    finally:
        os.close(fd)


@contextmanager
def run_lock(layout: Layout, note: str = "") -> Iterator[None]:
    """Hold the worktree. Raise `BusyError` when somebody else does. `note` tells others who we are."""
    with ExitStack() as stack:
        # Where an attempt took the git folder away and the tree is held, the lifeboat's lock alone counts.
        places = [layout.lifeboat / "run.lock"]
        if layout.git_dir.is_dir():
            places.insert(0, layout.run_lock)
        for path in places:
            fd = stack.enter_context(_flock(path))
            os.ftruncate(fd, 0)
            os.pwrite(fd, f"pid {os.getpid()} {note}".strip().encode() + b"\n", 0)
        yield


def is_held(layout: Layout) -> bool:
    """Is a run active? Asked without waiting and without taking the lock for longer than the question."""
    for path in (layout.run_lock, layout.lifeboat / "run.lock"):
        try:
            fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
        except OSError:
            continue
        try:
            fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        finally:
            os.close(fd)
    return False


def wait_until_free(layout: Layout, seconds: float = 10.0) -> bool:
    """Wait for a holder that is about to end: `resume` lifts its lock before it has let go of the worktree. False: it did not."""
    deadline = time.monotonic() + seconds
    while is_held(layout):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True
