"""File operations that cannot leave the root: every step of a path is opened relative to the one before, without following.

Checking a path and then using it by name is a race that a process the agent left behind can win; here the check and the use
are one. A file is replaced by a temporary file and a rename, so a hard link elsewhere keeps its bytes and a reader never sees
half a file.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import secrets
import stat
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from evolver.changes.paths import RelativePath
from evolver.changes.trees import DIRECTORY, Identity, UnsafePathError, identity, look, unlink_files, walk
from evolver.crash import crash_point

_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK  # a FIFO must not block us
CHUNK = 1 << 20
_TEMPORARY = re.compile(r"\.evolver-[0-9a-f]{16}\.tmp")
PERMISSIONS = 0o777  # never set-user-id, whatever a log says


class Root:
    """A folder, held open. `forbidden` are the folders below it that nothing may enter (git's)."""

    def __init__(self, fd: int, path: Path, forbidden: frozenset[Identity]) -> None:
        self.fd = fd
        self.path = path
        self._forbidden = forbidden

    @classmethod
    @contextmanager
    def open(cls, path: Path, forbidden: Iterable[Path] = ()) -> Iterator[Root]:
        """Raise `OSError` when `path` is no folder. Links in `path` itself are followed: the caller chose it."""
        real = Path(os.path.realpath(path))
        fd = os.open(real, DIRECTORY)
        try:
            closed: set[Identity] = set()
            for folder in forbidden:
                with contextlib.suppress(OSError):
                    closed.add(identity(folder.stat()))
            yield cls(fd, real, frozenset(closed))
        finally:
            os.close(fd)

    def enter(self, parent: int, name: bytes) -> int:
        """A folder, opened in an open one without following links. Raise `OSError`."""
        try:
            fd = os.open(name, DIRECTORY, dir_fd=parent)
        except OSError as error:
            if error.errno in (errno.ELOOP, errno.ENOTDIR) and _is_link(parent, name):
                raise UnsafePathError("leads through a symlink") from error
            raise
        if identity(os.fstat(fd)) in self._forbidden:
            os.close(fd)
            raise UnsafePathError("is inside the git folder")
        return fd

    @contextmanager
    def parent(self, path: RelativePath, *, create: bool = False) -> Iterator[int]:
        """The open folder that holds the path's last name."""
        current = os.dup(self.fd)
        try:
            for name in path.names[:-1]:
                if create:
                    with contextlib.suppress(FileExistsError):
                        os.mkdir(name, 0o777, dir_fd=current)
                following = self.enter(current, name)
                os.close(current)
                current = following
            yield current
        finally:
            os.close(current)

    def status(self, path: RelativePath) -> os.stat_result | None:
        """What lies there, links not followed; None: nothing. Raise `OSError` when the way there is unsafe or closed."""
        try:
            with self.parent(path) as parent:
                found = os.stat(path.names[-1], dir_fd=parent, follow_symlinks=False)
        except (FileNotFoundError, NotADirectoryError):
            return None
        if stat.S_ISDIR(found.st_mode) and identity(found) in self._forbidden:
            raise UnsafePathError("is the git folder")
        return found

    def link_target(self, path: RelativePath) -> bytes:
        with self.parent(path) as parent:
            return os.readlink(path.names[-1], dir_fd=parent)

    @contextmanager
    def open_regular(self, path: RelativePath) -> Iterator[int]:
        """A regular file, open for reading. Raise `OSError`; `UnsafePathError` when it is anything else."""
        with self.parent(path) as parent:
            try:
                fd = os.open(path.names[-1], _FILE, dir_fd=parent)
            except OSError as error:
                if error.errno == errno.ELOOP or (error.errno == errno.ENXIO and not _is_link(parent, path.names[-1])):
                    raise UnsafePathError("is no regular file") from error
                raise
        try:
            if not stat.S_ISREG(os.fstat(fd).st_mode):
                raise UnsafePathError("is no regular file")
            yield fd
        finally:
            os.close(fd)

    def write(
        self,
        path: RelativePath,
        chunks: Iterable[bytes],
        mode: int | None,
        fallback: int = 0o644,
        scratch: RelativePath | None = None,
        sync: bool = True,
    ) -> None:
        """Put a file there in one step, missing folders too. `mode` None: that of the file in its place, else `fallback`.

        `sync` False: the caller sees to it that it is on disk. The temporary file lies in the folder `scratch` when it is
        there and on the same filesystem, else beside the target: what a kill leaves behind should lie where nobody minds.
        Raise `OSError`; then nothing has changed but folders that were missing.
        """
        name = path.names[-1]
        with self.parent(path, create=True) as parent, self._scratch(scratch, parent) as workshop:
            present = _lstat(parent, name)
            if present is not None and stat.S_ISDIR(present.st_mode):
                raise IsADirectoryError(errno.EISDIR, "a folder is in its place")
            if mode is None:
                regular = present is not None and stat.S_ISREG(present.st_mode)
                mode = stat.S_IMODE(present.st_mode) if regular and present is not None else fallback
            temporary = f".evolver-{secrets.token_hex(8)}.tmp".encode()
            crash_point("changes.write")
            fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600, dir_fd=workshop)
            try:
                try:
                    crash_point("changes.write")
                    for chunk in chunks:
                        _write_all(fd, chunk)
                    if present is not None:
                        with contextlib.suppress(OSError):  # only root may give files away
                            os.fchown(fd, present.st_uid, present.st_gid)
                    os.fchmod(fd, mode & PERMISSIONS)
                    if sync:
                        os.fsync(fd)
                finally:
                    os.close(fd)
                crash_point("changes.write")
                os.rename(temporary, name, src_dir_fd=workshop, dst_dir_fd=parent)
            except BaseException:
                with contextlib.suppress(OSError):
                    os.unlink(temporary, dir_fd=workshop)
                raise
            crash_point("changes.write")
            if sync:
                with contextlib.suppress(OSError):  # some filesystems cannot sync a folder
                    os.fsync(parent)

    @contextmanager
    def _scratch(self, scratch: RelativePath | None, beside: int) -> Iterator[int]:
        with contextlib.ExitStack() as stack:
            if scratch is not None:
                try:
                    fd = self.enter(stack.enter_context(self.parent(scratch)), scratch.names[-1])
                except OSError:
                    yield beside
                    return
                stack.callback(os.close, fd)
                if os.fstat(fd).st_dev == os.fstat(beside).st_dev:
                    yield fd
                    return
            yield beside

    def make_folder(self, path: RelativePath, mode: int = 0o777) -> None:
        """Make a folder and those above it, where missing."""
        with self.parent(path, create=True) as parent:
            crash_point("changes.write")
            with contextlib.suppress(FileExistsError):
                os.mkdir(path.names[-1], mode, dir_fd=parent)
            os.close(self.enter(parent, path.names[-1]))

    def remove_temporaries(self, folder: RelativePath) -> None:
        """What writes that were killed left in a scratch folder. Only while nobody else writes there."""
        with contextlib.suppress(OSError), self.parent(folder) as parent:
            fd = self.enter(parent, folder.names[-1])
            try:
                for name in os.listdir(fd):
                    if _TEMPORARY.fullmatch(name):
                        os.unlink(name, dir_fd=fd)
            finally:
                os.close(fd)

    def unlink(self, path: RelativePath) -> None:
        """Remove one name; a symlink itself, never what it points at."""
        with self.parent(path) as parent:
            os.unlink(path.names[-1], dir_fd=parent)

    def remove_empty(self, path: RelativePath) -> bool:
        """Remove a folder if it is there and empty."""
        try:
            with self.parent(path) as parent:
                os.rmdir(path.names[-1], dir_fd=parent)
        except OSError:
            return False
        return True

    def remove_tree(self, path: RelativePath) -> None:
        """Remove a folder and all below it: no link followed, any depth. Raise `OSError`; `UnsafePathError` before anything
        is removed when another filesystem is mounted in it, or a git repository lies in it (commits that are nowhere else)."""
        with self.parent(path) as parent:
            walk(self.enter, parent, path.names[-1], look, lambda folder, name: None)
            walk(self.enter, parent, path.names[-1], unlink_files, lambda folder, name: os.rmdir(name, dir_fd=folder))
            os.rmdir(path.names[-1], dir_fd=parent)


def _lstat(parent: int, name: bytes) -> os.stat_result | None:
    try:
        return os.stat(name, dir_fd=parent, follow_symlinks=False)
    except FileNotFoundError:
        return None


def _is_link(parent: int, name: bytes) -> bool:
    found = _lstat(parent, name)
    return found is not None and stat.S_ISLNK(found.st_mode)


def _write_all(fd: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]


def read_chunks(fd: int) -> Iterator[bytes]:
    while chunk := os.read(fd, CHUNK):
        yield chunk
