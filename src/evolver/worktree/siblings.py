"""Other worktrees of the same repository: where they are, what git noted in them since the baseline, who is at work there (hazard 52)."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from evolver.worktree.anchor import read_regular
from evolver.worktree.manifest import lookup
from evolver.worktree.refs import value_of
from evolver.worktree.site import Site
from evolver.worktree.snapshot import Snapshot
from evolver.worktree.source import stored
from evolver.worktree.traces import Before, Traces, traces


@dataclass(frozen=True)
class Sibling:
    """One other worktree. `name`: of its folder below worktrees/; empty for the main worktree."""

    name: str
    folder: Path  # its git folder
    root: Path | None
    active: bool  # a run works in it, or did since the baseline
    traces: Traces


def siblings(site: Site, snapshot: Snapshot | None) -> tuple[Sibling, ...]:
    """Those that are nobody's attempt: they were there at the baseline, or somebody is at work in them. Read from files: it is asked
    while a tree is held."""
    found = []
    folders = [site.common] if site.linked else []
    with suppress(OSError):
        folders += sorted(p for p in (site.common / "worktrees").iterdir() if p.is_dir() and p != site.private)
    existed = frozenset(snapshot.siblings) if snapshot is not None else frozenset()
    for folder in folders:
        main = folder == site.common
        root = (folder.parent if folder.name == ".git" else None) if main else _root(folder)
        name = "" if main else folder.name
        active = _active(folder / "evolver" / "run.lock") or (name in existed and _ran(snapshot, folder))
        if not main and snapshot is not None and name not in existed and name not in site.lived_in:
            if not active and (root is None or not lived_in(root)):
                continue
            site.lived_in.add(name)
        found.append(Sibling(name, folder, root, active, traces(folder, _before(site, snapshot, name))))
    return tuple(found)


def took_over(site: Site, snapshot: Snapshot, found: Iterable[Sibling]) -> str:
    """Which worktree stands on the baseline's branch now and did not then, in words: a person went there with it, and it is theirs now.
    Moved back under them, or checked out here as well, what they committed would show as staged changes."""
    branch = snapshot.refs.branch
    for sibling in found if branch is not None else ():
        with suppress(OSError):
            if value_of(read_regular(sibling.folder / "HEAD")) != f"ref: {branch}":
                continue
            if value_of(_before(site, snapshot, sibling.name)("HEAD")) != f"ref: {branch}":
                return f"{branch} is checked out in another worktree now: {sibling.root or sibling.folder}"
    return ""


def own_traces(site: Site, snapshot: Snapshot) -> Traces:
    """What git noted in this worktree."""
    return traces(site.private, lambda path: stored(site.vault, snapshot.private, path))


def _before(site: Site, snapshot: Snapshot | None, name: str) -> Before:
    prefix = f"worktrees/{name}/" if name else ""

    return lambda path: stored(site.vault, snapshot.shared, prefix + path) if snapshot is not None else b""


def _root(folder: Path, pointer: bytes | None = None) -> Path | None:
    """The folder that a worktree's metadata name; relative to them with worktree.useRelativePaths."""
    with suppress(OSError):
        raw = read_regular(folder / "gitdir") if pointer is None else pointer
        if raw.strip():
            return Path(os.path.realpath((folder / os.fsdecode(raw.strip())).parent))
    return None


def _active(lock: Path) -> bool:
    """Does a living process hold it?"""
    try:
        fd = os.open(lock, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    except OSError:
        return False
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(fd)
    return False


def _ran(snapshot: Snapshot | None, folder: Path) -> bool:
    """Has its stream grown since the baseline? What a run there left may be told by no other note."""
    stream = "evolver/events.jsonl"
    with suppress(OSError):
        entry = lookup(snapshot.shared, f"worktrees/{folder.name}/{stream}") if snapshot is not None else None
        return (folder / stream).stat().st_size != (entry.size if entry is not None else 0)
    return False


def lived_in(root: Path) -> bool:
    """Does a process work in there? Asked when all of the attempt are dead: then it is somebody else's."""
    top = os.fsencode(root)
    with suppress(OSError):
        for pid in os.listdir("/proc"):
            if pid.isdigit():
                with suppress(OSError):
                    where = os.fsencode(os.readlink(f"/proc/{pid}/cwd"))
                    if where == top or where.startswith(top + b"/"):
                        return True
    return False


# ---------------------------------------------------------------- below our root


def worked_in(site: Site, snapshot: Snapshot | None, found: Iterable[Sibling]) -> frozenset[str]:
    """Folders below our root that are other worktrees, and stand: somebody may be at work there, and nothing tells his edits from the
    attempt's, so they are not entered. One that is gone altogether is not his edit, and comes back from the baseline."""
    inside: set[str] = set()
    for sibling in found:
        now = _relative(site, sibling.root)
        if sibling.name == "" or sibling.active or snapshot is None or sibling.name not in snapshot.siblings:
            inside |= now
            continue
        then = _relative(site, root_then(site, snapshot, sibling))
        if any((site.root / path / ".git").is_file() for path in then):
            inside |= then
        elif moved(site, snapshot, sibling) and not any(lookup(snapshot.work, path) for path in now):
            inside |= then | now
    return frozenset(inside)


def root_then(site: Site, snapshot: Snapshot, sibling: Sibling) -> Path | None:
    """Where it was at the baseline: what its metadata say now, an attempt may have written."""
    return _root(sibling.folder, stored(site.vault, snapshot.shared, f"worktrees/{sibling.name}/gitdir"))


def moved(site: Site, snapshot: Snapshot, sibling: Sibling) -> bool:
    """`git worktree move`: it stands where its metadata say, and no longer where they said. Those words put back would break it."""
    then, now = root_then(site, snapshot, sibling), sibling.root
    if then is None or now is None or then == now or os.path.lexists(then):
        return False
    with suppress(OSError):
        named = os.fsdecode(read_regular(now / ".git").removeprefix(b"gitdir:").strip())
        return os.path.realpath(now / named) == os.path.realpath(sibling.folder)
    return False


def _relative(site: Site, root: Path | None) -> set[str]:
    if root is None:
        return set()
    with suppress(ValueError):
        relative = str(root.relative_to(os.path.realpath(site.root)))
        return {relative} - {"."}
    return set()
