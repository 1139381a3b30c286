"""Raw copies of what no commit of this repository can hold: nested repositories with their own history, ignored files of any size,
submodules' state, git's control files.

They lie in GIT_DIR/evolver/kept/RUN_ID/N/ (`N.2`, `N.3` where a recovery was killed and the tree was not the same the next time):
`worktree/` and `git/` mirror where things lay, `control/` has git's control files, `contents` lists it all. Remove what `contents` says
was removed, then `cp -a worktree/. ROOT`, and the files are as they were. Written aside and renamed when whole and on disk; the commit of
the attempt names the folder. One folder may take no more than the vault may: what does not fit is not kept, and then not removed either.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from evolver.crash import crash_point
from evolver.errors import EvolverError, NotRestoredError
from evolver.layout import common_of
from evolver.worktree.anchor import Anchor
from evolver.worktree.manifest import Entry
from evolver.worktree.vault import CHUNK, sync_folder

FOLDER = "kept"
DAYS = 14  # a folder that no kept attempt names any more
LONG = 1500  # bytes: a longer path would not fit below ours; such a file gets a number, `contents` has its name


@dataclass
class Copies:
    """What is to be copied: area (`worktree`, `git`) -> the folder it lies in and its paths."""

    areas: dict[str, tuple[Path, dict[str, Entry]]] = field(default_factory=dict)
    control: dict[str, Path] = field(default_factory=dict)  # name below `control/` -> the thing itself, put aside by the guard
    removed: tuple[str, ...] = ()  # paths of the worktree that went, where no trailer says so

    def add(self, area: str, top: Path, paths: Mapping[str, Entry]) -> None:
        if paths:
            self.areas[area] = (top, dict(paths))

    def __bool__(self) -> bool:
        return bool(self.areas or self.control)

    def contents(self) -> bytes:
        """One line an item. Equal for equal things, so that a recovery that was killed does not copy twice."""
        lines = []
        for area, (_, paths) in sorted(self.areas.items()):
            for number, (path, e) in enumerate(sorted(paths.items())):
                where = _name(path, number)
                lines.append(f"{area}/{where} {e.mode:o} {e.size} {e.mtime_ns} {path!r}")
        for name, thing in sorted(self.control.items()):
            lines.append(f"control/{name} {thing.lstat().st_size} {thing.lstat().st_mtime_ns}")
        lines += [f"removed {path!r}" for path in sorted(self.removed)]
        return "".join(f"{line}\n" for line in lines).encode("utf-8", "surrogateescape")

    def size(self) -> int:
        inside = sum(e.size for _, paths in self.areas.values() for e in paths.values() if e.is_file)
        return inside + sum(_size(thing) for thing in self.control.values())


def _name(path: str, number: int) -> str:
    return path if len(os.fsencode(path)) < LONG else f"long.{number}"


def _size(thing: Path) -> int:
    if thing.is_symlink() or not thing.is_dir():
        return thing.lstat().st_size
    return sum(_size(Path(item.path)) for item in os.scandir(thing))


def base_of(git_dir: Path) -> Path:
    return git_dir / "evolver" / FOLDER


def keep_copies(git_dir: Path, iteration_id: str, copies: Copies, limit: int) -> str:
    """Copy, unless it was done before; the folder's name below `base_of`, or "" when there is nothing to copy.
    Raise `EvolverError` or `OSError` when it cannot be done; then nothing may be removed."""
    if not copies:
        return ""
    size, wanted, base = copies.size(), copies.contents(), base_of(git_dir)
    if size > limit:
        raise NotRestoredError(
            f"{size} bytes that no commit can hold (nested repositories, ignored files) are more than may be kept ({limit})",
            "Move them away, or raise EVOLVER_MAX_VAULT; then run `evolver resume`.",
        )
    number = 1
    while True:
        name = iteration_id if number == 1 else f"{iteration_id}.{number}"
        target = base / name
        if not os.path.lexists(target):
            break
        with suppress(OSError):
            if (target / "contents").read_bytes() == wanted:
                return name
        number += 1
    partial = target.with_name(f"{target.name}.partial")
    if partial.exists():
        shutil.rmtree(partial)
    partial.mkdir(parents=True, mode=0o700)
    base.chmod(0o700)
    for area, (top, paths) in copies.areas.items():
        with Anchor(top) as anchor:
            for index, (path, entry) in enumerate(sorted(paths.items())):
                _copy(anchor, path, entry, partial / area / _name(path, index))
    for control, thing in copies.control.items():
        _copy_tree(thing, partial / "control" / control)
    (partial / "contents").write_bytes(wanted)
    os.sync()
    crash_point("keep.copies")
    partial.rename(target)
    sync_folder(target.parent)
    return name


def _copy(anchor: Anchor, path: str, entry: Entry, target: Path) -> None:
    if entry.is_dir:
        target.mkdir(parents=True, exist_ok=True)
        return
    target.parent.mkdir(parents=True, exist_ok=True)
    if entry.is_link:
        os.symlink(anchor.readlink(path), os.fsencode(target))
        return
    with open(anchor.open_file(path), "rb") as source:
        _write(source.fileno(), target)
        found = os.fstat(source.fileno())
    if found.st_size != target.stat().st_size:
        raise EvolverError(f"{path!r} changed while it was kept aside", "Run it again when nothing writes there.")
    os.utime(target, ns=(found.st_mtime_ns, found.st_mtime_ns))
    target.chmod(entry.mode & 0o777 | 0o400)


def _write(fd: int, target: Path) -> None:
    with open(target, "xb") as out:
        while chunk := os.read(fd, CHUNK):
            out.write(chunk)


def _copy_tree(thing: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    if thing.is_symlink():
        os.symlink(os.readlink(thing), target)
    elif thing.is_dir():
        target.mkdir(exist_ok=True)
        for item in os.scandir(thing):
            _copy_tree(Path(item.path), target / item.name)
    elif thing.is_file():  # a pipe or a socket holds nothing
        fd = os.open(thing, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            _write(fd, target)
        finally:
            os.close(fd)


def folder_of(git_dir: Path, name: str) -> Path | None:
    """Where copies lie: refs are shared by all worktrees of a repository, and name copies that lie in another one's git folder.
    None: they are not here."""
    common = common_of(git_dir)
    for folder in dict.fromkeys((git_dir, common, *sorted((common / "worktrees").glob("*")))):
        if (base_of(folder) / name).is_dir():
            return base_of(folder) / name
    return None


def listed_in(folder: Path) -> tuple[str, ...]:
    """What a folder holds, as `contents` has it; empty when it is gone."""
    try:
        return tuple((folder / "contents").read_bytes().decode("utf-8", "replace").splitlines())
    except OSError:
        return ()


def forget(git_dir: Path, name: str) -> None:
    """Remove one folder, and the run's when that is empty then."""
    target = folder_of(git_dir, name) if name.count("/") == 1 else None
    if target is not None:
        _forget(target)
        with suppress(OSError):
            target.parent.rmdir()


def _forget(target: Path) -> None:
    for folder, _, _ in os.walk(target):
        os.chmod(folder, 0o700)
    shutil.rmtree(target, ignore_errors=True)


def stale(git_dir: Path) -> tuple[str, ...]:
    """Folders older than `DAYS`: those that no kept attempt names may go."""
    limit = time.time() - DAYS * 86400
    found = []
    for path in base_of(git_dir).glob("*/*"):
        with suppress(OSError):
            if path.lstat().st_mtime < limit:
                found.append(f"{path.parent.name}/{path.name}")
    return tuple(found)
