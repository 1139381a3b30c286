"""Backups taken out of the worktree before anything there is touched.

`git revert` may remove a backup that was committed, a loop's restore removes all of them, and a process the agent left behind
may alter one between check and use. So each is read once, checked, and used from here: one anonymous file, gone with us.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

from evolver.changes.files import CHUNK, read_chunks
from evolver.changes.model import MAX_ALL_BACKUPS_BYTES, MAX_BACKUP_BYTES


class TooLargeError(OSError):
    """More bytes than a backup may have."""


@dataclass(frozen=True, slots=True)
class Kept:
    """One backup's bytes in the vault."""

    offset: int
    size: int
    sha256: str
    mode: int


class Vault:
    """Use as a context manager, or `close` it. `path`: a file to keep the bytes in, which outlives us; else an anonymous one."""

    def __init__(self, path: Path | None = None) -> None:
        if path is None:
            self._file = tempfile.TemporaryFile(buffering=0)  # noqa: SIM115  closed by `close`
        else:
            fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
            self._file = open(fd, "r+b", buffering=0)  # noqa: SIM115
        self._end = os.fstat(self._file.fileno()).st_size

    def keep(self, fd: int, *, limit: int = MAX_BACKUP_BYTES) -> Kept:
        """Read an open regular file to its end. Raise `OSError` (`TooLargeError` beyond `limit` bytes, or when all of them
        together are too many: a sparse file is large at no cost to whoever made it)."""
        status = os.fstat(fd)
        limit = min(limit, MAX_ALL_BACKUPS_BYTES - self._end)
        start, digest = self._end, hashlib.sha256()
        if status.st_size > limit:
            raise TooLargeError(0, f"is larger than {limit} bytes")
        for chunk in read_chunks(fd):
            if self._end - start + len(chunk) > limit:  # it grows while it is read
                raise TooLargeError(0, f"is larger than {limit} bytes")
            digest.update(chunk)
            view = memoryview(chunk)
            while view:
                written = os.pwrite(self._file.fileno(), view, self._end)
                self._end += written
                view = view[written:]
        return Kept(start, self._end - start, digest.hexdigest(), status.st_mode)

    def chunks(self, kept: Kept) -> Iterator[bytes]:
        at, end = kept.offset, kept.offset + kept.size
        while at < end:
            chunk = os.pread(self._file.fileno(), min(CHUNK, end - at), at)
            if not chunk:
                raise OSError(0, "the kept copy is cut short")
            yield chunk
            at += len(chunk)

    def sync(self) -> None:
        os.fsync(self._file.fileno())

    def close(self) -> None:
        self._file.close()

    def __enter__(self) -> Vault:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()
