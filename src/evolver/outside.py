"""Is a place outside the worktree? What evolver keeps or writes while foreign code runs must be: an attempt, or its rollback, would
take it along, and an accepted attempt would commit it."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from evolver.layout import Layout

_LINKS = 40  # symlinks followed, as the kernel does


def within(path: Path, *folders: Path) -> bool:
    """Does the way to `path` lead through one of `folders`, at its end or at any symlink on it? The folders are real paths."""
    at, rest, links = Path("/"), list(reversed(path.absolute().parts[1:])), 0
    while rest:
        name = rest.pop()
        at = at.parent if name == ".." else at / name
        if any(at.is_relative_to(folder) for folder in folders):
            return True
        if at.is_symlink() and links < _LINKS:
            links += 1
            target = at.readlink()
            rest += [p for p in reversed(target.parts) if p != "/"]
            at = Path("/") if target.is_absolute() else at.parent
    return False


def temporary_base(layout: Layout) -> Path:
    """A folder for scratch files: TMPDIR, unless that lies in the worktree."""
    own = (layout.root, layout.git_dir, layout.common_dir)
    choices = (Path(tempfile.gettempdir()), Path("/tmp"), Path("/var/tmp"), layout.lifeboat.parent)
    for folder in choices:
        if folder.is_dir() and os.access(folder, os.W_OK | os.X_OK) and not within(folder, *own):
            return folder
    layout.lifeboat.mkdir(parents=True, exist_ok=True, mode=0o700)
    return layout.lifeboat
