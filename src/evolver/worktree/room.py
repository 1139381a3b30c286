"""What stands where files are about to be written: git's `checkout-index -f` would remove it without a word, and its merges what
is ignored."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Collection, Iterator
from pathlib import Path

from evolver.errors import UsageError


def blockers(root: Path, files: Collection[str], folders: Collection[str], going: Collection[str]) -> tuple[str, ...]:
    """Files and links that stand where a folder has to be. `going`: files that are removed first.

    Raise `UsageError` for what cannot be put aside: a folder where a file has to be, a socket, a pipe, a device.
    """
    found: dict[str, None] = {}
    wanted = {above for path in files for above in _above(path)} | {above for path in folders for above in (*_above(path), path)}
    for path in sorted(wanted):
        status = _lstat(root, path)
        if status is None or stat.S_ISDIR(status.st_mode) or path in going:
            continue
        if not (stat.S_ISREG(status.st_mode) or stat.S_ISLNK(status.st_mode)):
            raise UsageError(f"{path!r} stands where the attempt has a folder", "Move it away, then apply again.")
        found[path] = None
    for path in files:
        status = _lstat(root, path)
        if status is None or stat.S_ISREG(status.st_mode) or stat.S_ISLNK(status.st_mode):
            continue
        if not stat.S_ISDIR(status.st_mode):
            raise UsageError(f"{path!r} stands where the attempt has a file", "Move it away, then apply again.")
        for inner in _content(root, path):
            if inner not in going:
                raise UsageError(f"the folder {path!r} stands where the attempt has a file", "Move it away, then apply again.")
    return tuple(found)


def untracked_in_the_way(
    root: Path, files: Collection[str], gitlinks: Collection[str], tracked: Callable[[str], bool]
) -> tuple[str, ...]:
    """What is not `tracked` and stands where a merge would write `files` and `gitlinks`. Whether it is ignored does not matter: git
    takes that for expendable, but it may be the only copy of something (kind 42). Asked of the file system, so case is as it sees it."""
    found: dict[str, None] = {}
    for path in sorted({*files, *gitlinks}):
        for above in _above(path):
            status = _lstat(root, above)
            if status is None or not stat.S_ISDIR(status.st_mode):
                break
        else:
            above, status = path, _lstat(root, path)
        if status is None:
            continue
        if not stat.S_ISDIR(status.st_mode):
            found |= {} if tracked(above) else {above: None}
        elif path not in gitlinks:  # a submodule's folder may lie there already
            found |= {inner: None for inner in _content(root, path, empty=False) if not tracked(inner)}
    return tuple(found)


def _above(path: str) -> Iterator[str]:
    parts = path.split("/")
    for depth in range(1, len(parts)):
        yield "/".join(parts[:depth])


def _lstat(root: Path, path: str) -> os.stat_result | None:
    try:
        return (root / path).lstat()
    except (FileNotFoundError, NotADirectoryError):
        return None


def _content(root: Path, folder: str, *, empty: bool = True) -> Iterator[str]:
    """Every file and link below, and every empty folder."""
    for at, inner, names in os.walk(root / folder):
        below = os.path.relpath(at, root)
        links = [name for name in inner if (Path(at) / name).is_symlink()]
        yield from (f"{below}/{name}" for name in (*names, *links))
        if empty and not inner and not names:
            yield below
