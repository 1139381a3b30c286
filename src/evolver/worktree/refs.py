"""Refs, read from git's files: what every ref says at an instant, without running git on a folder that is not to be trusted.

A value is an object id, `ref: NAME` (symbolic), or BROKEN. refs/evolver/ is ours and never part of a baseline.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from evolver.worktree.gitfolder import per_worktree
from evolver.worktree.manifest import Tree, entries
from evolver.worktree.values import RefChange

BROKEN = "?"
OURS = "refs/evolver/"
STASH = "refs/stash"
_OID = re.compile(r"(?:[0-9a-f]{40}|[0-9a-f]{64})\Z")
_PACKED = re.compile(rb"([0-9a-f]{40}|[0-9a-f]{64}) ([^\n]+)\n")


@dataclass(frozen=True)
class Refs:
    """HEAD (its own words: an object id, `ref: NAME`, BROKEN, or "" when missing) and every other ref."""

    head: str
    refs: dict[str, str] = field(default_factory=dict)
    packed_ok: bool = True

    @property
    def branch(self) -> str | None:
        return self.head[5:] if self.head.startswith("ref: ") else None

    @property
    def commit(self) -> str | None:
        """What HEAD comes to; None: unborn or broken."""
        return self.resolve(self.head)

    def resolve(self, value: str) -> str | None:
        for _ in range(6):
            if value.startswith("ref: "):
                value = self.refs.get(value[5:], "")
                continue
            return value if _OID.match(value) else None
        return None


def value_of(raw: bytes) -> str:
    """The value a loose ref file holds."""
    text = raw.decode("utf-8", "surrogateescape")
    if text.startswith("ref:"):
        target = text[4:].strip()
        return f"ref: {target}" if target else BROKEN
    text = text[:64].strip() if _OID.match(text[:64].strip()) else text.strip()
    return text if _OID.match(text) else BROKEN


def read(private: Tree, common: Tree, packed: bytes) -> Refs:
    """`private`: this worktree's git folder; `common`: the one shared by linked worktrees (may be the same)."""
    found: dict[str, str] = {}
    packed_ok = parse_packed(packed, found)
    for tree in (common, private):
        for path, entry in entries(tree, "refs"):
            if entry.is_dir or path.endswith(".lock"):
                continue
            if tree is not private and per_worktree(path):
                continue  # the main worktree's: a bisection there is none of ours
            raw = entry.content[1:] if entry.content.startswith(b"i") else b"?"
            found[path] = value_of(raw) if entry.is_file else BROKEN
    head = private.get("", {}).get("HEAD")
    words = ""
    if head is not None:
        words = value_of(head.content[1:]) if head.is_file and head.content.startswith(b"i") else BROKEN
        if head.is_link:  # the old way of a symbolic HEAD
            words = "ref: " + head.content[1:].decode("utf-8", "surrogateescape")
    return Refs(words, {n: v for n, v in found.items() if not n.startswith(OURS)}, packed_ok)


def parse_packed(packed: bytes, into: dict[str, str]) -> bool:
    """False when a line is none that git writes: then git would refuse every ref."""
    rest = packed
    if not rest:
        return True
    ok = True
    for line in (part + b"\n" for part in rest.removesuffix(b"\n").split(b"\n")):
        if line.startswith((b"#", b"^")) or line == b"\n":
            continue
        match = _PACKED.fullmatch(line)
        if match is None:
            ok = False
            continue
        into[match[2].decode("utf-8", "surrogateescape")] = match[1].decode()
    return ok


def changes(before: Refs, now: Refs) -> tuple[RefChange, ...]:
    """Every ref that moved, stash included, HEAD not."""
    names = sorted(set(before.refs) | set(now.refs))
    return tuple(
        RefChange(name, before.refs.get(name), now.refs.get(name)) for name in names if before.refs.get(name) != now.refs.get(name)
    )
