"""Where a nested repository stands, read from its files: asking git would run what its config names."""

from __future__ import annotations

import os
from pathlib import Path

from evolver.worktree import refs
from evolver.worktree.anchor import read_regular


def gitlink_head(root: Path, path: str) -> str | None:
    """The commit a nested repository stands at, read from its files; None when it is none, or unborn."""
    dot = root / path / ".git"
    try:
        folder = dot if dot.is_dir() else (root / path / os.fsdecode(read_regular(dot)[8:].strip()))
        head = refs.value_of(read_regular(folder / "HEAD"))
        for _ in range(6):
            if not head.startswith("ref: "):
                return head if head != refs.BROKEN else None
            loose = folder / head[5:]
            if loose.is_file():
                head = refs.value_of(read_regular(loose))
                continue
            packed: dict[str, str] = {}
            refs.parse_packed(read_regular(folder / "packed-refs"), packed)
            head = packed.get(head[5:], refs.BROKEN)
    except OSError:
        return None
    return None
