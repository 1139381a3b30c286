"""Where a log on disk ends, found from its end.

Nothing here grows with the log: the first and the last line of the open segment, and the heads, decide.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

import msgspec

from evolver.errors import LogError
from evolver.events import chain, evidence, lines, paths
from evolver.events import head as heads
from evolver.events.files import open_segment
from evolver.events.head import Head, Stamp
from evolver.events.ids import uuid7
from evolver.events.integrity import Finding, State
from evolver.events.mirror import Mirror
from evolver.events.types import LogRecovered, SegmentOpened

OPENING = b'{"specversion":"1.0","id":"'  # what every line of ours starts with
STALE_AT_MOST = 10_000  # lines a head may be behind before it is not looked for any more


@dataclass(frozen=True, slots=True)
class End:
    head: Head | None  # None: there is no log yet
    open: bool = False  # the open segment exists and may be appended to
    recovered: tuple[LogRecovered, ...] = ()
    tampered: Finding | None = None


def find_end(path: Path, mirror: Mirror | None) -> End:
    """Look at the log at `path`, its lock held. Raise `LogError` when it is not ours or too new; then it is untouched."""
    notes: list[LogRecovered] = []
    kept = mirror.read_head() if mirror is not None else None
    if mirror is not None:
        notes += evidence.from_lifeboat(path, mirror, kept)
    beside = heads.read(paths.head_path(path))
    remembered = beside or kept
    if remembered is not None and os.path.lexists(path) and not evidence.regular(path):
        return End(None, tampered=_against(remembered, "replaced", "no regular file"))
    found = _local_end(path, notes)
    if isinstance(found, Finding):
        return End(None, tampered=found if remembered is None else _against(remembered, found.kind, found.found))
    if found is None:
        if beside is not None:
            return End(None, tampered=_against(beside, "lost", "no file, though its head is there"))
        if kept is not None:
            # A new clone in an old place: nothing is wrong, and the trail says where the old stream ended.
            reason = f"a new stream; an earlier one here ended at sequence {kept.sequence} with hash {kept.hash}"
            notes.append(LogRecovered(torn_bytes=0, kept_as="", reason=reason))
        return End(None, recovered=tuple(notes))
    head, is_open = found
    if beside is not None and beside.log != head.log:
        return End(None, tampered=_against(beside, "replaced", f"the file belongs to another stream, {head.log}"))
    for anchor in (beside, kept):
        if anchor is not None and anchor.log == head.log:
            wrong = _disagrees(path, head, anchor)
            if wrong is not None:
                return End(None, tampered=wrong)
    if kept is not None and kept.log != head.log:
        # A repository that was moved here, or a log replaced together with its head: the trail says so either way.
        reason = (
            f"the lifeboat remembers another stream, {kept.log}, which ended at sequence {kept.sequence} with hash {kept.hash}"
        )
        notes.append(LogRecovered(torn_bytes=0, kept_as="", reason=reason))
    return End(head, is_open, tuple(notes))


def _against(expected: Head, kind: str, found: str) -> Finding:
    return Finding(State.TAMPERED, expected, kind, found)


def _disagrees(path: Path, head: Head, anchor: Head) -> Finding | None:
    if anchor.sequence > head.sequence:
        return _against(anchor, "truncated", f"it ends at sequence {head.sequence}")
    if anchor.sequence == head.sequence:
        return (
            None
            if anchor.hash == head.hash
            else _against(anchor, "rewritten", f"sequence {head.sequence} has hash {head.hash}")
        )
    if head.sequence - anchor.sequence > STALE_AT_MOST:
        return None
    # Written but not remembered: killed between the append and the head.
    for file in reversed(paths.segments(path)):
        with file.open("rb") as stream:
            for line in lines.backwards(stream.fileno(), os.fstat(stream.fileno()).st_size):
                envelope = lines.ours(line)
                if envelope is None or envelope.sequence < anchor.sequence:
                    return _against(anchor, "rewritten", f"there is no sequence {anchor.sequence}")
                if envelope.sequence == anchor.sequence:
                    same = envelope.hash == anchor.hash
                    found = f"sequence {anchor.sequence} has hash {envelope.hash}"
                    return None if same else _against(anchor, "rewritten", found)
    return _against(anchor, "rewritten", f"there is no sequence {anchor.sequence}")


def _local_end(path: Path, notes: list[LogRecovered]) -> tuple[Head, bool] | Finding | None:
    if os.path.lexists(path):
        fd = open_segment(path)
        try:
            if os.fstat(fd).st_size > 0:
                end = _end_of(fd, path, notes)
                if end is not None:
                    return end if isinstance(end, Finding) else (end, True)
        finally:
            os.close(fd)
    closed = paths.closed_segments(path)
    if not closed:
        return None
    fd = os.open(closed[-1][1], os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK)
    try:
        end = _end_of(fd, closed[-1][1], None)
    finally:
        os.close(fd)
    if end is None:
        end = Finding(State.TAMPERED, _nothing(), "damaged", f"{closed[-1][1].name} has no whole line")
    return end if isinstance(end, Finding) else (end, False)


def _nothing() -> Head:
    return Head(sequence=0, hash=chain.ZERO, log=uuid7(), segment=0, first=1, stamp=Stamp(0, 0, 0, 0))


def _end_of(fd: int, path: Path, notes: list[LogRecovered] | None) -> Head | Finding | None:
    """Head of one segment. `notes` is given for the open one, whose torn tail may be set aside."""
    first = lines.first_line(fd)
    if first is None:
        if not os.pread(fd, len(OPENING), 0).startswith(OPENING):
            raise _not_ours(path)
    else:
        said = chain.stated(first)
        if said is not None and said[0] > chain.CHAIN_VERSION:
            message = f"{path} was written by a newer evolver (chain version {said[0]})"
            raise LogError(message, "Use that version, or another EVOLVER_EVENTS.")
        if said is None and not first.startswith(OPENING):
            raise _not_ours(path)
    end = lines.tail(fd)
    if end.torn and notes is not None:
        notes.append(_set_aside(fd, path, end))
    if first is None or end.last is None:
        return None
    opened = _opened(first)
    if opened is None:
        return Finding(State.TAMPERED, _nothing(), "damaged", f"the first line of {path.name} is no segment.opened")
    begin, data = opened
    last = lines.ours(end.last)
    if last is None or not chain.intact(end.last):
        expected = Head(
            sequence=begin, hash=chain.ZERO, log=data.log, segment=data.segment, first=begin, stamp=Stamp(0, 0, 0, 0)
        )
        return Finding(State.TAMPERED, expected, "damaged", f"the last line of {path.name} is damaged")
    st = os.fstat(fd)
    return Head(
        sequence=last.sequence, hash=last.hash, log=data.log, segment=data.segment, first=begin, stamp=Stamp.of(st),
    )  # fmt: skip


def _opened(line: bytes) -> tuple[int, SegmentOpened] | None:
    envelope = lines.ours(line)
    if envelope is None or envelope.name != SegmentOpened.TYPE:
        return None
    try:
        return envelope.sequence, msgspec.json.decode(envelope.data, type=SegmentOpened)
    except msgspec.DecodeError:
        return None


def _not_ours(path: Path) -> LogError:
    return LogError(f"{path} is not an event stream of evolver", "It was left as it is; name another file in EVOLVER_EVENTS.")


def _set_aside(fd: int, path: Path, end: lines.Tail) -> LogRecovered:
    """Keep the torn bytes beside the log, then take them off it."""
    kept = path.with_name(f"{path.name}.torn-{uuid7()}")
    try:
        evidence.copy_from(fd, kept, end.end)
        os.ftruncate(fd, end.end)
        os.fsync(fd)
    except OSError as error:
        raise LogError(f"{path}: its torn last line cannot be set aside: {error.strerror}", "Make room on the disk.") from error
    return LogRecovered(torn_bytes=end.torn, kept_as=kept.name)
