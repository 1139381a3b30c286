"""Where the bytes of a baseline come from: the manifest itself, the vault, or git's object store through one `cat-file --batch`."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from types import TracebackType
from typing import Any

from evolver.errors import GitError, NotRestoredError
from evolver.git import Git
from evolver.worktree import xattrs
from evolver.worktree.manifest import Tree, lookup
from evolver.worktree.vault import CHUNK, Vault


class Source:
    """Streams what an entry's content names. A context manager: git is started when a blob is first asked for."""

    def __init__(self, vault: Vault, git: Git | None) -> None:
        self._vault, self._git = vault, git
        self._batch: Any = None

    def __enter__(self) -> Source:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self._batch is not None:
            process = self._batch.proc
            process.stdin.close()
            process.stdout.close()
            process.stderr.close()
            process.wait()

    def chunks(self, content: bytes) -> Iterator[bytes]:
        """Raise `NotRestoredError` or `GitError` when the bytes are not to be had."""
        kind, rest = content[:1], xattrs.plain(content)[1:]
        if kind == b"i":
            yield rest
        elif kind == b"s":
            yield from self._from_vault(rest.decode())
        elif kind == b"b":
            yield from self._blob(rest.decode())
        else:
            raise NotRestoredError(f"nothing is known of this file's bytes ({content[:1]!r})")

    def attributes(self, content: bytes) -> xattrs.Pairs:
        """A file's extended attributes. Raise `NotRestoredError` when the vault has them no more."""
        digest = xattrs.digest(content)
        return xattrs.unpacked(self._vault.get(digest)) if digest else []

    def _from_vault(self, digest: str) -> Iterator[bytes]:
        fd = self._vault.open(digest)
        size = os.fstat(fd).st_size
        if size <= CHUNK:
            os.close(fd)
            yield self._vault.get(digest)  # hashed on the way
            return
        with os.fdopen(fd, "rb") as file:
            while chunk := file.read(CHUNK):
                yield chunk

    def _blob(self, oid: str) -> Iterator[bytes]:
        if self._git is None:
            raise NotRestoredError(f"blob {oid} is not to be had without git")
        if self._batch is None:
            self._batch = self._git.start("cat-file", "--batch", stdin=subprocess.PIPE)
        process = self._batch.proc
        try:
            process.stdin.write(oid.encode() + b"\n")
            process.stdin.flush()
        except BrokenPipeError as error:
            raise GitError("git cat-file ended early; the object store may be damaged") from error
        header = process.stdout.readline().split()
        if len(header) != 3 or header[1] != b"blob":
            raise GitError(f"the object store does not give back blob {oid}", "Run `git fsck`; `git fetch` may bring it back.")
        left = int(header[2])
        while left:
            chunk = process.stdout.read(min(left, CHUNK))
            if not chunk:
                raise GitError(f"blob {oid} is damaged in the object store")
            left -= len(chunk)
            yield chunk
        process.stdout.read(1)
        if int(header[2]) == 0:
            yield b""


def stored(vault: Vault, tree: Tree, path: str) -> bytes:
    """The bytes a file of git's own folder had; empty when there was none."""
    entry = lookup(tree, path)
    if entry is None or not entry.is_file:
        return b""
    with Source(vault, None) as source:
        return b"".join(source.chunks(entry.content))
