"""Files below one open folder: every step fd-relative and never through a symlink (hazards 37, 39, 40).

Where the owner took his own permissions away (hazard 35), they are lent for the time of the work and given back by `close`.
"""

from __future__ import annotations

import os
import stat
from contextlib import suppress
from pathlib import Path
from types import TracebackType

from evolver.worktree.manifest import DIR_FLAGS, FILE_FLAGS, join, split

OPEN_AT_ONCE = 48
TEMPORARY = ".evolver-tmp-"  # files of a restore that was killed; whatever walks later removes them


def read_regular(path: Path) -> bytes:
    """A file's bytes; raise `OSError` when it is none. Never waits: a FIFO in its place blocks whoever just opens it (hazard 38)."""
    fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(fd, "rb") as file:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            raise FileNotFoundError(2, "not a regular file", str(path))
        return file.read()


class Anchor:
    """A folder to work below. A context manager; not for use by two threads."""

    def __init__(self, top: Path) -> None:
        self.top = os.open(top, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        self._open: dict[str, int] = {}
        self._lent: dict[str, int] = {}  # folder or file -> its mode before

    def __enter__(self) -> Anchor:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        for path, mode in sorted(self._lent.items(), key=lambda item: -item[0].count("/")):
            with suppress(OSError):
                self._chmod(path, mode)
        self._lent.clear()
        self.forget("")
        os.close(self.top)

    def keep_mode(self, path: str) -> None:
        """The mode of `path` was set on purpose: do not give back an earlier one."""
        self._lent.pop(path, None)

    def forget(self, folder: str) -> None:
        """The folder (and all below) goes away: close what is open there."""
        for path in [p for p in self._open if not folder or p == folder or p.startswith(folder + "/")]:
            os.close(self._open.pop(path))
        if folder:
            for path in [p for p in self._lent if p == folder or p.startswith(folder + "/")]:
                del self._lent[path]

    def folder(self, path: str) -> int:
        """Descriptor of a folder below; stays the anchor's. Raise `OSError`."""
        if not path:
            return self.top
        known = self._open.get(path)
        if known is not None:
            return known
        above, name = split(path)
        missing = [name]
        while above and above not in self._open:
            above, name = split(above)
            missing.append(name)
        fd, here = self._open.get(above, self.top), above
        while missing:
            name = missing.pop()
            here = join(here, name)
            child = self._enter(name, fd, here)
            self._remember(here, child, keep=above)
            fd = child
            above = here
        return fd

    def _enter(self, name: str, parent: int, path: str) -> int:
        for lend in ("", path, split(path)[0]):
            if lend:
                self._lend(lend, 0o700)
            try:
                return os.open(name, DIR_FLAGS, dir_fd=parent)
            except PermissionError:
                continue
        return os.open(name, DIR_FLAGS, dir_fd=parent)

    def _remember(self, path: str, fd: int, keep: str) -> None:
        while len(self._open) >= OPEN_AT_ONCE:
            oldest = next((p for p in self._open if p != keep), None)
            if oldest is None:
                break
            os.close(self._open.pop(oldest))
        self._open[path] = fd

    def _chmod(self, path: str, mode: int) -> None:
        if not path:
            os.fchmod(self.top, mode)
            return
        folder, name = split(path)
        if not stat.S_ISLNK(self.stat(path).st_mode):
            os.chmod(name, mode, dir_fd=self.folder(folder))

    def _lend(self, path: str, bits: int) -> None:
        st = os.fstat(self.top) if not path else self.stat(path)
        mode = stat.S_IMODE(st.st_mode)
        if mode & bits == bits or (st.st_uid != os.geteuid() and os.geteuid() != 0):
            return
        self._lent.setdefault(path, mode)
        self._chmod(path, mode | bits)

    def lend_writing(self, folder: str) -> None:
        """Make a folder changeable by its owner until `close`."""
        self._lend(folder, 0o700)

    def stat(self, path: str) -> os.stat_result:
        folder, name = split(path)
        return os.stat(name, dir_fd=self.folder(folder), follow_symlinks=False)

    def lstat(self, path: str) -> os.stat_result | None:
        """None when it is not there (also when a parent is not)."""
        try:
            return self.stat(path)
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            if error.errno == 40:  # ELOOP: a parent is a symlink now
                return None
            raise

    def readlink(self, path: str) -> bytes:
        folder, name = split(path)
        return os.fsencode(os.readlink(name, dir_fd=self.folder(folder)))

    def open_file(self, path: str) -> int:
        """Descriptor for reading a regular file. Raise `OSError`."""
        folder, name = split(path)
        fd = self.folder(folder)
        try:
            return os.open(name, FILE_FLAGS, dir_fd=fd)
        except PermissionError:
            self._lend(path, 0o400)
            return os.open(name, FILE_FLAGS, dir_fd=fd)
