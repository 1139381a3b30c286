"""One pass over a log's bytes, in constant memory, near the speed of SHA-256 itself.

A line is compared with the only tail it may have (chain version, the hash before, its own hash), so one comparison
covers shape, link and content; what is wrong with a line is worked out only when that comparison fails.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable
from hashlib import sha256
from pathlib import Path

import msgspec
import orjson

from evolver.events import chain, lines
from evolver.events.types import SegmentClosed, SegmentOpened

BLOCK = 1 << 20


class FirstBad(msgspec.Struct, frozen=True):
    file: str
    line: int  # from 1; 0: the file as a whole
    sequence: int | None  # the one expected there
    kind: str


def shown(path: Path) -> str:
    """A path as text that JSON can hold; its undecodable bytes as `\\xNN`."""
    return os.fsencode(path).decode("utf-8", "backslashreplace")


class BrokenError(Exception):
    """Where the chain breaks; caught by `verify`."""

    def __init__(self, file: Path, line: int, sequence: int | None, kind: str, *, unknown: bool = False) -> None:
        super().__init__(kind)
        self.where = FirstBad(shown(file), line, sequence, kind)
        self.unknown = unknown  # cannot tell, rather than broken


class Walk:
    """The state between two lines: what the next one must say."""

    def __init__(self, wanted: Iterable[int]) -> None:
        self.sequence = 1
        self.prev = chain.ZERO.encode()
        self.events = 0
        self.segments = 0
        self.torn = False
        self.closed = False  # whether the last file ends with the line that says so
        self.log: str | None = None
        self.wanted = dict.fromkeys(wanted, b"")  # hashes that the anchors ask for

    def segment(self, file: Path, size: int | None, *, first: bool, last: bool, whole: bool) -> None:
        """Check one file up to `size`. `whole`: the chain must begin here, at sequence 1. Raise `BrokenError`."""
        try:
            fd = os.open(file, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        except OSError as error:
            raise BrokenError(file, 0, None, f"unreadable: {(error.strerror or '').lower()}", unknown=True) from error
        try:
            if not stat.S_ISREG(os.fstat(fd).st_mode):  # a device never ends
                raise BrokenError(file, 0, None, "no regular file", unknown=True)
            self._begin(fd, file, first=first, alone=first and last, whole=whole)
            before = self.events
            rest, last_line = self._lines(fd, file, size)
            if rest:
                if not last:
                    raise BrokenError(file, self.events - before + 1, self.sequence, "torn")
                self.torn = True
            if not last:
                self._end(file, last_line, self.events - before)
            self.closed = b'"type":"dev.evolver.segment.closed"' in last_line
        except IsADirectoryError as error:
            raise BrokenError(file, 0, None, "no regular file", unknown=True) from error
        finally:
            os.close(fd)
        self.segments += 1

    def _begin(self, fd: int, file: Path, *, first: bool, alone: bool, whole: bool) -> None:
        line = lines.first_line(fd)
        if line is None:
            empty = os.fstat(fd).st_size == 0
            # An emptied log is told from a file that never was one by what remembers it.
            foreign = alone and not _looks_ours(fd) and not (empty and self.wanted)
            kind = "empty" if empty else "not an event stream of evolver"
            raise BrokenError(file, 1, self.sequence, kind, unknown=foreign)
        envelope, said = lines.ours(line), chain.stated(line)
        if envelope is None and said is None and alone and not _looks_ours(fd):
            raise BrokenError(file, 1, None, "not an event stream of evolver", unknown=True)
        if said is not None and said[0] > chain.CHAIN_VERSION and not _is_version_one(line, said[0]):
            raise BrokenError(file, 1, self.sequence, f"chain version {said[0]} of a newer evolver", unknown=True)
        if envelope is None or said is None or not chain.intact(line):
            return  # the walk finds and names it
        if envelope.name != SegmentOpened.TYPE:
            raise BrokenError(file, 1, envelope.sequence, "does not begin with segment.opened")
        try:
            data = msgspec.json.decode(envelope.data, type=SegmentOpened)
        except msgspec.DecodeError as error:
            raise BrokenError(file, 1, envelope.sequence, "damaged") from error
        if first:
            self.log = data.log
            if not whole:
                self.sequence, self.prev = envelope.sequence, said[1].encode()
            elif envelope.sequence != 1:
                raise BrokenError(file, 1, 1, "missing segment")
        elif data.log != self.log:
            raise BrokenError(file, 1, self.sequence, "belongs to another stream")

    def _lines(self, fd: int, file: Path, size: int | None) -> tuple[bytes, bytes]:
        """Check whole lines; the torn rest, and the last whole line."""
        left = size if size is not None else 1 << 62
        rest = last = b""
        number = 0
        start, domain, tail, cut = sha256, chain.DOMAIN, b',"chainversion":1,"prevhash":"%b","hash":"%b"}', chain.TAIL
        sequence, prev, wanted = self.sequence, self.prev, self.wanted
        while left > 0 and (block := os.read(fd, min(BLOCK, left))):
            left -= len(block)
            found = (rest + block).split(b"\n") if rest else block.split(b"\n")
            rest = found.pop()
            if len(rest) > lines.LONGEST:
                self.events += number
                raise BrokenError(file, number + 1, sequence, "malformed")
            for line in found:
                number += 1
                mine = start(domain + line[:-cut]).hexdigest().encode()
                at = line.find(b',"sequence":')
                if not line.endswith(tail % (prev, mine)) or not line.startswith(b',"sequence":%d,' % sequence, at):
                    kind = self._why(line, prev, sequence)
                    if kind is not None:
                        self.events += number - 1
                        raise BrokenError(file, number, sequence, kind)
                prev = mine
                if sequence in wanted:
                    wanted[sequence] = mine
                sequence += 1
            if found:
                last = found[-1]
        self.events += number
        self.sequence, self.prev = sequence, prev
        return rest, last

    def _why(self, line: bytes, prev: bytes, sequence: int) -> str | None:
        """What is wrong with a line that is not as expected; None: only its fields stand in another order."""
        said = chain.stated(line)
        if said is None:
            return "malformed"
        version, prevhash, stated = said
        if version != chain.CHAIN_VERSION:
            return "version" if not _is_version_one(line, version) else "damaged"
        if chain.digest(line[: -chain.TAIL]) != stated:
            return "damaged"
        try:
            found = orjson.loads(line)["sequence"]
        except (orjson.JSONDecodeError, KeyError, TypeError):
            return "malformed"
        if stated.encode() == prev:
            return "duplicated"
        if found != sequence:
            return "dropped" if isinstance(found, int) and found > sequence else "out of order"
        return None if prevhash.encode() == prev else "does not follow"

    def _end(self, file: Path, last: bytes, count: int) -> None:
        """A closed segment's last line states what came before it, when it was closed in order."""
        envelope = lines.ours(last)
        if envelope is None or envelope.name != SegmentClosed.TYPE:
            return  # set aside as broken; the chain decides
        try:
            data = msgspec.json.decode(envelope.data, type=SegmentClosed)
        except msgspec.DecodeError as error:
            raise BrokenError(file, count, envelope.sequence, "damaged") from error
        if (data.count, data.bytes, data.last_hash) != (count - 1, file.stat().st_size - len(last) - 1, envelope.prevhash):
            raise BrokenError(file, count, envelope.sequence, "summary does not match")


def _looks_ours(fd: int) -> bool:
    """Whether a file whose first line is none of ours is one of our logs all the same, damaged there."""
    return b',"chainversion":' in os.pread(fd, lines.BLOCK, 0)


def _is_version_one(line: bytes, version: int) -> bool:
    """Whether a line that names another chain version is one of ours with that digit changed."""
    at = line.rfind(b',"chainversion":')
    body = line[:at] + line[at:].replace(b":%d," % version, b":1,", 1)
    said = chain.stated(body)
    return said is not None and chain.digest(body[: -chain.TAIL]) == said[2]
