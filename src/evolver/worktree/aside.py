"""Control files of an attempt, put aside while git runs, so that mode none can leave the tree as the agent left it.

Each item is a file `N.what` (where it was), written first, and `N.body` (the thing itself, moved by rename). Killed in between,
the next guard finds the rest still in place.
"""

from __future__ import annotations

import os
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


class Aside:
    """The things of one attempt. `folder` lies in git's folder, so that a rename reaches it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def _next(self) -> int:
        self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        taken = [int(p.name.partition(".")[0]) for p in self.folder.iterdir() if p.name.partition(".")[0].isdigit()]
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
        if self.folder.is_dir():
            for number in sorted((int(p.stem) for p in self.folder.glob("*.what")), reverse=True):
                what = msgspec.msgpack.decode((self.folder / f"{number}.what").read_bytes(), type=_What)
                if os.fsdecode(what.path) == path and what.mode is None and what.was_there:
                    found = self.folder / f"{number}.body"
        return found

    def taken(self, area: str) -> dict[str, Path]:
        """What lies here of one area, each as the attempt first left it."""
        found: dict[str, Path] = {}
        if self.folder.is_dir():
            for number in sorted(int(p.stem) for p in self.folder.glob("*.what")):
                what = msgspec.msgpack.decode((self.folder / f"{number}.what").read_bytes(), type=_What)
                body = self.folder / f"{number}.body"
                if what.area == area and what.mode is None and os.path.lexists(body):
                    found.setdefault(os.fsdecode(what.path), body)
        return found

    def things(self) -> dict[str, Path]:
        """What was put aside: a name that says where it was -> the thing."""
        found = {}
        for note in sorted(self.folder.glob("*.what")):
            what = msgspec.msgpack.decode(note.read_bytes(), type=_What)
            body = note.with_suffix(".body")
            if what.mode is None and what.was_there and os.path.lexists(body):
                found[f"{note.stem}.{what.area}.{os.fsdecode(what.path).replace('/', '%')}"[:200]] = body
        return found

    def _note(self, what: _What) -> int:
        number = self._next()
        with open(self.folder / f"{number}.what", "wb") as file:
            file.write(msgspec.msgpack.encode(what))
            file.flush()
            os.fsync(file.fileno())
        return number

    def put_back(self, areas: dict[str, Path]) -> None:
        """Everything as the attempt left it, the earliest version last."""
        if not self.folder.is_dir():
            return
        numbers = sorted((int(p.stem) for p in self.folder.glob("*.what")), reverse=True)
        for number in numbers:
            note = self.folder / f"{number}.what"
            what = msgspec.msgpack.decode(note.read_bytes(), type=_What)
            path = os.fsdecode(what.path)
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
