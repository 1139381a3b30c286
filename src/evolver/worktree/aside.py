"""Control files of an attempt, put aside while git runs, so that mode none can leave the tree as the agent left it.

Each item is a file `N.what` (where it was), written first, and `N.body` (the thing itself, moved by rename). Killed in between,
the next guard finds the rest still in place.
"""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Collection
from contextlib import suppress
from pathlib import Path

import msgspec

from evolver.worktree.anchor import Anchor
from evolver.worktree.manifest import split
from evolver.worktree.remove import remove


class _What(msgspec.Struct, array_like=True):
    area: str  # of which folder: a key of what `put_back` is given
    path: bytes
    mode: int | None = None  # only the mode of a folder differed
    was_there: bool = True

    @property
    def name(self) -> str:
        return f"{self.area}/{self.path.decode('utf-8', 'backslashreplace')}"


class Aside:
    """The things of one attempt. `folder` lies in git's folder, so that a rename reaches it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def _next(self) -> int:
        self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        taken = [int(p.name.partition(".")[0]) for p in self.folder.iterdir() if p.name.partition(".")[0].isdecimal()]
        return max(taken, default=0) + 1

    def take(self, anchor: Anchor, area: str, path: str) -> None:
        """Move what lies at `path` here; note that nothing does when nothing does."""
        there = anchor.lstat(path) is not None
        number = self._note(_What(area, os.fsencode(path), None, there))
        if not there:
            return
        folder, name = split(path)
        try:
            os.rename(name, self.folder / f"{number}.body", src_dir_fd=anchor.folder(folder))
        except PermissionError:
            anchor.lend_writing(folder)
            os.rename(name, self.folder / f"{number}.body", src_dir_fd=anchor.folder(folder))
        anchor.forget(path)

    def note_mode(self, area: str, path: str, mode: int) -> None:
        self._note(_What(area, os.fsencode(path), mode))

    def note_missing(self, area: str, path: str) -> None:
        """The attempt removed what the guard is about to bring back."""
        self._note(_What(area, os.fsencode(path), None, False))

    def body_of(self, path: str) -> Path | None:
        """What the attempt had at a path of git's folder: None when it had nothing there, or did not change it."""
        found = None
        for number, what in reversed(self._notes()):
            if os.fsdecode(what.path) == path and what.mode is None and what.was_there:
                found = self.folder / f"{number}.body"
        return found

    def taken(self, area: str) -> dict[str, Path]:
        """What lies here of one area, each as the attempt first left it."""
        found: dict[str, Path] = {}
        for number, what in self._notes():
            body = self.folder / f"{number}.body"
            if what.area == area and what.mode is None and os.path.lexists(body):
                found.setdefault(os.fsdecode(what.path), body)
        return found

    def things(self) -> dict[str, Path]:
        """What was put aside: a name that says where it was -> the thing."""
        found = {}
        for number, what in self._notes():
            body = self.folder / f"{number}.body"
            if what.mode is None and what.was_there and os.path.lexists(body):
                found[f"{number}.{what.area}.{os.fsdecode(what.path).replace('/', '%')}"[:200]] = body
        return found

    def digests(self) -> list[tuple[str, str]]:
        """AREA/PATH and a digest of each thing put aside: tells one that was changed since from one that was not."""
        found = []
        for number, what in self._notes():
            body = self.folder / f"{number}.body"
            if what.mode is not None:
                found.append((what.name, f"mode-{what.mode:o}"))
            elif not what.was_there:
                found.append((what.name, "gone"))
            elif os.path.lexists(body):
                found.append((what.name, _digest(body)))
        return found

    def _note(self, what: _What) -> int:
        """Whole or not at all, also on a disk that fails: it has its name only when it is written."""
        number = self._next()
        fresh = self.folder / f"{number}.tmp"
        with open(fresh, "wb") as file:
            file.write(msgspec.msgpack.encode(what))
            file.flush()
            os.fsync(file.fileno())
        fresh.rename(self.folder / f"{number}.what")
        return number

    def _notes(self) -> list[tuple[int, _What]]:
        """Oldest first. What is no note of ours (an attempt can write here, too) is passed over."""
        found = []
        if self.folder.is_dir():
            for number in sorted(int(p.stem) for p in self.folder.glob("*.what") if p.stem.isdecimal() and p.is_file()):
                with suppress(msgspec.DecodeError, OSError):
                    data = (self.folder / f"{number}.what").read_bytes()
                    found.append((number, msgspec.msgpack.decode(data, type=_What)))
        return found

    def put_back(self, areas: dict[str, Path], without: Collection[str] = ()) -> None:
        """Everything as the attempt left it, the earliest version last. `without`: AREA/PATH of what is not wanted back."""
        if not self.folder.is_dir():
            return
        for number, what in reversed(self._notes()):
            if what.area not in areas or what.name in without:
                continue
            note, path = self.folder / f"{number}.what", os.fsdecode(what.path)
            with Anchor(areas[what.area]) as anchor, suppress(FileNotFoundError):
                self._put_back(anchor, number, path, what)
            with suppress(FileNotFoundError, NotADirectoryError):  # gone with the folder that was replaced
                note.unlink()
        self.discard()

    def _put_back(self, anchor: Anchor, number: int, path: str, what: _What) -> None:
        folder, name = split(path)
        if what.mode is not None:
            if path:
                os.chmod(name, what.mode, dir_fd=anchor.folder(folder))
            else:
                os.fchmod(anchor.top, what.mode)
            return
        body = self.folder / f"{number}.body"
        if what.was_there and not os.path.lexists(body):
            return  # killed before it was moved: it is still in place
        # Out of the way first: the thing replaced may be git's folder itself, in which we are.
        fd = anchor.folder(folder)
        held, gone = name + ".evolver-held", name + ".evolver-gone"
        if what.was_there:
            os.rename(body, held, dst_dir_fd=fd)
        with suppress(FileNotFoundError):
            os.rename(name, gone, src_dir_fd=fd, dst_dir_fd=fd)
        if what.was_there:
            os.rename(held, name, src_dir_fd=fd, dst_dir_fd=fd)
        remove(fd, gone)

    def discard(self) -> None:
        """Nobody will ask for them again."""
        with suppress(FileNotFoundError, NotADirectoryError):
            parent = os.open(self.folder.parent, os.O_RDONLY | os.O_DIRECTORY)
            try:
                remove(parent, self.folder.name)
            finally:
                os.close(parent)


def _digest(thing: Path) -> str:
    """Of type and content; of a folder (it may be a whole `.git`) by sizes and mtimes, without what evolver itself writes in there."""
    digest = hashlib.sha256()
    st = thing.lstat()
    digest.update(f"{stat.S_IFMT(st.st_mode):o} ".encode())
    if stat.S_ISLNK(st.st_mode):
        digest.update(os.fsencode(os.readlink(thing)))
    elif stat.S_ISREG(st.st_mode):
        with suppress(OSError), open(os.open(thing, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
            while block := file.read(1 << 20):
                digest.update(block)
    elif stat.S_ISDIR(st.st_mode):
        for top, folders, names in os.walk(thing):
            folders[:] = sorted(name for name in folders if name != "evolver" or top != str(thing))
            for path in (os.path.join(top, name) for name in sorted(names)):
                with suppress(OSError):
                    one = os.lstat(path)
                    digest.update(os.fsencode(f"{os.path.relpath(path, thing)}\0{one.st_size} {one.st_mtime_ns}\0"))
    return digest.hexdigest()
