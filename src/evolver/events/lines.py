"""Reading a segment's bytes: its first line, its last lines, a range of it as a chain."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass

import msgspec

from evolver.events import chain
from evolver.events.envelope import Envelope, decode
from evolver.events.types import PREFIX

BLOCK = 64 << 10
LONGEST = 64 << 20  # a first line longer than this is no line of ours


@dataclass(frozen=True, slots=True)
class Tail:
    """The end of a segment."""

    last: bytes | None  # the last whole line, without newline; None: there is none
    end: int  # offset after its newline
    size: int

    @property
    def torn(self) -> int:
        return self.size - self.end


def first_line(fd: int) -> bytes | None:
    """Without newline; None when no line ends within a sane length."""
    data = b""
    while len(data) < LONGEST:
        block = os.pread(fd, BLOCK, len(data))
        if not block:
            return None
        at = block.find(b"\n")
        if at >= 0:
            return data + block[:at]
        data += block
    return None


def backwards(fd: int, size: int) -> Iterator[bytes]:
    """Whole lines from the end, without newline; a torn last line is passed over. Memory: one line and one block."""
    rest = b""  # the front part of a line whose start lies in an earlier block
    at, whole = size, False
    while at > 0:
        step = min(BLOCK, at)
        at -= step
        lines = (os.pread(fd, step, at) + rest).split(b"\n")
        rest = lines[0]
        for line in reversed(lines[1:]):
            if whole:
                yield line
            whole = True  # the first piece is what follows the last newline
    if whole:
        yield rest


def tail(fd: int) -> Tail:
    size = os.fstat(fd).st_size
    last = next(backwards(fd, size), None)
    if last is None:
        return Tail(None, 0, size)
    end, at = size, size
    while at > 0:  # the last newline's offset
        step = min(BLOCK, at)
        at -= step
        found = os.pread(fd, step, at).rfind(b"\n")
        if found >= 0:
            end = at + found + 1
            break
    return Tail(last, end, size)


def forwards(fd: int, start: int, end: int) -> Iterator[bytes]:
    """Whole lines from `start`, without newline; what stands after the last newline before `end` is left."""
    rest = b""
    while start < end:
        block = os.pread(fd, min(1 << 20, end - start), start)
        if not block:
            return
        start += len(block)
        lines = (rest + block).split(b"\n")
        rest = lines.pop()
        yield from lines


def ours(line: bytes) -> Envelope | None:
    """The envelope, when the line has the shape of one of ours (whatever its hash says)."""
    try:
        found = decode(line)
    except (msgspec.DecodeError, ValueError):
        return None
    return found if found.specversion == "1.0" and found.type.startswith(PREFIX) else None


def follow_chain(fd: int, start: int, end: int, prevhash: str, sequence: int) -> tuple[int, str] | str:
    """Sequence and hash after the lines in that range, which must follow on `sequence` and `prevhash`; else what is wrong."""
    at = start
    for line in forwards(fd, start, end):
        at += len(line) + 1
        said = chain.stated(line)
        if said is None or not chain.intact(line):
            return f"the line after sequence {sequence} is damaged"
        if said[1] != prevhash:
            return f"the line after sequence {sequence} does not follow on it"
        envelope = ours(line)
        if envelope is None or envelope.sequence != sequence + 1:
            return f"the line after sequence {sequence} is out of sequence"
        prevhash, sequence = said[2], envelope.sequence
    if at != end:
        return f"the line after sequence {sequence} has no end"
    return sequence, prevhash
