"""Other worktrees of the same repository: which branches they stand on, and whether a run is active in them (hazard 52)."""

from __future__ import annotations

import fcntl
import os
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from evolver.worktree.anchor import read_regular
from evolver.worktree.refs import value_of
from evolver.worktree.site import Site


@dataclass(frozen=True)
class Sibling:
    """One other worktree."""

    folder: Path  # its git folder
    branch: str | None
    root: Path | None
    active: bool


def siblings(site: Site) -> tuple[Sibling, ...]:
    """Read from files: it is asked while a tree is held."""
    found = []
    folders = [site.common] if site.linked else []
    with suppress(OSError):
        folders += sorted(p for p in (site.common / "worktrees").iterdir() if p.is_dir() and p != site.private)
    for folder in folders:
        head = None
        with suppress(OSError):
            head = value_of(read_regular(folder / "HEAD"))
        root: Path | None = folder.parent if folder == site.common and folder.name == ".git" else None
        with suppress(OSError):
            root = Path(os.fsdecode(read_regular(folder / "gitdir").strip())).parent
        branch = head[5:] if head is not None and head.startswith("ref: ") else None
        found.append(Sibling(folder, branch, root, _active(folder / "evolver" / "run.lock")))
    return tuple(found)


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


def worked_in(site: Site, found: tuple[Sibling, ...]) -> frozenset[str]:
    """Folders below our root where another run is active: somebody else's work, never entered."""
    inside = set()
    for sibling in found:
        if sibling.active and sibling.root is not None:
            with suppress(ValueError):
                relative = str(sibling.root.relative_to(site.root))
                if relative != ".":
                    inside.add(relative)
    return frozenset(inside)
