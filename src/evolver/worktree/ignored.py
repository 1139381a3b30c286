"""What git ignores, and how much of it is part of the baseline: decided per topmost ignored path, smallest first, all or nothing."""

from __future__ import annotations

import fnmatch
import os
from dataclasses import dataclass

from evolver.definition import RollbackSection
from evolver.git import Git
from evolver.worktree import manifest
from evolver.worktree.anchor import Anchor
from evolver.worktree.manifest import LEFT, Scan, join, lookup, split


@dataclass(frozen=True)
class Status:
    """`git status`, once: topmost ignored paths, tracked paths with uncommitted changes, those whose index entry differs from HEAD."""

    ignored: frozenset[str]
    dirty: frozenset[str]
    staged: frozenset[str]
    unmerged: frozenset[str]
    submodules: frozenset[str]


def read_status(git: Git, *, ignored: bool = True) -> Status:
    """Asks for untracked files by name (hazard 32); the index is not written. Runs on a tree nothing foreign has touched."""
    wanted = ("--ignored=matching", "--untracked-files=all") if ignored else ("--untracked-files=no",)
    done = git.run("status", "--porcelain=v2", "-z", "--no-renames", "--ignore-submodules=untracked", *wanted)
    tops, dirty, staged, unmerged, modules = set(), set(), set(), set(), set()
    for field in done.fields():
        kind = field[:1]
        if kind == b"!":
            tops.add(os.fsdecode(field[2:]).rstrip("/"))
        elif kind == b"1":
            parts = field.split(b" ", 8)
            path = os.fsdecode(parts[8])
            dirty.add(path)
            if parts[1][:1] != b".":
                staged.add(path)
            if parts[2] != b"N...":
                modules.add(path)
        elif kind == b"u":
            path = os.fsdecode(field.split(b" ", 10)[10])
            dirty.add(path)
            unmerged.add(path)
    return Status(frozenset(tops), frozenset(dirty), frozenset(staged), frozenset(unmerged), frozenset(modules))


def exempt(path: str, patterns: tuple[str, ...]) -> bool:
    """`[rollback] leave`: a pattern matches a path, its name, or a folder above it."""
    for pattern in patterns:
        plain = pattern.strip("/")
        parts = path.split("/")
        for end in range(1, len(parts) + 1):
            if fnmatch.fnmatchcase("/".join(parts[:end]), plain):
                return True
            if "/" not in plain and fnmatch.fnmatchcase(parts[end - 1], plain):
                return True
    return False


class Budget:
    """Decides which ignored paths a first baseline takes in."""

    def __init__(self, section: RollbackSection, tops: frozenset[str]) -> None:
        self._section, self._tops = section, tops

    def folders(self) -> set[str]:
        """Not to be entered by the main walk: each is counted on its own first."""
        return set(self._tops)

    def decide(self, anchor: Anchor, result: Scan) -> tuple[set[str], list[str]]:
        """Merge what fits into `result`; (opaque folders, names of what is left out)."""
        sized: list[tuple[int, int, str, Scan | None]] = []
        left: list[str] = []
        section = self._section
        for top in self._tops:
            entry = lookup(result.tree, top)
            if entry is None:
                continue
            if section.ignored == "leave" or exempt(top, section.leave):
                left.append(top)
                continue
            if not entry.is_dir:
                sized.append((entry.size, 1, top, None))
                continue
            try:
                counted = manifest.scan(anchor.folder(top), opaque=_Exempt(top, section.leave))
            except OSError:
                left.append(top)
                continue
            total = sum(e.size for folder in counted.tree.values() for e in folder.values() if e.is_file)
            sized.append((total, counted.files, top, counted))
        files = size = 0
        for total, count, top, inner in sorted(sized, key=lambda item: (item[0], item[2])):
            if files + count > section.ignored_files or size + total > int(section.ignored_bytes):
                left.append(top)
                continue
            files += count
            size += total
            if inner is not None:
                left += _merge(result, top, inner, section.leave)
        opaque = set()
        for top in left:
            opaque.add(top)
            folder, name = split(top)
            entry = result.tree[folder][name]
            result.tree[folder][name] = entry._replace(content=LEFT)
        return opaque, sorted(left)


def leave_new(section: RollbackSection, result: Scan, known: frozenset[str], tops: frozenset[str], kept: tuple[int, int]) -> list[str]:
    """Ignored paths that are new since the last baseline (an accepted attempt made them): what does not fit into what is left of the
    budget goes out of `result` and is named. `kept`: files and bytes of the ignored paths that are in already."""
    sized: list[tuple[int, int, str]] = []
    left: list[str] = []
    for top in tops - known:
        entry = lookup(result.tree, top)
        if entry is None or entry.content == LEFT:
            continue
        if section.ignored == "leave" or exempt(top, section.leave):
            left.append(top)
            continue
        size, files = measured(result, top)
        sized.append((size, files, top))
    files, size = kept
    for more, count, top in sorted(sized):
        if files + count > section.ignored_files or size + more > int(section.ignored_bytes):
            left.append(top)
            continue
        files += count
        size += more
    for top in left:
        folder, name = split(top)
        result.tree[folder] = {**result.tree[folder], name: result.tree[folder][name]._replace(content=LEFT)}
        for inside in [f for f in result.tree if f == top or f.startswith(top + "/")]:
            del result.tree[inside]
        result.touched = [p for p in result.touched if p != top and not p.startswith(top + "/")]
    return left


def measured(result: Scan, top: str) -> tuple[int, int]:
    """(bytes, names) of one ignored path."""
    entry = lookup(result.tree, top)
    if entry is None or entry.content == LEFT:
        return 0, 0
    if not entry.is_dir:
        return entry.size, 1
    inside = [e for _, e in manifest.entries(result.tree, top)]
    return sum(e.size for e in inside if e.is_file), len(inside)


class _Exempt:
    """Folders inside an ignored one that `leave` names."""

    def __init__(self, top: str, patterns: tuple[str, ...]) -> None:
        self._top, self._patterns = top, patterns

    def __contains__(self, path: object) -> bool:
        return bool(self._patterns) and isinstance(path, str) and exempt(join(self._top, path), self._patterns)


def _merge(result: Scan, top: str, inner: Scan, patterns: tuple[str, ...]) -> list[str]:
    """Take a counted folder in; returns what in it is exempt."""
    left = []
    for folder, content in inner.tree.items():
        result.tree[join(top, folder) if folder else top] = content
    for path in inner.touched:
        full = join(top, path)
        result.touched.append(full)
        if patterns and exempt(full, patterns):
            left.append(full)
    result.unreadable += [join(top, p) for p in inner.unreadable]
    result.files += inner.files
    return [p for p in left if not any(p.startswith(q + "/") for q in left)]
