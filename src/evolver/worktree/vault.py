"""Bytes kept by their sha256: in GIT_DIR/evolver/vault, and a second time in the lifeboat outside the worktree.

A hard link where both lie on one filesystem, a copy where not. A file is written aside, synced and renamed, so that what has
its name is whole; what is read is hashed again.
"""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from evolver.errors import NotRestoredError
from evolver.worktree.durable import sync_filesystem
from evolver.worktree.manifest import FILE_FLAGS

CHUNK = 1 << 20
SYNC_EACH = 32  # above this many new files one sync of the filesystem is cheaper


def link_or_copy(source: Path, target: Path) -> None:
    """Give `source` a second name; across filesystems, or where the kernel forbids it, a copy. Replaces `target`."""
    temporary = target.with_name(f"{target.name}.{os.getpid()}.tmp")
    with suppress(FileNotFoundError):
        temporary.unlink()
    try:
        os.link(source, temporary, follow_symlinks=False)
    except OSError:
        copy_synced(source, temporary)
    temporary.replace(target)
    with suppress(FileNotFoundError):
        temporary.unlink()  # rename of two names of one file does nothing


def copy_synced(source: Path, target: Path) -> None:
    with open(source, "rb") as read, open(target, "wb") as write:
        while chunk := read.read(CHUNK):
            write.write(chunk)
        write.flush()
        os.fsync(write.fileno())
    target.chmod(source.stat().st_mode & 0o777)


def write_over(path: Path, data: bytes) -> None:
    """A small file by temporary and rename, whatever lies in its place: no link is followed, no pipe is read."""
    temporary = path.with_name(f"{path.name}.{os.getpid()}.tmp")
    for name in (temporary, path):
        if name.is_dir() and not name.is_symlink():
            shutil.rmtree(name)
    with suppress(FileNotFoundError):
        temporary.unlink()
    temporary.write_bytes(data)
    temporary.replace(path)


def sync_folder(path: Path) -> None:
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


