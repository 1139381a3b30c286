"""The resume lock: the file that blocks every `run` until a person runs `evolver resume`.

It stands in the git folder and in the lifeboat, written whole or not at all; either copy blocks.
"""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import stat
from pathlib import Path

import msgspec

from evolver.errors import NotRestoredError
from evolver.layout import Layout


class ResumeLock(msgspec.Struct, frozen=True, kw_only=True):
    """What a person needs to decide, and `resume` to act."""

    run_id: str
    iteration: int
    iteration_id: str
    pre_ref: str
    post_ref: str | None
    reason: str
    baseline: str  # fingerprint; the baseline itself is in the vault
    rollback_mode: str
    exit_code: int  # 3: held as asked; 4: could not be restored and verified
    time: str
    loop: str = ""
    definition: str = ""  # sha256; the definition lies beside the lock under this name
    validators_failed: str = ""
    leftovers: tuple[str, ...] = ()
    held: tuple[str, ...] = ()  # the attempt as it was when the loop stopped, a line a path, then a digest of further ones: tells what drifted since
    vault: str = ""
    changes_digest: str | None = None


def _paths(layout: Layout) -> tuple[Path, Path]:
    return layout.resume_lock, layout.lifeboat / "resume.lock"


def write_atomic(path: Path, data: bytes, mode: int = 0o600) -> None:
    """Old content or new content, never half of it, also after a power failure."""
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW, mode)
    try:
        view = memoryview(data)
        while view:
            view = view[os.write(fd, view) :]
        os.fsync(fd)
    except OSError:
        with contextlib.suppress(OSError):
            temporary.unlink()
        raise
    finally:
        os.close(fd)
    temporary.rename(path)
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def write(layout: Layout, lock: ResumeLock) -> None:
    """Raise `NotRestoredError` when neither copy can be written: then nothing would stop the next run."""
    data = msgspec.json.format(msgspec.json.encode(lock), indent=2) + b"\n"
    written, problem = 0, ""
    for path in reversed(_paths(layout)):
        if written and not layout.git_dir.is_dir():
            continue  # the attempt took the git folder away: held as it left it, the lifeboat has the lock
        try:
            write_atomic(path, data)
            written += 1
        except OSError as error:
            problem = f"{path}: {error.strerror}"
    if not written:
        raise NotRestoredError(
            f"the resume lock could not be written ({problem}); the tree is held all the same: {lock.reason}",
            f"Free some space, then run `evolver resume`. The baseline is in {lock.vault or layout.vault}.",
        )


def read(layout: Layout) -> ResumeLock | None:
    """The lock, from whichever copy can be read. A lock that cannot be understood still blocks: `NotRestoredError`."""
    problem: NotRestoredError | None = None
    for path in _paths(layout):
        try:
            return msgspec.json.decode(_bytes(path), type=ResumeLock)
        except (FileNotFoundError, NotADirectoryError):
            continue
        except OSError as error:
            problem = problem or NotRestoredError(f"{path} cannot be read: {error.strerror}", "Make it readable for this user.")
        except msgspec.DecodeError as error:
            problem = problem or NotRestoredError(
                f"{path} is damaged: {error}", "A person must look at the worktree; remove the file when it is as you want it."
            )
    if problem is not None:
        raise problem
    return None


def _bytes(path: Path) -> bytes:
    """Of a regular file alone: an attempt may put a pipe here, and reading that waits for ever."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    with open(fd, "rb") as file:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            raise OSError(errno.EINVAL, "not a regular file")
        return file.read()


def remove(layout: Layout) -> None:
    """Lift the lock. The lifeboat's copy goes last, so that a kill in between leaves it blocked."""
    for path in _paths(layout):
        with contextlib.suppress(FileNotFoundError, NotADirectoryError):
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)  # an attempt's: ours is a file
            else:
                path.unlink()


def remove_planted(layout: Layout) -> bool:
    """Remove what stands in the place of a lock while none can be ours: an attempt put it there, and every later command would heed it.
    Raise `NotRestoredError` when it cannot be removed."""
    if not any(os.path.lexists(path) for path in _paths(layout)):
        return False
    try:
        remove(layout)
    except OSError as error:
        raise NotRestoredError(
            f"a resume lock that no run wrote cannot be removed: {error.filename}: {error.strerror}", "Remove it by hand."
        ) from error
    return True
