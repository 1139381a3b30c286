"""A copy of a folder's files, and the folder put back to it: exactly what differs is written, exactly what appeared is removed.

Never through a symlink: everything is looked at with `lstat`, and a parent that changed its type is put right before what is
in it. Names are bytes.
"""

from __future__ import annotations

import os
import secrets
import shutil
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import msgspec

from evolver.worktree.remove import remove

MOST_FILES = 100_000
MOST_BYTES = 1 << 30


class Item(msgspec.Struct, frozen=True):
    """One path below the top. `number` names its copy."""

    path: bytes
    mode: int
    size: int
    stamp: tuple[int, int, int]  # inode, mtime and ctime in ns: equal means that nobody wrote to it
    link: bytes = b""
    number: int = -1

    @property
    def kind(self) -> int:
        return stat.S_IFMT(self.mode)


class Listing(msgspec.Struct, frozen=True):
    """What was there, parents before what is in them; `skipped` was not looked at."""

    items: tuple[Item, ...]
    skipped: tuple[bytes, ...]


class TooLargeError(Exception):
    """More than may be copied; the text says how much."""


@dataclass(frozen=True)
class Snapshot:
    """A snapshot kept in `folder` of the files in `root`."""

    root: Path
    folder: Path

    @property
    def _listing(self) -> Path:
        return self.folder / "listing.json"

    def take(self, skipped: tuple[bytes, ...]) -> None:
        """Copy everything but `skipped` (paths, with what is in them). Raise `TooLargeError`, `OSError`."""
        shutil.rmtree(self.folder, ignore_errors=True)
        self.folder.mkdir(parents=True, mode=0o700)
        items, total = [], 0
        for number, item in enumerate(_walk(self.root, frozenset(skipped))):
            total += item.size if stat.S_ISREG(item.mode) else 0
            if number >= MOST_FILES or total > MOST_BYTES:
                raise TooLargeError(f"more than {MOST_FILES} files or {MOST_BYTES >> 20} MiB")
            if stat.S_ISREG(item.mode):
                shutil.copyfile(_at(self.root, item.path), self._copy(number), follow_symlinks=False)
                item = msgspec.structs.replace(item, number=number)
            items.append(item)
        self._listing.write_bytes(msgspec.json.encode(Listing(tuple(items), skipped)))

    def put_back(self) -> int:
        """Make the folder what it was; the number of paths that differed. May be called again. Raise `OSError`."""
        listing = msgspec.json.decode(self._listing.read_bytes(), type=Listing)
        wanted = {item.path: item for item in listing.items}
        now = {item.path: item for item in _walk(self.root, frozenset(listing.skipped))}
        touched = 0
        for path in sorted(now, reverse=True):  # what is in a folder before the folder
            if path not in wanted or now[path].kind != wanted[path].kind:
                _remove(_at(self.root, path))
                touched += 1
        for path, item in wanted.items():
            found = now.get(path)
            if found is not None and found.kind == item.kind and self._same(found, item):
                continue
            self._write(item, fresh=found is None or found.kind != item.kind)
            touched += found is None or found.kind == item.kind
        return touched

    def _copy(self, number: int) -> Path:
        return self.folder / str(number)

    def _same(self, now: Item, then: Item) -> bool:
        if now.mode != then.mode or now.link != then.link:
            return False
        if not stat.S_ISREG(then.mode) or now.stamp == then.stamp:
            return True
        return now.size == then.size and _equal(_at(self.root, then.path), self._copy(then.number))

    def _write(self, item: Item, *, fresh: bool) -> None:
        target = _at(self.root, item.path)
        if stat.S_ISDIR(item.mode):
            if fresh:
                target.mkdir()
            target.chmod(stat.S_IMODE(item.mode))
            return
        temporary = target.with_name(f".evolver-{secrets.token_hex(8)}.tmp")  # nobody's name, and never too long
        if stat.S_ISLNK(item.mode):
            temporary.symlink_to(os.fsdecode(item.link))
        elif item.number >= 0:
            shutil.copyfile(self._copy(item.number), temporary, follow_symlinks=False)
            temporary.chmod(stat.S_IMODE(item.mode))
        else:
            return  # a socket or a device: the loop's own restore names it
        temporary.replace(target)


def _at(root: Path, path: bytes) -> Path:
    return root / os.fsdecode(path)


def _walk(root: Path, skipped: frozenset[bytes]) -> Iterator[Item]:
    """Not by recursion: an attempt can nest folders deeper than any stack."""
    pending = [b""]
    while pending:
        below = pending.pop()
        with os.scandir(os.fsencode(_at(root, below))) as found:
            entries = sorted(found, key=lambda entry: entry.name)
        for entry in entries:
            path = below + b"/" + entry.name if below else entry.name
            if path in skipped or path == b".git":
                continue
            status = entry.stat(follow_symlinks=False)
            link = os.fsencode(Path(os.fsdecode(entry.path)).readlink()) if stat.S_ISLNK(status.st_mode) else b""
            yield Item(path, status.st_mode, status.st_size, (status.st_ino, status.st_mtime_ns, status.st_ctime_ns), link)
            # A nested repository is its own business; the loop's restore knows it.
            if stat.S_ISDIR(status.st_mode) and not os.path.lexists(entry.path + b"/.git"):
                pending.append(path)


def _remove(path: Path) -> None:
    # Of a folder only what became one, or a repository that appeared, is left in it by now.
    parent = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        remove(parent, path.name)
    finally:
        os.close(parent)


def _equal(one: Path, other: Path) -> bool:
    with one.open("rb") as first, other.open("rb") as second:
        while True:
            left, right = first.read(1 << 20), second.read(1 << 20)
            if left != right:
                return False
            if not left:
                return True