@dataclass
class Vault:
    """The store. `put` is durable only after `sync`."""

    folder: Path
    mirror: Path
    _new: list[Path] = field(default_factory=list)

    def prepare(self) -> None:
        for base in (self.folder, self.mirror):
            for part in ("objects", "baselines"):
                (base / part).mkdir(parents=True, exist_ok=True)
            base.chmod(0o700)

    def mend(self) -> None:
        """Where an agent removed one of the two places, it is filled from the other: what comes next may need it."""
        whole = [base for base in (self.folder, self.mirror) if all((base / p).is_dir() for p in ("objects", "baselines"))]
        if len(whole) == 2 or not self.folder.parent.parent.is_dir():
            return  # without git's folder, or with a file in its place: that is built again first, the vault with it
        self.prepare()
        for source in whole:
            target = self.mirror if source == self.folder else self.folder
            for path in (*source.glob("objects/*/*"), *source.glob("baselines/*")):
                other = target / path.relative_to(source)
                if not other.exists():
                    other.parent.mkdir(exist_ok=True)
                    link_or_copy(path, other)

    def _path(self, digest: str, base: Path | None = None) -> Path:
        return (base or self.folder) / "objects" / digest[:2] / digest[2:]

    def has(self, digest: str) -> bool:
        return self._path(digest).exists()

    def path_of(self, digest: str) -> Path:
        """Where a person finds the bytes."""
        return self._path(digest)

    def put(self, data: bytes) -> str:
        digest = hashlib.sha256(data).hexdigest()
        if self.has(digest):
            self._adopt(digest)
        else:
            self._store(digest, iter((data,)))
        return digest

    def put_fd(self, fd: int) -> str:
        """Keep an open file's bytes, chunk by chunk."""
        temporary = self.folder / f"incoming.{os.getpid()}"
        hasher = hashlib.sha256()
        with open(temporary, "wb") as out:
            while chunk := os.read(fd, CHUNK):
                hasher.update(chunk)
                out.write(chunk)
        digest = hasher.hexdigest()
        if self.has(digest):
            temporary.unlink()
            self._adopt(digest)
        else:
            self._place(temporary, digest)
        return digest

    def _adopt(self, digest: str) -> None:
        """A run killed before its `sync` left it in one place only, perhaps not on disk."""
        if not self._path(digest, self.mirror).exists():
            self._new.append(self._path(digest))

    def _store(self, digest: str, chunks: Iterator[bytes]) -> None:
        temporary = self.folder / f"incoming.{os.getpid()}"
        with open(temporary, "wb") as out:
            for chunk in chunks:
                out.write(chunk)
        self._place(temporary, digest)

    def _place(self, temporary: Path, digest: str) -> None:
        temporary.chmod(0o400)
        target = self._path(digest)
        target.parent.mkdir(exist_ok=True)
        temporary.replace(target)
        self._new.append(target)

    def sync(self) -> None:
        """Everything put so far is on disk, in both places, when this returns."""
        if not self._new:
            return
        if len(self._new) > SYNC_EACH:
            sync_filesystem(self.folder)
        else:
            for path in self._new:
                fd = os.open(path, os.O_RDONLY)
                try:
                    os.fsync(fd)
                finally:
                    os.close(fd)
        for path in self._new:
            other = self.mirror / path.relative_to(self.folder)
            other.parent.mkdir(parents=True, exist_ok=True)
            link_or_copy(path, other)
        for parent in {p.parent for p in self._new} | {self.folder / "objects"}:
            sync_folder(parent)
        self._new.clear()

    def open(self, digest: str) -> int:
        """Descriptor of the bytes, from whichever place still has them."""
        for base in (self.folder, self.mirror):
            with suppress(OSError):
                return os.open(self._path(digest, base), FILE_FLAGS)
        raise NotRestoredError(f"the vault does not hold {digest[:16]} any more", f"Look in {self.folder} and {self.mirror}.")

    def get(self, digest: str) -> bytes:
        """The bytes, proved by their digest. Raise `NotRestoredError` when they are gone or damaged in both places."""
        for base in (self.folder, self.mirror):
            with suppress(OSError):
                data = self._path(digest, base).read_bytes()
                if hashlib.sha256(data).hexdigest() == digest:
                    return data
        raise NotRestoredError(f"the vault does not hold {digest[:16]} any more", f"Look in {self.folder} and {self.mirror}.")

    def content_bytes(self, content: bytes) -> bytes:
        """The bytes of a small file by its entry's content."""
        return content[1:] if content.startswith(b"i") else self.get(content[1:].decode())

    def write_baseline(self, fingerprint: str, data: bytes) -> None:
        target = self.folder / "baselines" / fingerprint
        temporary = target.with_name(f"{fingerprint}.{os.getpid()}.tmp")
        with open(temporary, "wb") as out:
            out.write(hashlib.sha256(data).digest())
            out.write(data)
            out.flush()
            os.fsync(out.fileno())
        temporary.replace(target)
        link_or_copy(target, self.mirror / "baselines" / fingerprint)
        sync_folder(target.parent)

    def has_baseline(self, fingerprint: str) -> bool:
        return all((base / "baselines" / fingerprint).exists() for base in (self.folder, self.mirror))

    def read_baseline(self, fingerprint: str) -> bytes:
        for base in (self.folder, self.mirror):
            with suppress(OSError):
                data = (base / "baselines" / fingerprint).read_bytes()
                if hashlib.sha256(data[32:]).digest() == data[:32]:
                    return data[32:]
        raise NotRestoredError(
            f"the baseline {fingerprint[:16]} is not in the vault any more",
            f"Looked in {self.folder} and {self.mirror}. Compare the tree with the last commit by hand.",
        )

    def keep_only(self, digests: Iterable[str], baselines: Iterable[str] = ()) -> None:
        """Forget everything else, in both places: in the lifeboat first. One that knows a baseline of which git's folder knows nothing
        looks as if another repository had taken the place of its own (killed in between)."""
        wanted, kept = set(digests), set(baselines)
        for base in (self.mirror, self.folder):
            for path in (base / "baselines").glob("*"):
                if path.name not in kept:
                    path.unlink(missing_ok=True)
            for path in (base / "objects").glob("*/*"):
                if path.parent.name + path.name not in wanted:
                    path.unlink(missing_ok=True)
            for path in (base / "objects").glob("*"):
                with suppress(OSError):
                    path.rmdir()
            for path in base.glob("incoming.*"):
                path.unlink(missing_ok=True)
