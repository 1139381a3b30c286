"""A tree that differs from another in a list of paths, written without an index: the cost follows the list, not the tree.

A temporary index of 80,000 files is read and written three times for one changed path; this reads and writes the changed folders only.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from evolver.errors import GitError
from evolver.git import Git
from evolver.worktree.objects import Staged

TREE = 0o040000
_Entries = dict[bytes, tuple[int, bytes]]  # name -> mode, object id (hex)


class _Changes:
    """What is to change in one folder."""

    def __init__(self) -> None:
        self.leaves: dict[bytes, Staged] = {}
        self.folders: dict[bytes, _Changes] = {}

    def at(self, path: bytes, staged: Staged) -> None:
        *folders, name = path.split(b"/")
        here = self
        for folder in folders:
            here = here.folders.setdefault(folder, _Changes())
        here.leaves[name] = staged


class _Store:
    """Tree objects, read by one git and written by another."""

    def __init__(self, git: Git, hash_size: int) -> None:
        self._size = hash_size
        self._reading = git.start("cat-file", "--batch", stdin=subprocess.PIPE)
        self._writing = git.start("mktree", "-z", "--missing", "--batch", stdin=subprocess.PIPE)

    def close(self) -> None:
        for running in (self._reading, self._writing):
            process: Any = running.proc
            for stream in (process.stdin, process.stdout, process.stderr):
                stream.close()
            process.wait()

    def read(self, oid: bytes) -> _Entries:
        process = self._reading.proc
        process.stdin.write(oid + b"\n")
        process.stdin.flush()
        header = process.stdout.readline().split()
        if len(header) != 3 or header[1] != b"tree":
            raise GitError(f"the object store does not give back tree {oid.decode()}", "Run `git fsck`.")
        raw = process.stdout.read(int(header[2]) + 1)
        entries: _Entries = {}
        at = 0
        while at < len(raw) - 1:
            space = raw.index(b" ", at)
            nul = raw.index(b"\0", space)
            end = nul + 1 + self._size
            entries[raw[space + 1 : nul]] = (int(raw[at:space], 8), raw[nul + 1 : end].hex().encode())
            at = end
        return entries

    def write(self, entries: _Entries) -> bytes:
        process = self._writing.proc
        lines = []
        for name, (mode, oid) in entries.items():
            kind = b"tree" if mode == TREE else b"commit" if mode == 0o160000 else b"blob"
            lines.append(b"%06o %s %s\t%s\0" % (mode, kind, oid, name))
        process.stdin.write(b"".join(lines) + b"\0")
        process.stdin.flush()
        written: bytes = process.stdout.readline().strip()
        if not written:
            raise GitError("git mktree ended early", "Is the disk full?")
        return written


def changed_tree(git: Git, tree: str, wanted: Mapping[str, Staged], hash_size: int) -> str:
    """The id of `tree` with `wanted` applied (mode 0: not there any more). Raise `GitError`."""
    top = _Changes()
    for path, staged in wanted.items():
        top.at(os.fsencode(path), staged)
    store = _Store(git, hash_size)
    try:
        entries = _apply(store, store.read(tree.encode()), top)
        return store.write(entries).decode()
    except BrokenPipeError as error:
        raise GitError("git ended while trees were written", "Is the disk full?") from error
    finally:
        store.close()


@dataclass
class _Frame:
    """One folder on the way from the top to what is being written."""

    name: bytes
    entries: _Entries
    changes: _Changes
    pending: Iterator[tuple[bytes, _Changes]]

    @classmethod
    def open(cls, name: bytes, entries: _Entries, changes: _Changes) -> _Frame:
        """Removals and folders first: a file may take a folder's place, and the other way round."""
        for leaf, staged in changes.leaves.items():
            if not staged.mode and leaf in entries and entries[leaf][0] != TREE:
                del entries[leaf]
        return cls(name, entries, changes, iter(changes.folders.items()))

    def close(self) -> _Entries:
        for leaf, staged in self.changes.leaves.items():
            if staged.mode:
                self.entries[leaf] = (staged.mode, staged.oid.encode())
        return self.entries


def _apply(store: _Store, entries: _Entries, changes: _Changes) -> _Entries:
    """Not by recursion: an attempt can nest folders deeper than any stack."""
    frames = [_Frame.open(b"", entries, changes)]
    while True:
        frame = frames[-1]
        following = next(frame.pending, None)
        if following is not None:
            name, below = following
            mode, oid = frame.entries.get(name, (0, b""))
            frames.append(_Frame.open(name, store.read(oid) if mode == TREE else {}, below))
            continue
        inside = frame.close()
        frames.pop()
        if not frames:
            return inside
        above = frames[-1].entries
        if inside:
            above[frame.name] = (TREE, store.write(inside))
        elif frame.name in above and above[frame.name][0] == TREE:
            del above[frame.name]
