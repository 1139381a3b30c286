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
    pieces: list[bytes] = []
    for start in range(0, LONGEST, BLOCK):
        block = os.pread(fd, BLOCK, start)
        at = block.find(b"\n")
        if at >= 0:
            return b"".join([*pieces, block[:at]])
        if not block:
            return None
        pieces.append(block)
    return None


def backwards(fd: int, size: int) -> Iterator[bytes]:
    """Whole lines from the end, without newline; a torn last line is passed over. Memory: one line and one block.

    Of a line longer than any of ours only the end is given, so that garbage costs no more than its length.
    """
    pieces: list[bytes] = []  # of a line whose start lies in an earlier block, from its end
    held = 0
    at, whole = size, False
    while at > 0:
        step = min(BLOCK, at)
        at -= step
        *earlier, last = os.pread(fd, step, at).split(b"\n")
        if whole and held <= LONGEST:
            pieces.append(last)
            held += len(last)
        if not earlier:
            continue
        if whole:
            yield b"".join(reversed(pieces))
        whole = True  # the first piece is what follows the last newline
        first, *between = earlier
        yield from reversed(between)
        pieces, held = [first], len(first)
    if whole:
        yield b"".join(reversed(pieces))


def tail(fd: int) -> Tail:
    size = os.fstat(fd).st_size
    end = at = size
    while at > 0:  # the last newline's offset
        step = min(BLOCK, at)
        at -= step
        found = os.pread(fd, step, at).rfind(b"\n")
        if found >= 0:
            end = at + found + 1
            return Tail(next(backwards(fd, end)), end, size)
    return Tail(None, 0, size)


def forwards(fd: int, start: int, end: int) -> Iterator[bytes]:
    """Whole lines from `start`, without newline; what stands after the last newline before `end` is left.

    A line longer than any of ours comes in pieces, none of which is an event; a byte is left out between two, as a newline
    is between lines.
    """
    pieces: list[bytes] = []  # of a line whose end lies in a later block
    held = 0
    while start < end:
        block = os.pread(fd, min(1 << 20, end - start), start)
        if not block:
            return
        start += len(block)
        first, *others = block.split(b"\n")
        pieces.append(first)
        held += len(first)
        if others:
            yield b"".join(pieces)
            yield from others[:-1]
            pieces, held = [others[-1]], len(others[-1])
        elif held > LONGEST:
            line = b"".join(pieces)
            yield line[:LONGEST]
            pieces, held = [line[LONGEST + 1 :]], held - LONGEST - 1


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
