"""Whose is what moved in the shared repository: the attempt's, or somebody's who works in another worktree (hazards 22, 52)?

Left, and named: refs another worktree stood on, commits made or fetched there, stash entries of its branches. Everything else that
moved is put back; what no worktree's notes tell of (a branch or a tag made somewhere without standing on it) is anchored before, so that
nothing of a person's becomes unreachable.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress

from evolver.git import Git
from evolver.worktree.anchor import read_regular
from evolver.worktree.refs import OURS, STASH, Refs, changes
from evolver.worktree.siblings import Sibling, own_traces
from evolver.worktree.site import Site
from evolver.worktree.snapshot import STASH_LOG, Snapshot
from evolver.worktree.source import stored

MOVED = f"{OURS}attempts/moved/"
DAYS = 14  # as long as the user's bytes in the vault
_STASHED = re.compile(rb"(?:WIP on|On) (\(no branch\)|[^\s:]+): ")
_PRESERVED = re.compile(rb"evolver [0-9a-f-]{36}/\d+: ")  # another run's rejected attempt; this one's is among own_stash
_OID = re.compile(r"(?:[0-9a-f]{40}|[0-9a-f]{64})\Z")


def left(snapshot: Snapshot, now: Refs, found: Iterable[Sibling]) -> frozenset[str]:
    """Refs that are not this run's to move."""
    beside = list(found)
    names = {name for sibling in beside for name in sibling.traces.refs}
    made = {oid for sibling in beside for oid in sibling.traces.made} - set(snapshot.refs.refs.values())
    fetched = {oid for sibling in beside for oid in sibling.traces.fetched}
    for change in changes(snapshot.refs, now) if made or fetched else ():
        if change.new in made or (change.new in fetched and change.name.startswith(("refs/remotes/", "refs/tags/"))):
            names.add(change.name)
    return frozenset(names) - {snapshot.refs.branch or "HEAD"}


def ours(site: Site, snapshot: Snapshot, now: Refs, found: Iterable[Sibling]) -> frozenset[str]:
    """Refs that this worktree's notes tell of, and no other one's."""
    own, beside = own_traces(site, snapshot), list(found)
    made = own.made - {oid for sibling in beside for oid in sibling.traces.made}
    names = own.refs - {name for sibling in beside for name in sibling.traces.refs}
    return frozenset(c.name for c in changes(snapshot.refs, now) if c.new in made or c.name in names)


def unclear(site: Site, snapshot: Snapshot, now: Refs, theirs: frozenset[str], found: Iterable[Sibling]) -> dict[str, str]:
    """Ref -> what it says (nothing: it is gone), of refs that moved, are put back, and were as far as is known moved neither in this
    worktree nor in another one."""
    if not snapshot.siblings and not any(True for _ in found):
        return {}
    moved = [c for c in changes(snapshot.refs, now) if c.name not in theirs and c.name not in (STASH, snapshot.refs.branch)]
    if not moved:
        return {}
    own = own_traces(site, snapshot)
    kept = {*snapshot.refs.refs.values(), snapshot.pre_ref, *own.made}
    return {c.name: c.new or "" for c in moved if c.new not in kept and c.name not in own.refs}


def anchors(git: Git, refs: Mapping[str, str]) -> list[bytes]:
    """Lines for a ref transaction that keep these commits; without what the object store has not: a ref to nothing helps nobody."""
    names = [name for name, value in refs.items() if _OID.match(value)]
    if not names:
        return []
    listed = git.run("cat-file", "--batch-check", input="".join(refs[n] + "\n" for n in names).encode()).out.split(b"\n")
    prefix = f"{MOVED}{time.strftime('%Y%m%d', time.gmtime())}/"
    return [
        f"update {prefix}{refs[n][:16]}/{n.removeprefix('refs/')}\0{refs[n]}\0\0".encode("utf-8", "surrogateescape")
        for n, line in zip(names, listed, strict=False)
        if not line.endswith(b" missing")
    ]


def forget_anchors(site: Site) -> None:
    """Those older than 14 days."""
    packed = b""
    with suppress(OSError):
        packed = read_regular(site.common / "packed-refs")
    if not (site.common / MOVED).is_dir() and MOVED.encode() not in packed:
        return
    oldest = time.strftime("%Y%m%d", time.gmtime(time.time() - DAYS * 86400))
    for line in site.git.run("for-each-ref", "--format=%(refname) %(objectname)", MOVED).text.splitlines():
        name, _, oid = line.partition(" ")
        if name.removeprefix(MOVED)[:8] < oldest:
            site.git.run("update-ref", "-d", name, oid)


# ---------------------------------------------------------------- the stash list


def _tail(line: bytes) -> bytes:
    """An entry, without the one below it."""
    return line.partition(b" ")[2]


def lines_of(data: bytes) -> list[bytes]:
    return [line + b"\n" for line in data.split(b"\n") if line.count(b" ") > 1]


def stash_now(site: Site) -> list[bytes]:
    with suppress(OSError):
        return lines_of(read_regular(site.common / STASH_LOG))
    return []


def stash_then(site: Site, snapshot: Snapshot) -> list[bytes]:
    return lines_of(stored(site.vault, snapshot.shared, STASH_LOG))


def stashed_beside(site: Site, snapshot: Snapshot, found: Sequence[Sibling]) -> frozenset[bytes]:
    """Entries that were made in another worktree since the baseline: git notes the branch in each."""
    if not found:
        return frozenset()
    known = {_tail(line) for line in (*stash_then(site, snapshot), *snapshot.own_stash)}
    branches = {name for sibling in found for name in sibling.traces.refs} - {snapshot.refs.branch}
    words = {os.fsencode(name.removeprefix("refs/heads/")) for name in branches}
    if any(sibling.traces.detached for sibling in found) and snapshot.refs.branch is not None:
        words.add(b"(no branch)")
    theirs = set()
    for line in stash_now(site):
        message = line.partition(b"\t")[2]
        match = _STASHED.match(message)
        if _tail(line) not in known and (_PRESERVED.match(message) or (match is not None and match[1] in words)):
            theirs.add(_tail(line))
    return frozenset(theirs)


def stash_wanted(site: Site, snapshot: Snapshot, theirs: frozenset[bytes]) -> list[bytes]:
    """The list as it is to be: the user's, and on top what others and this iteration's preserved attempt put there, in their order."""
    out, own = stash_then(site, snapshot), list(snapshot.own_stash)
    tails = {_tail(line) for line in own}
    upper = [line for line in stash_now(site) if _tail(line) in theirs or _tail(line) in tails]
    upper += [line for line in own if _tail(line) not in {_tail(u) for u in upper}]
    for line in upper:
        below = out[-1].split(b" ", 2)[1] if out else b"0" * len(line.partition(b" ")[0])
        out.append(below + b" " + _tail(line))
    return out
