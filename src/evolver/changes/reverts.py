"""`[changes.revert]` of a loop file: which argv a person added to the registry.

It names commands that will run, and an agent can edit a loop file. So unless a person names the file, only one is taken that
git holds unchanged and that none of the log's own commits touched.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path

import msgspec

from evolver.changes.gitwork import Repository
from evolver.errors import GitError, UsageError
from evolver.loopfile import candidates, find, read_table

Reverts = Mapping[str, tuple[str, ...]]


def named_reverts(loop: str, root: Path) -> Reverts:
    """Of the loop a person named. Raise `UsageError`."""
    return _read(find(loop, root)[1])


def own_reverts(repository: Repository | None, commits: Iterable[str]) -> tuple[Reverts, str]:
    """Of the worktree's default loop; and why its entries are not used (empty: they are, or there are none)."""
    if repository is None:
        return {}, ""
    own = candidates(repository.layout.root / "loops")
    path = own.get("default") or (next(iter(own.values())) if len(own) == 1 else None)
    if path is None:
        return {}, ""
    reverts = _read(path)
    if not reverts:
        return {}, ""
    try:
        problem = _distrust(repository, path, commits)
    except GitError as error:
        problem = error.message
    return ({}, f"[changes.revert] of {path} is not used: {problem}; name it with --loop") if problem else (reverts, "")


def _distrust(repository: Repository, path: Path, commits: Iterable[str]) -> str:
    git, name = repository.git, os.fsencode(path.relative_to(repository.layout.root))
    if not git.run("ls-files", "-z", "--", name).out or path.is_symlink():
        return "git does not track it"
    if not git.run("diff", "--quiet", "--no-ext-diff", "HEAD", "--", name, check=False).ok:
        return "it has uncommitted edits"
    for text in dict.fromkeys(commits):
        commit, _ = repository.resolve(text)
        if commit and name in repository.touched_by(commit):
            return f"commit {text} of the log changed it"
    return ""


def _read(path: Path) -> Reverts:
    section = read_table(path).get("changes", {})
    raw = section.get("revert", {}) if isinstance(section, dict) else section
    try:
        return msgspec.convert(raw, dict[str, tuple[str, ...]])
    except msgspec.ValidationError as error:
        raise UsageError(f"{path}: changes.revert: {error}", "Give each command the list of words that reverts it.") from error
