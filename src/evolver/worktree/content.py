"""What a file's bytes are called in the manifest: a blob git already has, a sha256 the vault keeps, or the bytes themselves.

`b` + blob id: the raw bytes hash to that blob, so clean HEAD can give them back, whatever filters say (kinds 10, 22, 28).
`s` + sha256: kept in the vault. `i` + bytes: small files of git's own folder. `l` + target: a link. Each kind has its letter, as a
link may point at anything, a lone `-` too. In the worktree, `+` and a sha256 follow the first two for a file with extended attributes.
"""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Callable

from evolver.worktree import xattrs
from evolver.worktree.anchor import Anchor
from evolver.worktree.manifest import Entry
from evolver.worktree.vault import CHUNK, Vault

Content = Callable[[str, Entry, Entry | None], bytes]  # path, the entry now, the entry before
INLINE = 512  # bytes of a git-folder file kept in the manifest itself
NAMED_UP_TO = 256 << 20  # bytes: a larger file of an attempt is told by size and ctime
OTHER = b"?"  # read or not, it is certainly not what it was before


def blob_hasher(size: int, algorithm: str) -> hashlib._Hash:
    hasher = hashlib.new(algorithm)
    hasher.update(b"blob %d\0" % size)
    return hasher


def digests(fd: int, algorithm: str) -> tuple[str, str]:
    """(blob id, sha256) of an open file. When it grows meanwhile, both are wrong, and neither will match."""
    size = os.fstat(fd).st_size
    blob, plain = blob_hasher(size, algorithm), hashlib.sha256()
    while chunk := os.read(fd, CHUNK):
        blob.update(chunk)
        plain.update(chunk)
    return blob.hexdigest(), plain.hexdigest()


def link_or_special(anchor: Anchor, path: str, entry: Entry) -> bytes | None:
    """The content of what is no regular file; None for a regular one."""
    if stat.S_ISREG(entry.mode):
        return None
    return b"l" + anchor.readlink(path) if stat.S_ISLNK(entry.mode) else b""


def compared(anchor: Anchor, algorithm: str, *, name: bool = False) -> Content:
    """For comparing: the earlier content when the file still has it, else `?`, or its sha256 with `name`. Keeps nothing."""

    def content(path: str, now: Entry, before: Entry | None) -> bytes:
        fixed = link_or_special(anchor, path, now)
        if fixed is not None:
            return fixed
        candidate = before is not None and before.is_file and before.size == now.size
        if not candidate and (not name or now.size > NAMED_UP_TO):
            return OTHER + b"%d %d" % (now.size, now.ctime_ns) if name else OTHER
        try:
            fd = anchor.open_file(path)
        except OSError:
            return OTHER
        try:
            blob, plain = digests(fd, algorithm)
            extra = xattrs.packed(fd)
        finally:
            os.close(fd)
        names = (b"b" + blob.encode(), b"s" + plain.encode())
        same = before is not None and xattrs.plain(before.content) in names
        return (xattrs.plain(before.content) if before is not None and same else names[1]) + attributes_digest(extra)

    return content


def attributes_digest(extra: bytes) -> bytes:
    """What follows a content's name for these attributes."""
    return xattrs.MARK + hashlib.sha256(extra).hexdigest().encode() if extra else b""


def kept(anchor: Anchor, vault: Vault, *, inline: bool) -> Content:
    """For a baseline: read it and keep it."""

    def content(path: str, now: Entry, before: Entry | None) -> bytes:
        fixed = link_or_special(anchor, path, now)
        if fixed is not None:
            return fixed
        fd = anchor.open_file(path)
        try:
            if inline and now.size <= INLINE:
                return b"i" + os.read(fd, INLINE + 1)
            return b"s" + vault.put_fd(fd).encode()
        finally:
            os.close(fd)

    return content


def observed(anchor: Anchor) -> Content:
    """For git's own folder: small files whole (refs are read from them), others by sha256. Keeps nothing."""

    def content(path: str, now: Entry, before: Entry | None) -> bytes:
        fixed = link_or_special(anchor, path, now)
        if fixed is not None:
            return fixed
        try:
            fd = anchor.open_file(path)
        except OSError:
            return OTHER
        try:
            if now.size <= INLINE:
                return b"i" + os.read(fd, INLINE + 1)
            return b"s" + digests(fd, "sha1")[1].encode()
        finally:
            os.close(fd)

    return content
