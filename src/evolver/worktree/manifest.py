"""What lies in a folder: one walk, fd-relative and never through a symlink, compared with an earlier walk on the way.

Names are `str` with surrogate escapes, so any bytes are held (hazard 41). An unchanged file is known by inode, ctime, size
and mode, which no ordinary program can set (mtime can be set, hazard 30), and is not read again.
"""

from __future__ import annotations

import os
import resource
import stat
import time
from collections.abc import Callable, Container, Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

DIR_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
FILE_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
LEFT = b"-"  # content: not part of the baseline
UNKNOWN = b""  # content: not read yet
DEEP = 400  # nested folders after which more descriptors are asked for
RACY_NS = 40_000_000  # a ctime this close to the walk may hide a later write within the same clock tick
RACY_COARSE_NS = 2_000_000_000  # on filesystems that store whole seconds


class Entry(NamedTuple):
    """One name. `content`: `b` + blob id, `s` + sha256 (both hex), `l` + a link's target, LEFT or UNKNOWN."""

    mode: int
    size: int
    mtime_ns: int
    ctime_ns: int
    ino: int
    uid: int
    gid: int
    content: bytes

    @property
    def is_dir(self) -> bool:
        return stat.S_ISDIR(self.mode)

    @property
    def is_file(self) -> bool:
        return stat.S_ISREG(self.mode)

    @property
    def is_link(self) -> bool:
        return stat.S_ISLNK(self.mode)

    def means(self) -> tuple[int, int, int, bytes]:
        """What a user would call the same entry: stat data aside. A link's mode cannot be set."""
        return (self.mode if not self.is_link else stat.S_IFLNK, self.uid, self.gid, self.content)


Folder = dict[str, Entry]
_NOTHING: Folder = {}
Tree = dict[str, Folder]  # folder's path relative to the top ("" the top itself) -> what is in it


def join(folder: str, name: str) -> str:
    return f"{folder}/{name}" if folder else name


def split(path: str) -> tuple[str, str]:
    folder, _, name = path.rpartition("/")
    return folder, name


def lookup(tree: Tree, path: str) -> Entry | None:
    folder, name = split(path)
    return tree.get(folder, {}).get(name)


def entry_of(st: os.stat_result, content: bytes = UNKNOWN) -> Entry:
    return Entry(st.st_mode, st.st_size, st.st_mtime_ns, st.st_ctime_ns, st.st_ino, st.st_uid, st.st_gid, content)


def entries(tree: Tree, under: str = "") -> Iterator[tuple[str, Entry]]:
    """Every path below `under`, folders before what is in them."""
    pending = [under]
    while pending:
        folder = pending.pop()
        for name, entry in tree.get(folder, {}).items():
            path = join(folder, name)
            yield path, entry
            if entry.is_dir:
                pending.append(path)


@dataclass
class Scan:
    """One walk. `touched`: new, or stat data differ from the earlier walk; `gone`: no longer there."""

    tree: Tree = field(default_factory=dict)
    touched: list[str] = field(default_factory=list)
    gone: list[str] = field(default_factory=list)
    unreadable: list[str] = field(default_factory=list)
    swapped: dict[str, os.stat_result] = field(default_factory=dict)  # folders that are alike, and another one all the same
    moved: dict[str, str] = field(default_factory=dict)  # left-out paths that lie elsewhere now; see leftout.py
    files: int = 0
    started_ns: int = 0
    trusted: int = 0  # given, when no walk was made

    @property
    def trusted_ns(self) -> int:
        """Entries with a ctime before this were surely not written again after this walk read them."""
        if self.trusted:
            return self.trusted
        top = next(iter(self.tree.values()), {})
        coarse = all(e.ctime_ns % 1_000_000_000 == 0 for e in top.values())
        return self.started_ns - (RACY_COARSE_NS if coarse else RACY_NS)


class Descriptors:
    """Deep trees (hazard 40) hold one descriptor a level; the limit is raised for the walk only, agents keep theirs."""

    def __init__(self) -> None:
        self.before: tuple[int, int] | None = None

    def want(self, depth: int) -> None:
        if self.before is None and depth > DEEP:
            soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
            self.before = (soft, hard)
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))

    def restore(self) -> None:
        if self.before is not None:
            resource.setrlimit(resource.RLIMIT_NOFILE, self.before)


def open_folder(name: str, parent: int, *, force: bool) -> tuple[int, int | None]:
    """Descriptor of a subfolder and, when it had to be made readable first, its mode before (hazard 35)."""
    try:
        return os.open(name, DIR_FLAGS, dir_fd=parent), None
    except PermissionError:
        if not force:
            raise
        mode = stat.S_IMODE(os.stat(name, dir_fd=parent, follow_symlinks=False).st_mode)
        os.chmod(name, mode | 0o700, dir_fd=parent)
        return os.open(name, DIR_FLAGS, dir_fd=parent), mode


