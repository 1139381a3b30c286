"""Is the log still what we wrote? Compared before every append; the usual answer costs one `stat`.

Other processes append under the same lock (`events`, `resume`, a run in a sibling worktree): what follows on our last
line is no tampering. A changed ctime alone is none either (a hard link, a `chmod`): then the bytes decide.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path

import msgspec

from evolver.events import chain, lines, paths
from evolver.events import head as heads
from evolver.events.head import Head, Stamp


class State(StrEnum):
    SAME = "same"  # nothing happened, or only what may happen; `head` is where the log ends now
    LOST = "lost"  # no file at the path
    REPLACED = "replaced"  # another file at the path
    TAMPERED = "tampered"


@dataclass(frozen=True, slots=True)
class Finding:
    state: State
    head: Head
    kind: str = ""  # truncated | edited | replaced | lost
    found: str = ""  # what was there instead, in words
    file: Path | None = None  # where the log's end lies now, when it is not the open segment we know
    torn: int = 0  # bytes of a line another writer did not finish


def _moved(head: Head, **changes: object) -> Head:
    return msgspec.structs.replace(head, **changes)


def examine(path: Path, fd: int, head: Head) -> Finding:
    """Compare what is at `path` with what we last wrote through `fd`. The log's lock is held."""
    try:
        st = os.lstat(path)
    except OSError:
        st = None
    if st is not None and Stamp.of(st) == head.stamp:
        return Finding(State.SAME, head)
    if st is not None and (st.st_dev, st.st_ino) == head.stamp[:2]:
        return _examine_same_file(path, fd, head, Stamp.of(st))
    for index, (_, closed) in enumerate(chain_of := paths.closed_segments(path)):
        if _inode(closed) == head.stamp[:2]:
            rest = [file for _, file in chain_of[index + 1 :]] + ([path] if st is not None else [])
            return _examine_rotated(closed, rest, head)
    if st is None:
        return Finding(State.LOST, head, "lost", "no file")
    return Finding(State.REPLACED, head, "replaced", f"another file of {st.st_size} bytes")


def _inode(path: Path) -> tuple[int, int]:
    try:
        st = os.lstat(path)
    except OSError:
        return (-1, -1)
    return (st.st_dev, st.st_ino)


def _examine_same_file(path: Path, fd: int, head: Head, stamp: Stamp) -> Finding:
    if stamp.size < head.stamp.size:
        return Finding(State.TAMPERED, head, "truncated", f"{stamp.size} bytes instead of {head.stamp.size}")
    written = heads.read(paths.head_path(path))
    if written is None or written.stamp != stamp or written.sequence <= head.sequence:
        # Nobody vouches for the last change: look at every byte of the segment.
        wrong = _unlike(fd, head)
        if wrong:
            return Finding(State.TAMPERED, head, "edited", wrong)
    end = lines.tail(fd)
    after = lines.follow_chain(fd, head.stamp.size, end.end, head.hash, head.sequence)
    if isinstance(after, str):
        return Finding(State.TAMPERED, head, "edited", after)
    moved = _moved(head, sequence=after[0], hash=after[1], stamp=stamp)
    return Finding(State.SAME, moved, torn=end.torn)


def _unlike(fd: int, head: Head) -> str:
    """What is wrong with the bytes up to where we stopped; "" when they lead to our last hash."""
    first = lines.first_line(fd)
    said = chain.stated(first) if first is not None else None
    if said is None:
        return "the first line is damaged"
    found = lines.follow_chain(fd, 0, head.stamp.size, said[1], head.first - 1)
    if isinstance(found, str):
        return found
    return "" if found == (head.sequence, head.hash) else f"it ends with sequence {found[0]}, hash {found[1]}"


def holds(fd: int, head: Head) -> bool:
    """Whether the file behind `fd` leads to `head`, whatever became of its name."""
    return os.fstat(fd).st_size >= head.stamp.size and not _unlike(fd, head)


def _examine_rotated(closed: Path, rest: list[Path], head: Head) -> Finding:
    """Another process rotated: follow the chain from our last line through the files that came after."""
    start, where, torn = head.stamp.size, head, 0
    for file in [closed, *rest]:
        fd = os.open(file, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK)
        try:
            stamp = Stamp.of(os.fstat(fd))
            if stamp.size < start:
                return Finding(State.TAMPERED, head, "truncated", f"{file.name} has {stamp.size} bytes instead of {start}")
            end = lines.tail(fd)
            after = lines.follow_chain(fd, start, end.end, where.hash, where.sequence)
            if isinstance(after, str):
                return Finding(State.TAMPERED, head, "edited", f"{file.name}: {after}")
            first = head.first if file == closed else where.sequence + 1
            segment = where.segment if file == closed else where.segment + 1
            where = _moved(where, sequence=after[0], hash=after[1], first=first, segment=segment, stamp=stamp)
            start, torn = 0, end.torn
        finally:
            os.close(fd)
    return replace(Finding(State.SAME, where, file=rest[-1] if rest else closed), torn=torn)
