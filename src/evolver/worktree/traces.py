"""What git noted in one worktree since the baseline: the branches it stood on, the commits made there, what a fetch there brought.

Refs are shared by all worktrees, and a ref's own reflog does not say where it was moved. The reflog of HEAD does: each worktree has its own.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from evolver.worktree.anchor import read_regular
from evolver.worktree.refs import value_of

Before = Callable[[str], bytes]  # a file of the git folder as the baseline has it; empty: it was not there

_LINE = re.compile(rb"([0-9a-f]{40,64}) ([0-9a-f]{40,64}) [^\t]*\t(.*)")
_SWITCHED = re.compile(rb"checkout: moving from (\S+) to (\S+)")
_RENAMED = re.compile(rb"Branch: renamed (\S+) to (\S+)")
_RETURNED = re.compile(rb"rebase\b.*: returning to (\S+)")
_MADE = re.compile(rb"(commit|merge|rebase|cherry-pick|revert|pull|am)\b")
_HALF_DONE = ("rebase-merge/head-name", "rebase-apply/head-name", "rebase-merge/update-refs", "BISECT_START")


@dataclass(frozen=True)
class Traces:
    """Of one worktree. `refs`: what it stands on, stood on since the baseline, or comes back to when a rebase or bisection ends."""

    refs: frozenset[str] = frozenset()
    made: frozenset[str] = frozenset()  # commits HEAD moved to by commit, merge, rebase and the like
    fetched: frozenset[str] = frozenset()
    detached: bool = False  # for some of the time


def traces(folder: Path, before: Before) -> Traces:
    """Read from files, now and as the baseline has them."""
    names: set[str] = set()
    made: set[str] = set()
    detached = False
    for raw in _both(folder, "HEAD", before):
        value = value_of(raw)
        if value.startswith("ref: "):
            names.add(value[5:])
        else:
            detached = True
    for name in _HALF_DONE:
        for raw in _both(folder, name, before):
            names.update(_full(word) for word in raw.split())
    for old, new, message in _new_lines(folder, before):
        if (match := _SWITCHED.match(message) or _RENAMED.match(message)) is not None:
            names |= {_full(match[1]), _full(match[2])}
            detached = detached or match[2] in (new, b"HEAD")
        elif (match := _RETURNED.match(message)) is not None:
            names.add(_full(match[1]))
        if old != new and _MADE.match(message):
            made.add(new.decode())
    fetched = frozenset(line[: line.find(b"\t")].decode("ascii", "replace") for line in _fetched(folder, before))
    return Traces(frozenset(names), frozenset(made), fetched, detached)


def _full(word: bytes) -> str:
    text = os.fsdecode(word)
    return text if text.startswith("refs/") else f"refs/heads/{text}"


def _now(path: Path) -> bytes:
    with suppress(OSError):
        return read_regular(path)
    return b""


def _both(folder: Path, name: str, before: Before) -> list[bytes]:
    """The bytes now and then, where there are any."""
    return [raw for raw in (_now(folder / name), before(name)) if raw]


def _new_lines(folder: Path, before: Before) -> list[tuple[bytes, bytes, bytes]]:
    """(old, new, message) of what HEAD's reflog has and the baseline's had not. It only grows, until it is expired."""
    path = folder / "logs" / "HEAD"
    then = before("logs/HEAD")
    with suppress(OSError):
        if path.stat().st_size == len(then):
            return []
    known = set(then.split(b"\n"))
    found = (_LINE.fullmatch(line) for line in _now(path).split(b"\n") if line not in known)
    return [(match[1], match[2], match[3]) for match in found if match is not None]


def _fetched(folder: Path, before: Before) -> list[bytes]:
    now = _now(folder / "FETCH_HEAD")
    if not now or now == before("FETCH_HEAD"):
        return []
    return [line for line in now.split(b"\n") if b"\t" in line]
