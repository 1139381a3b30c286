"""The clone an isolated run works in, so that a person can go on working in their own checkout.

A clone and not a linked worktree: that would share refs, stash, config and hooks with the person's. It lies under the state
home, outside `.git` (test runners pass by such paths). Beside it lie `person`, whose clone it is, and `unlanded/`, the runs
whose commits are not on the person's branch yet; in the person's state folder, `clone` says where it is. All of this is found
without git; `cloning.py` makes it.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import msgspec

from evolver.errors import PreflightError, UsageError
from evolver.layout import Layout, locate, state_home
from evolver.resume_lock import read as read_lock
from evolver.resume_lock import write_atomic

POINTER = "clone"
OWNER = "person"


class Unlanded(msgspec.Struct, frozen=True, kw_only=True):
    """A run whose commits wait in the clone."""

    run_id: str
    loop: str
    definition: str  # sha256: what `land --rebase` validates with
    branch: str  # full name, in the clone
    onto: str | None  # the person's branch the run started from; None: HEAD was detached
    start: str  # the commit of the person's the work is based on
    directory: str = ""  # the loop file's folder, as the run saw it


def place_of(person: Layout, env: Mapping[str, str]) -> Path:
    """Where the clone of this worktree belongs. Raise `UsageError` when the state home lies in the worktree itself."""
    home = Path(os.path.realpath(state_home(env)))
    if home.is_relative_to(person.root) and not home.is_relative_to(person.git_dir):
        raise UsageError(f"the state folder {home} lies inside the worktree", "Set EVOLVER_STATE_DIR to a folder outside it.")
    key = hashlib.sha256(os.fsencode(person.root)).hexdigest()[:32]
    return home / "clones" / key / (person.root.name.lstrip(".") or "worktree")


def _line(path: Path) -> Path | None:
    try:
        return Path(os.fsdecode(path.read_bytes().removesuffix(b"\n")))
    except OSError:
        return None


def find(person: Layout, env: Mapping[str, str] = os.environ) -> Layout | None:
    """The clone of this worktree, when it has one. Runs no git."""
    root = _line(person.state / POINTER)
    if root is None:
        return None
    owner = _line(root.parent / OWNER)
    # A repository that was moved takes its clone along; one that was copied leaves it to the original.
    if owner is None or (owner != person.root and _line_of_person(owner) == root):
        return None
    try:
        found = locate(root, env)
    except PreflightError:
        return None
    return replace(found, prefix=person.prefix) if found.root == root else None


def _line_of_person(root: Path) -> Path | None:
    """Which clone the worktree at `root` says is its own."""
    try:
        return _line(locate(root).state / POINTER)
    except PreflightError:
        return None


def person_of(layout: Layout, env: Mapping[str, str] = os.environ) -> Layout | None:
    """Whose clone this is; None when it is nobody's."""
    owner = _line(layout.root.parent / OWNER)
    if owner is None:
        return None
    try:
        person = locate(owner, env)
    except PreflightError:
        return None
    return person if _line(person.state / POINTER) == layout.root else None


def locate_person(start: Path, env: Mapping[str, str] = os.environ) -> Layout:
    """`layout.locate`, but called in a clone it finds the worktree the clone works for."""
    found = locate(start, env)
    return person_of(found, env) or found


def holder(person: Layout, env: Mapping[str, str] = os.environ) -> Layout | None:
    """Where a resume lock stands: in the worktree, or in its clone."""
    clone = find(person, env)
    return next((place for place in (person, clone) if place is not None and read_lock(place) is not None), None)


def seen_from(person: Layout, clone: Layout, path: Path) -> Path:
    """The clone's counterpart of a path in the person's worktree; the path itself where the clone has none."""
    if not path.is_relative_to(person.root):
        return path
    there = clone.root / path.relative_to(person.root)
    return there if there.exists() else path


# ---------------------------------------------------------------- what waits to be landed


def _folder(clone: Layout) -> Path:
    return clone.root.parent / "unlanded"


def unlanded(clone: Layout) -> tuple[Unlanded, ...]:
    """Oldest first: run ids are UUIDv7, so their names sort by time."""
    found = []
    for path in sorted(_folder(clone).glob("*.json")):
        try:
            found.append(msgspec.convert(json.loads(path.read_bytes()), Unlanded))
        except (OSError, ValueError, msgspec.ValidationError):
            continue
    return tuple(found)


def remember(clone: Layout, record: Unlanded) -> None:
    # json and not msgspec: the names of branches and folders need not be UTF-8, and it escapes what is not.
    text = json.dumps(msgspec.to_builtins(record))
    write_atomic(_folder(clone) / f"{record.run_id}.json", text.encode())


def forget(clone: Layout, run_id: str) -> None:
    (_folder(clone) / f"{run_id}.json").unlink(missing_ok=True)
