"""The files of one log: `events.jsonl` is written to, `events.000001.jsonl` and so on are its closed segments."""

from __future__ import annotations

import hashlib
import os
import re
from pathlib import Path

DEFAULT_NAME = "events.jsonl"


def head_path(path: Path) -> Path:
    """The last sequence and hash, beside the log. Logs of other names may share the folder, so theirs carry the name."""
    return path.with_name("head" if path.name == DEFAULT_NAME else f"{path.name}.head")


def lock_path(path: Path) -> Path:
    return path.with_name(f"{path.name}.lock")


def closed_path(path: Path, segment: int) -> Path:
    return path.with_name(f"{path.stem}.{segment:06d}{path.suffix}")


def closed_segments(path: Path) -> list[tuple[int, Path]]:
    """Number and path of each closed segment, oldest first. A folder or a pipe of such a name is none: an agent put it there."""
    shape = re.compile(re.escape(path.stem) + r"\.(\d{6,})" + re.escape(path.suffix))
    try:
        names = [entry.name for entry in path.parent.iterdir()]
    except OSError:
        return []
    found = ((int(m[1]), path.with_name(name)) for name in names if (m := shape.fullmatch(name)))
    return sorted((number, file) for number, file in found if file.is_file())


def log_of_closed(path: Path) -> tuple[Path, int] | None:
    """The log a closed segment belongs to, and its number; None: the file is no closed segment by its name."""
    match = re.fullmatch(r"(.+)\.(\d{6,})", path.stem)
    return (path.with_name(f"{match[1]}{path.suffix}"), int(match[2])) if match else None


def segments(path: Path) -> list[Path]:
    """Every file of the log that exists, oldest first, the open one last."""
    found = [closed for _, closed in closed_segments(path)]
    if path.is_file():
        found.append(path)
    return found


def anchor_ref_name(path: Path) -> str:
    """The ref that remembers the log's end: `refs/evolver/audit/<log>`.

    Linked worktrees share their refs, so theirs carries the worktree's name; a log that lives elsewhere carries its path.
    """
    name = _fit(path.stem)
    folder = path.absolute().parent
    if path.name == DEFAULT_NAME and folder.name == "evolver":
        if folder.parent.parent.name == "worktrees":
            name += f"-{_fit(folder.parent.name)}"
    else:
        name += f"-{hashlib.sha256(os.fsencode(path.absolute())).hexdigest()[:12]}"
    return f"refs/evolver/audit/{name}"


def _fit(text: str) -> str:
    return re.sub(r"[^A-Za-z0-9_-]+", "-", text).strip("-") or "log"


def reachable(path: Path) -> bool:
    """Can the log at `path` be written under its name? Not while git's folder is gone, or an attempt closed it or ours."""
    if not os.access(path.parent.parent, os.W_OK | os.X_OK):
        return False
    return not os.path.lexists(path.parent) or os.access(path.parent, os.W_OK | os.X_OK)
