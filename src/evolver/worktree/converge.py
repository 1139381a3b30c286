"""Makes named paths what a manifest says, whatever lies there now. Idempotent; may be killed at any instant and run again.

Deletes exactly what the manifest lacks (DEL), writes by temporary file and rename (a hard link's name outside keeps its bytes,
hazard 39; names of one file that were all changed are names of one file again), and gives a restored file an mtime that the attempt's
file did not have (stale caches, hazard 45).
"""

from __future__ import annotations

import os
import secrets
import stat
import time
from collections.abc import Callable, Container, Iterable, Mapping
from contextlib import suppress

from evolver.crash import crash_point
from evolver.errors import EvolverError
from evolver.worktree import xattrs
from evolver.worktree.anchor import TEMPORARY, Anchor
from evolver.worktree.manifest import Entry, Tree, entry_of, lookup, split
from evolver.worktree.remove import remove
from evolver.worktree.source import Source

SECOND_NS = 1_000_000_000


class Converge:
    """One pass over one folder. `attempted`: mtimes the attempt's files had; `same_bytes`: only mode or owner differ.
    `target` learns the new stat data."""

    def __init__(
        self,
        anchor: Anchor,
        target: Tree,
        source: Source,
        attempted: Mapping[str, int] | None = None,
        same_bytes: Container[str] = (),
    ) -> None:
        self.anchor, self.target, self.source = anchor, target, source
        self.attempted = attempted or {}
        self.same_bytes = same_bytes
        self.written = 0
        self.deleted = 0
        self.problems: list[str] = []
        self._made: dict[Entry, str] = {}  # as the baseline has it -> where it was made
        self._folders: set[str] = set()  # whose own mode is to be put right at the end
        self._now = time.time_ns()

    def run(self, paths: Iterable[str]) -> None:
        """Problems are collected, never raised: as much as can be is put back."""
        wanted: list[tuple[str, Entry]] = []
        unwanted: list[str] = []
        for path in paths:
            entry = lookup(self.target, path)
            if entry is None:
                unwanted.append(path)
            else:
                wanted.append((path, entry))
        for path in sorted(unwanted, key=len):  # the topmost first: what lay in it is gone then
            self._try(path, self._delete, path)
        crash_point("restore.deleted")
        wanted.sort(key=lambda item: item[0].count("/"))
        for path, entry in wanted:
            if entry.is_dir:
                self._try(path, self._make_folder, path, entry)
        for path, entry in sorted(wanted, key=lambda item: item[0] not in self.same_bytes):  # a file that stays may get a name back
            if not entry.is_dir:
                self._try(path, self._write, path, entry)
                crash_point("restore.file")
        for path in sorted(self._folders, key=lambda p: -p.count("/")):
            self._try(path, self._folder_mode, path)
        crash_point("restore.written")

    def _try(self, path: str, act: Callable[..., None], *args: object) -> None:
        try:
            act(*args)
        except OSError as error:
            self.problems.append(f"{path}: {error.strerror or error}")
        except EvolverError as error:
            self.problems.append(f"{path}: {error.message}")

    # ------------------------------------------------------------ removing

    def _delete(self, path: str) -> None:
        if self.anchor.lstat(path) is None:
            return
        self._clear(path)

    def _clear(self, path: str) -> None:
        folder, name = split(path)
        self.anchor.forget(path)
        self._folders.add(folder)
        self.deleted += remove(self.anchor.folder(folder), name)

    # ------------------------------------------------------------ making

    def _make_folder(self, path: str, entry: Entry) -> None:
        folder, name = split(path)
        self._parents(folder)
        now = self.anchor.lstat(path)
        if now is None or not stat.S_ISDIR(now.st_mode):
            if now is not None:
                self._clear(path)
            self._permitted(folder, lambda fd: os.mkdir(name, 0o700, dir_fd=fd))
            self.written += 1
            self._folders.add(folder)
        self._folders.add(path)

    def _parents(self, folder: str) -> None:
        """The folders above exist in the manifest whenever something in them does; one may be missing or not a folder."""
        if not folder:
            return
        now = self.anchor.lstat(folder)
        if now is not None and stat.S_ISDIR(now.st_mode):
            return
        entry = lookup(self.target, folder)
        if entry is not None and entry.is_dir:
            self._make_folder(folder, entry)

    def _permitted(self, folder: str, act: Callable[[int], None]) -> None:
        """Do it in a folder; when the owner lacks permission there, with permission (hazard 35)."""
        fd = self.anchor.folder(folder)
        try:
            act(fd)
        except PermissionError:
            self.anchor.lend_writing(folder)
            self._folders.add(folder)
            act(fd)

    def _write(self, path: str, entry: Entry) -> None:
        folder, name = split(path)
        self._parents(folder)
        now = self.anchor.lstat(path)
        if now is not None and stat.S_ISDIR(now.st_mode):
            self._clear(path)
            now = None
        if now is not None and path in self.same_bytes and now.st_nlink == 1:
            fd = self.anchor.folder(folder)
            if (now.st_uid, now.st_gid) != (entry.uid, entry.gid):
                os.chown(name, entry.uid, entry.gid, dir_fd=fd, follow_symlinks=False)
            os.chmod(name, stat.S_IMODE(entry.mode), dir_fd=fd)
            self.anchor.keep_mode(path)
        else:
            self._folders.add(folder)
            self._replace(folder, name, path, entry)
        self.written += 1
        if entry.is_file:
            self._made.setdefault(entry, path)
        self.target[folder][name] = entry_of(self.anchor.stat(path), entry.content)._replace(
            mode=entry.mode, uid=entry.uid, gid=entry.gid
        )

    def _replace(self, folder: str, name: str, path: str, entry: Entry) -> None:
        temporary = TEMPORARY + secrets.token_hex(6)
        try:
            if not self._link(folder, temporary, entry):
                self._permitted(folder, lambda fd: self._create(fd, temporary, path, entry))
            fd = self.anchor.folder(folder)
            os.rename(temporary, name, src_dir_fd=fd, dst_dir_fd=fd)
        except BaseException:
            with suppress(OSError):
                os.unlink(temporary, dir_fd=self.anchor.folder(folder))
            raise
        self.anchor.keep_mode(path)

    def _link(self, folder: str, temporary: str, entry: Entry) -> bool:
        """Another name of a file this pass made, when both were names of one file: equal in everything, its inode too."""
        twin = self._made.get(entry)
        if twin is None:
            return False
        above, name = split(twin)
        source = os.dup(self.anchor.folder(above))  # ours: the anchor may close what it holds when it opens the other
        try:
            with suppress(OSError):
                self._permitted(folder, lambda fd: os.link(name, temporary, src_dir_fd=source, dst_dir_fd=fd, follow_symlinks=False))
                self.target[above][name] = self.target[above][name]._replace(ctime_ns=os.stat(name, dir_fd=source, follow_symlinks=False).st_ctime_ns)
                return True
        finally:
            os.close(source)
        return False

    def _create(self, fd: int, name: str, path: str, entry: Entry) -> None:
        if entry.is_link:
            os.symlink(os.fsdecode(entry.content[1:]), name, dir_fd=fd)
            self._own(fd, name, entry)
        elif stat.S_ISFIFO(entry.mode):
            os.mkfifo(name, stat.S_IMODE(entry.mode), dir_fd=fd)
            self._own(fd, name, entry)
            os.chmod(name, stat.S_IMODE(entry.mode), dir_fd=fd)
        elif entry.is_file:
            self._create_file(fd, name, path, entry)
        else:
            raise OSError(0, "a socket or device cannot be made again")

    def _own(self, fd: int, name: str, entry: Entry) -> None:
        """Its owner and group, where we may say so; verify tells where not. A folder with setgid gives what is new in it another group."""
        made = os.stat(name, dir_fd=fd, follow_symlinks=False)
        if (made.st_uid, made.st_gid) != (entry.uid, entry.gid):
            with suppress(PermissionError):
                os.chown(name, entry.uid, entry.gid, dir_fd=fd, follow_symlinks=False)

    def _create_file(self, fd: int, name: str, path: str, entry: Entry) -> None:
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        with os.fdopen(os.open(name, flags, 0o600, dir_fd=fd), "wb") as file:
            for chunk in self.source.chunks(entry.content):
                file.write(chunk)
            file.flush()
            self._own(fd, name, entry)
            xattrs.put(file.fileno(), self.source.attributes(entry.content))  # before the mode: it is part of an access list
            os.fchmod(file.fileno(), stat.S_IMODE(entry.mode))
            other = self.attempted.get(path)
            if other is not None and other // SECOND_NS >= self._now // SECOND_NS:
                late = (other // SECOND_NS + 1) * SECOND_NS
                os.utime(file.fileno(), ns=(late, late))

    def _folder_mode(self, path: str) -> None:
        if not path:
            return
        entry = lookup(self.target, path)
        now = self.anchor.lstat(path)
        if entry is None or now is None or not entry.is_dir or not stat.S_ISDIR(now.st_mode):
            return
        folder, name = split(path)
        fd = self.anchor.folder(folder)
        if (now.st_uid, now.st_gid) != (entry.uid, entry.gid):
            with suppress(PermissionError):
                os.chown(name, entry.uid, entry.gid, dir_fd=fd, follow_symlinks=False)
        if self.anchor.stat(path).st_mode != entry.mode:
            os.chmod(name, stat.S_IMODE(entry.mode), dir_fd=fd)
        self.anchor.keep_mode(path)

