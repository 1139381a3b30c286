"""git's index file, read without git: what it means, and which of its bytes are only stat data.

Read by ourselves for three reasons: a held tree may not be asked through git (its config is the attempt's), 80,000 entries are read
in a tenth of a second without a child, and a refreshed index must be told from a changed one. Format: gitformat-index, versions 2-4.
"""

from __future__ import annotations

import hashlib
import os
import re
import struct
from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

_HEAD = struct.Struct(">4sII")
_STAT = struct.Struct(">IIIIIIIIII")
_FLAGS = struct.Struct(">H")
ASSUME_VALID = 0x8000
EXTENDED = 0x4000
STAGE = 0x3000
SKIP_WORKTREE = 0x40000000  # extended flags, shifted into the upper half
INTENT_TO_ADD = 0x20000000
GITLINK = 0o160000
_NONZERO = re.compile(rb"[^\0]+")


class IndexEntry(NamedTuple):
    """One path at one stage. `flags`: assume-valid, skip-worktree, intent-to-add; `stat`: ctime s, ns, mtime s, ns, dev, ino,
    mode, uid, gid, size as git stored them (32 bits each)."""

    stat: tuple[int, ...]
    oid: str
    stage: int
    flags: int

    @property
    def mode(self) -> int:
        return self.stat[6]

    @property
    def hidden(self) -> bool:
        """git was told not to look at the file."""
        return bool(self.flags & (ASSUME_VALID | SKIP_WORKTREE))


class IndexDamaged(ValueError):
    """The bytes are no index we can read."""


@dataclass
class Index:
    """Entries by path (stage 0; `unmerged` holds the others) and where each begins in the bytes."""

    raw: bytes
    entries: dict[str, IndexEntry] = field(default_factory=dict)
    unmerged: list[tuple[str, IndexEntry]] = field(default_factory=list)
    starts: list[int] = field(default_factory=list)
    entries_end: int = 0
    hash_size: int = 20
    extensions: frozenset[bytes] = frozenset()
    gitlinks: tuple[str, ...] = ()  # submodules, and nested repositories that were added

    def meaning(self) -> str:
        """A digest of everything but stat data and caches."""
        digest = hashlib.sha256()
        for path, entry in [*self.entries.items(), *self.unmerged]:
            digest.update(f"{entry.mode:o} {entry.oid} {entry.stage} {entry.flags:x} ".encode())
            digest.update(os.fsencode(path) + b"\0")
        return digest.hexdigest()

    def differs_only_in_stat(self, other: bytes) -> bool:
        """Is `other` this index with other stat data? Looks at the differing bytes alone."""
        if len(other) != len(self.raw):
            return False
        if other == self.raw:
            return True
        size = len(other)
        delta = (int.from_bytes(self.raw, "big") ^ int.from_bytes(other, "big")).to_bytes(size, "big")
        trailer = size - self.hash_size
        for run in _NONZERO.finditer(delta):
            start, end = run.span()
            if start >= trailer:
                return True
            if start >= self.entries_end:
                return False
            position = bisect_right(self.starts, start) - 1
            if position < 0:
                return False
            offset, last = start - self.starts[position], end - self.starts[position]
            if not (last <= 24 or (offset >= 28 and last <= 40)):  # everything of the stat data but the mode
                return False
        return True


def built(entries: Mapping[str, tuple[int, str]], hash_size: int) -> bytes:
    """The bytes of an index (version 2) that says mode and object of each path, and no stat data: git looks at every file anew."""
    out = bytearray(_HEAD.pack(b"DIRC", 2, len(entries)))
    for name, (mode, oid) in sorted((os.fsencode(path), said) for path, said in entries.items()):
        fixed = _STAT.pack(0, 0, 0, 0, 0, 0, mode, 0, 0, 0) + bytes.fromhex(oid) + _FLAGS.pack(min(len(name), 0xFFF))
        out += fixed + name + b"\0" * (8 - (len(fixed) + len(name)) % 8)
    return bytes(out) + hashlib.new("sha1" if hash_size == 20 else "sha256", out).digest()


def parse(raw: bytes, hash_size: int = 20) -> Index:
    """Raise `IndexDamaged`. An empty file is an empty index."""
    index = Index(raw, hash_size=hash_size)
    if not raw:
        return index
    try:
        return _parse(raw, index)
    except (struct.error, IndexError, ValueError) as error:
        raise IndexDamaged(str(error)) from error


def _parse(raw: bytes, index: Index) -> Index:
    signature, version, count = _HEAD.unpack_from(raw)
    if signature != b"DIRC" or version not in (2, 3, 4):
        raise IndexDamaged(f"not an index of version 2 to 4: {signature!r} {version}")
    size = index.hash_size
    check = raw[-size:]
    if check != bytes(size) and hashlib.new("sha1" if size == 20 else "sha256", raw[:-size]).digest() != check:
        raise IndexDamaged("the checksum does not match")
    position, previous = 12, b""
    fixed = 40 + size + 2
    entries, starts = index.entries, index.starts
    for _ in range(count):
        starts.append(position)
        stat = _STAT.unpack_from(raw, position)
        oid = raw[position + 40 : position + 40 + size]
        (flags,) = _FLAGS.unpack_from(raw, position + 40 + size)
        at = position + fixed
        extended = 0
        if flags & EXTENDED:
            (extended,) = _FLAGS.unpack_from(raw, at)
            at += 2
        if version == 4:
            strip, at = _varint(raw, at)
            end = raw.index(b"\0", at)
            previous = previous[: len(previous) - strip] + raw[at:end]
            name, position = previous, end + 1
        else:
            length = flags & 0xFFF
            end = raw.index(b"\0", at) if length == 0xFFF else at + length
            name = raw[at:end]
            position += (end - position + 8) & ~7
        entry = IndexEntry(stat, oid.hex(), (flags & STAGE) >> 12, (flags & ASSUME_VALID) | (extended << 16))
        path = os.fsdecode(name)
        if entry.stage:
            index.unmerged.append((path, entry))
        else:
            entries[path] = entry
            if stat[6] == GITLINK:
                index.gitlinks += (path,)
    index.entries_end = position
    found = set()
    while position < len(raw) - size:
        found.add(raw[position : position + 4])
        position += 8 + int.from_bytes(raw[position + 4 : position + 8], "big")
    index.extensions = frozenset(found)
    return index


def _varint(raw: bytes, at: int) -> tuple[int, int]:
    byte = raw[at]
    value = byte & 0x7F
    at += 1
    while byte & 0x80:
        byte = raw[at]
        value = ((value + 1) << 7) + (byte & 0x7F)
        at += 1
    return value, at


def tree_oid(index: Index) -> str | None:
    """The root tree that the cache-tree extension vouches for; None when it is not valid."""
    raw, position = index.raw, index.entries_end
    while 0 < position < len(raw) - index.hash_size:
        name, length = raw[position : position + 4], int.from_bytes(raw[position + 4 : position + 8], "big")
        body = raw[position + 8 : position + 8 + length]
        if name == b"TREE":
            nul = body.find(b"\0")
            line, _, rest = body[nul + 1 :].partition(b"\n")
            if nul != 0 or line.startswith(b"-"):
                return None
            return rest[: index.hash_size].hex()
        position += 8 + length
    return None
