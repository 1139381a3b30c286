"""Checking a log: the walk over its bytes, what the anchors remember, and what the result does not say."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import msgspec

from evolver.events import head as heads
from evolver.events import paths
from evolver.events.walk import BrokenError, FirstBad, Walk, shown

Anchors = Literal["consistent", "truncated", "rewritten", "none"]
Status = Literal["intact", "broken", "unknown"]

CAVEATS = (
    "The chain shows that no line was changed, dropped, added or moved after it was written. It does not show who wrote it: "
    "a process of the same user can write a new log with a valid chain, and change head files and refs to match.",
    "Only a signature by a key that process cannot reach, or a copy forwarded elsewhere, is independent of this machine.",
)


class Anchor(msgspec.Struct, frozen=True):
    """A remembered end: this sequence had this hash."""

    name: str  # where it was remembered
    sequence: int
    hash: str


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """What `audit verify --json` prints."""

    status: Status
    events: int
    segments: int
    first_bad: FirstBad | None
    anchors: Anchors
    torn_tail: bool
    caveats: tuple[str, ...]


def verify(
    files: Sequence[Path],
    anchors: Sequence[Anchor] = (),
    *,
    whole: bool = True,
    size: int | None = None,
    remarks: Sequence[str] = (),
) -> Report:
    """Check the segments, oldest first, as one chain; then what the anchors remember.

    `whole`: the chain must begin with the stream's first line. `size`: bytes of the last file to look at (a live log
    grows meanwhile). `remarks` become caveats. Problems are in the report, none is raised.
    """
    walk = Walk(anchor.sequence for anchor in anchors)
    bad: BrokenError | None = None
    try:
        if not files:
            raise BrokenError(Path("(no event stream)"), 0, None, "missing", unknown=True)
        for index, file in enumerate(files):
            last = index == len(files) - 1
            walk.segment(file, size if last else None, first=index == 0, last=last, whole=whole)
    except BrokenError as found:
        bad = found
    caveats = [*CAVEATS, *remarks]
    if not whole:
        caveats.append("Only part of the stream was given; nothing is said of what came before it.")
    if bad is not None:
        status: Status = "unknown" if bad.unknown else "broken"
        judged: Anchors = "none"
        if anchors:
            caveats.append("The anchors were not compared, since the chain itself does not hold.")
    else:
        judged = _compare(walk, anchors)
        status = "broken" if judged in ("truncated", "rewritten") else "intact"
        caveats += _about(walk, anchors, judged)
        if paths.log_of_closed(files[-1]) is not None and not walk.closed:
            caveats.append(f"{shown(files[-1])} does not end with segment.closed: it was cut there, or set aside as broken.")
    first_bad = bad.where if bad is not None else None
    if first_bad is None and status == "broken":
        first_bad = FirstBad(shown(files[-1]), 0, _first_wrong(walk, anchors), judged)
    return Report(
        status=status,
        events=walk.events,
        segments=walk.segments,
        first_bad=first_bad,
        anchors=judged,
        torn_tail=walk.torn,
        caveats=tuple(caveats),
    )


def _compare(walk: Walk, anchors: Sequence[Anchor]) -> Anchors:
    if not anchors:
        return "none"
    if any(walk.wanted[a.sequence] not in (b"", a.hash.encode()) for a in anchors):
        return "rewritten"
    return "truncated" if any(a.sequence >= walk.sequence for a in anchors) else "consistent"


def _first_wrong(walk: Walk, anchors: Sequence[Anchor]) -> int:
    return min((walk.sequence, *(a.sequence for a in anchors if walk.wanted[a.sequence] not in (b"", a.hash.encode()))))


def _about(walk: Walk, anchors: Sequence[Anchor], judged: Anchors) -> list[str]:
    words: list[str] = []
    if judged == "none":
        words.append("No anchor was found, so lines cut from the end would not be noticed.")
    for anchor in anchors:
        if anchor.sequence >= walk.sequence:
            words.append(f"{anchor.name} remembers sequence {anchor.sequence}; the log ends at {walk.sequence - 1}.")
        elif walk.wanted[anchor.sequence] not in (b"", anchor.hash.encode()):
            words.append(f"{anchor.name} remembers another hash for sequence {anchor.sequence}.")
    if walk.torn:
        words.append("The last line is unfinished: its writer died. The next run sets it aside.")
    return words


def combine(reports: Sequence[Report]) -> Report:
    """Several logs as one report: the worst of each; broken outranks unknown."""
    if len(reports) == 1:
        return reports[0]
    ranks: tuple[Status, ...] = ("intact", "unknown", "broken")
    worst = max(reports, key=lambda report: ranks.index(report.status))
    judged: tuple[Anchors, ...] = ("consistent", "none", "truncated", "rewritten")
    return Report(
        status=worst.status,
        events=sum(report.events for report in reports),
        segments=sum(report.segments for report in reports),
        first_bad=worst.first_bad,
        anchors=max((report.anchors for report in reports), key=judged.index),
        torn_tail=any(report.torn_tail for report in reports),
        caveats=tuple(dict.fromkeys(caveat for report in reports for caveat in report.caveats)),
    )


def other_stream(path: Path, lifeboat: Path | None) -> list[str]:
    """A caveat when the lifeboat remembers another stream than the head beside the log."""
    beside = heads.read(paths.head_path(path))
    kept = heads.read(paths.head_path(lifeboat / path.name)) if lifeboat is not None else None
    if beside is None or kept is None or kept.log == beside.log:
        return []
    return [
        f"The lifeboat remembers another stream here, which ended at sequence {kept.sequence} with hash {kept.hash}. Unless this "
        "repository was moved here since, or EVOLVER_EVENTS named another file, the log was replaced."
    ]


def head_anchors(path: Path, lifeboat: Path | None) -> list[Anchor]:
    """The anchors that lie in files: the head beside the log, and the one in the lifeboat when it is of the same stream."""
    found: list[Anchor] = []
    beside = heads.read(paths.head_path(path))
    if beside is not None:
        found.append(Anchor("head", beside.sequence, beside.hash))
    kept = heads.read(paths.head_path(lifeboat / path.name)) if lifeboat is not None else None
    if kept is not None and (beside is None or kept.log == beside.log):
        found.append(Anchor("head in the lifeboat", kept.sequence, kept.hash))
    return found
