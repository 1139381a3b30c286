"""The second place: outside the worktree, what rebuilding a deleted or replaced `.git` takes.

Objects are hard-linked (copied where the filesystem differs), incrementally by the folders' mtimes, so `gc --prune=now` and
`rm -rf .git` lose nothing (hazards 17, 23). Hard links do not survive damage in place; that shows when the object is read.
"""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from evolver.layout import OWNER_FILE, Layout, owner_lines
from evolver.worktree.vault import link_or_copy, sync_folder

GITCONFIG = "gitconfig"
EXCLUDES = "excludes"
ATTRIBUTES = "attributes"
_TRANSIENT = ("tmp_obj_", "tmp_pack_", "tmp_idx_", ".tmp-")


def store_folders(common: Path) -> Iterator[str]:
    """Object stores below a git folder, relative: its own, git-lfs's, and those of submodules."""
    for name in ("objects", "lfs"):
        if (common / name).is_dir():
            yield name
    pending = [p for p in (common / "modules",) if p.is_dir()]
    while pending:
        folder = pending.pop()
        with os.scandir(folder) as listing:
            names = [e.name for e in listing if e.is_dir(follow_symlinks=False)]
        if "objects" in names and (folder / "HEAD").exists():
            for name in names:
                if name in ("objects", "lfs"):
                    yield str((folder / name).relative_to(common))
                elif name == "modules":
                    pending.append(folder / name)
        else:
            pending += [folder / n for n in names]


@dataclass
class Lifeboat:
    """One worktree's folder in the state directory."""

    folder: Path
    layout: Layout
    _seen: dict[str, int] = field(default_factory=dict)  # store folder -> ctime when it was last linked

    def launch(self) -> None:
        """From here on `layout.locate` finds the worktree by this folder, whatever becomes of `.git`."""
        make_folder(self.folder)
        self.folder.chmod(0o700)
        owner = self.folder / OWNER_FILE
        lines = owner_lines(self.layout)
        if not owner.exists() or owner.read_bytes() != lines:
            temporary = self.folder / f"{OWNER_FILE}.tmp"
            with open(temporary, "wb") as file:
                file.write(lines)
                file.flush()
                os.fsync(file.fileno())
            temporary.replace(owner)
            sync_folder(self.folder)

    @property
    def manned(self) -> bool:
        """Was it launched for the worktree where it lies now? Not when that, or git's folder, was moved or copied since."""
        with suppress(OSError):
            return (self.folder / OWNER_FILE).read_bytes() == owner_lines(self.layout)
        return False

    def holds(self, commit: str) -> bool:
        """Can git's object store be built again from here, at least as far as this commit?"""
        objects = self.folder / "stores" / "objects"
        return (objects / commit[:2] / commit[2:]).is_file() or any((objects / "pack").glob("*.pack"))

    def same_filesystem(self) -> bool:
        try:
            return os.stat(self.folder).st_dev == os.stat(self.layout.common_dir / "objects").st_dev
        except OSError:
            return False

    def stow(self) -> int:
        """Take in every object that is new since the last time; how many."""
        taken = 0
        common = self.layout.common_dir
        for store in store_folders(common):
            taken += self._stow_store(common / store, self.folder / "stores" / store, store)
        return taken

    def _stow_store(self, source: Path, target: Path, label: str) -> int:
        taken = 0
        pending = [(source, target, label)]
        while pending:
            folder, copy, name = pending.pop()
            seen = folder.stat().st_ctime_ns  # a ctime, unlike an mtime, cannot be set
            # The folder's subfolders are visited all the same: it tells only of its own names.
            fresh = self._seen.get(name) != seen or not copy.is_dir()  # an agent may remove the copy as well
            copy.mkdir(parents=True, exist_ok=True)
            present = set(os.listdir(copy)) if fresh else set()
            with os.scandir(folder) as listing:
                for item in listing:
                    if item.is_dir(follow_symlinks=False):
                        pending.append((folder / item.name, copy / item.name, f"{name}/{item.name}"))
                    elif fresh and item.name not in present and _lasting(item):
                        link_or_copy(folder / item.name, copy / item.name)
                        taken += 1
            self._seen[name] = seen
        return taken

    def relaunch_objects(self, git_folder: Path) -> list[str]:
        """Put objects back that the stores of `git_folder` lack; their paths. Existing files are left alone."""
        back: list[str] = []
        stores = self.folder / "stores"
        if not stores.is_dir():
            return back
        for relative in self._seen or self._stowed(stores):
            target = git_folder / relative
            seen = self._seen.get(relative)
            with suppress(OSError):
                if seen is not None and target.stat().st_ctime_ns == seen:
                    continue
            make_folder(target)
            present = set(os.listdir(target))
            for item in os.scandir(stores / relative):
                if item.name not in present and item.is_file(follow_symlinks=False):
                    link_or_copy(stores / relative / item.name, target / item.name)
                    back.append(f"{relative}/{item.name}")
        return back

    @staticmethod
    def _stowed(stores: Path) -> list[str]:
        return [os.path.relpath(base, stores) for base, _, names in os.walk(stores) if base != str(stores)]

    def prune(self) -> None:
        """The run ended: only what other parts keep here (the stream's head, locks) stays."""
        with suppress(FileNotFoundError):
            (self.folder / OWNER_FILE).unlink()
        self._seen.clear()
        for name in ("stores", "vault", "aside"):
            shutil.rmtree(self.folder / name, ignore_errors=True)
        for name in (GITCONFIG, EXCLUDES, ATTRIBUTES):
            (self.folder / name).unlink(missing_ok=True)


def _lasting(item: os.DirEntry[str]) -> bool:
    return item.is_file(follow_symlinks=False) and not item.name.startswith(_TRANSIENT) and not item.name.endswith(".lock")


def _lstat(path: Path) -> os.stat_result:
    """Also where an attempt took away the permissions of the folder it lies in, if that is ours."""
    try:
        return path.lstat()
    except PermissionError:
        parent = path.parent.lstat()
        if not stat.S_ISDIR(parent.st_mode) or parent.st_uid != os.geteuid():
            raise
        path.parent.chmod(stat.S_IMODE(parent.st_mode) | 0o700)
        return path.lstat()


def make_folder(path: Path) -> None:
    """With its parents; what is no folder in the way goes, and permissions an attempt took are given back."""
    for part in (*reversed(path.parents), path):
        try:
            st = _lstat(part)
        except FileNotFoundError:
            part.mkdir(mode=0o777)
            continue
        if part == path and not stat.S_ISDIR(st.st_mode):
            part.unlink()
            part.mkdir(mode=0o777)
        elif part == path and stat.S_IMODE(st.st_mode) & 0o700 != 0o700 and st.st_uid == os.geteuid():
            part.chmod(stat.S_IMODE(st.st_mode) | 0o700)