def scan(top: int, known: Tree | None = None, *, opaque: Container[str] = (), trusted_ns: int = 0) -> Scan:
    """Walk below the open folder `top`. `opaque` paths are noted but not entered. Entries of `known` that are surely
    unchanged are taken over; one whose ctime is not before `trusted_ns` could have been written again within a clock tick, so it is touched.
    A folder without permission is opened by its owner's right for the time of the walk."""
    earlier = known if known is not None else {}
    result = Scan(started_ns=time.time_ns())
    nofile = Descriptors()
    stack: list[tuple[int, str, int | None, list[str]]] = []
    try:
        fd: int | None = os.dup(top)
        folder, mode = "", None
        while True:
            if fd is not None:
                subs = _list_folder(fd, folder, earlier, opaque, trusted_ns, result)
                if mode is not None:
                    os.fchmod(fd, mode)
                if subs:
                    stack.append((fd, folder, mode, subs))
                else:
                    os.close(fd)
                fd = None
            if not stack:
                return result
            parent, above, parent_mode, subs = stack[-1]
            if not subs:
                os.close(parent)
                stack.pop()
                continue
            name = subs.pop()
            folder = join(above, name)
            nofile.want(len(stack))
            try:
                if parent_mode is not None:
                    os.fchmod(parent, parent_mode | 0o700)
                try:
                    fd, mode = open_folder(name, parent, force=True)
                finally:
                    if parent_mode is not None:
                        os.fchmod(parent, parent_mode)
            except OSError as error:
                result.unreadable.append(f"{folder}: {error.strerror}")
                if folder in earlier:
                    result.tree[folder] = earlier[folder]
    finally:
        for open_fd, *_ in stack:
            os.close(open_fd)
        nofile.restore()


def _list_folder(
    fd: int, folder: str, earlier: Tree, opaque: Container[str], trusted_ns: int, result: Scan
) -> list[str]:
    """List one folder into `result`; returns the subfolders to enter. The hot loop of everything."""
    old = earlier.get(folder)
    get = (old if old is not None else _NOTHING).get
    different: Folder = {}
    same = 0
    subs: list[str] = []
    with os.scandir(fd) as listing:
        for item in listing:
            name = item.name
            st = item.stat(follow_symlinks=False)
            entry = get(name)
            mode = st.st_mode
            if entry is not None:
                if st.st_ctime_ns == entry[3] < trusted_ns and st.st_ino == entry[4] and mode == entry[0]:
                    same += 1
                    if mode & 0o170000 == 0o040000 and entry[7] != LEFT:
                        subs.append(name)
                    continue
                if entry[7] == LEFT:
                    same += 1
                    continue
            if mode & 0o170000 == 0o040000:
                subs.append(name)
                if entry is not None and entry[0] == mode and entry[5] == st.st_uid and entry[6] == st.st_gid:
                    same += 1  # what is in it may have changed; that is found there
                    if entry[4] != st.st_ino:
                        result.swapped[join(folder, name)] = st
                    continue
            different[name] = entry_of(st)
    if opaque:
        subs = [s for s in subs if join(folder, s) not in opaque]
    if old is not None and not different and same == len(old):
        result.tree[folder] = old
        result.files += same
        return subs
    new: Folder
    if old is None:
        new = different
        result.touched += [join(folder, n) for n in different]
    else:
        new = _merge(fd, old, different)
        result.touched += [join(folder, n) for n in different]
        result.gone += [join(folder, n) for n in old if n not in new]
    result.tree[folder] = new
    result.files += len(new)
    return subs


def _merge(fd: int, old: Folder, different: Folder) -> Folder:
    """The folder now: entries taken over, entries that differ."""
    names = os.listdir(fd)
    return {n: different[n] if n in different else old[n] for n in names if n in different or n in old}


def vanished(known: Tree, now: Tree) -> Iterator[str]:
    """Folders of `known` that the later walk did not meet."""
    return (folder for folder in known if folder not in now)


def differences(
    known: Tree, result: Scan, content: Callable[[str, Entry, Entry | None], bytes], opaque: Container[str] = ()
) -> Mapping[str, tuple[Entry | None, Entry | None]]:
    """Path -> (before, now) of everything that is not the same to a user. `content` reads a touched file; it is asked only when
    stat data could not tell. Updates `result.tree` with what it learnt."""
    changed: dict[str, tuple[Entry | None, Entry | None]] = {}
    for path in result.touched:
        folder, name = split(path)
        now = result.tree[folder][name]
        before = known.get(folder, {}).get(name)
        if not now.is_dir and now.content == UNKNOWN:
            now = now._replace(content=content(path, now, before))
            result.tree[folder][name] = now
        if before is None or before.means() != now.means():
            changed[path] = (before, now)
    for path in result.gone:
        gone = lookup(known, path)
        if gone is not None and gone.content != LEFT:
            changed[path] = (gone, None)
    for folder in vanished(known, result.tree):
        if folder in opaque:
            continue
        for name, entry in known[folder].items():
            if entry.content != LEFT:
                changed.setdefault(join(folder, name), (entry, None))
    return changed
