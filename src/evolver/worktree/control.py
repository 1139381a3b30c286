"""The control guard: git's control files compared with the baseline and put back by plain file operations, before git runs.

What an attempt planted (hooks, filters, fsmonitor, core.worktree, aliases, includes, another `.git`) is aside by the time the first git
command starts, so it is never run (hazards 23 to 29, 46).
"""

from __future__ import annotations

import os
import stat
import time
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from evolver.crash import crash_point
from evolver.worktree import manifest, refs
from evolver.worktree.anchor import Anchor, read_regular
from evolver.worktree.aside import Aside
from evolver.worktree.converge import Converge
from evolver.worktree.gitfolder import Kind, kind_of
from evolver.worktree.gitwalk import GitFolders, walk_git
from evolver.worktree.manifest import Entry, Tree, lookup
from evolver.worktree.named import Named
from evolver.worktree.rebuild import rebuild
from evolver.worktree.refs import Refs
from evolver.worktree.site import Site
from evolver.worktree.snapshot import Snapshot
from evolver.worktree.source import Source
from evolver.worktree.values import ControlReport

LOCK_SECONDS = 1.0  # longer than git holds the lock of a ref or of its configuration


@dataclass
class Guarded:
    """What the guard found: refs as they were at quiesce, and what it put back."""

    refs: Refs
    folders: GitFolders
    report: ControlReport
    problems: tuple[str, ...] = ()


@dataclass
class Guard:
    """One comparison of git's folders with a baseline."""

    site: Site
    snapshot: Snapshot
    aside: Aside
    changed: set[str] = field(default_factory=set)
    problems: list[str] = field(default_factory=list)

    def run(self, earlier: ControlReport) -> Guarded:
        crash_point("guard.before")
        self._open_folders()
        replaced = rebuild(self.site, self.snapshot, self.aside)
        if replaced:
            self.changed.add(".git")
            crash_point("guard.git_rebuilt")
        if not replaced or self.site.linked:
            self._objects()
        folders = walk_git(self.site, self.snapshot, keep=False)
        self._compare("private", self.site.private, self.snapshot.private, folders.private)
        if folders.common is not None and self.snapshot.common is not None:
            self._compare("common", self.site.common, self.snapshot.common, folders.common)
        found = self._refs(folders)
        named = Named(self.site, self.snapshot, self.aside)
        self.changed |= set(named.put_back())
        self.problems += named.problems
        crash_point("guard.after")
        report = ControlReport(tuple(sorted({*earlier.changed, *self.changed})), replaced or earlier.git_replaced)
        return Guarded(found, folders, report, tuple(self.problems))

    def _open_folders(self) -> None:
        """The worktree and git's own top folders must be usable before anything in them is: a closed one looks empty (35).
        They stay open in mode none as well: the stream and the lock are written in there."""
        for folder in (self.site.root, self.site.common, self.site.private):
            with suppress(FileNotFoundError, NotADirectoryError):
                st = folder.lstat()
                if stat.S_ISDIR(st.st_mode) and st.st_mode & 0o700 != 0o700 and st.st_uid == os.geteuid():
                    folder.chmod(stat.S_IMODE(st.st_mode) | 0o700)

    def _objects(self) -> None:
        """Objects that went away come back (hazard 17); a linked worktree's git folder shares them."""
        objects = self.site.common / "objects"
        if objects.is_symlink() or (objects.exists() and not objects.is_dir()):
            self.changed.add("objects")
            with Anchor(self.site.common) as anchor:
                self.aside.take(anchor, "common", "objects")
        elif not objects.is_dir() and self.site.boat.manned:
            self.aside.note_missing("common", "objects")
            self.changed.add("objects")
        try:
            self.site.boat.relaunch_objects(self.site.common)
        except OSError as error:
            self.problems.append(f"objects: {error.strerror}")

    def _compare(self, area: str, top: Path, before: Tree, now: Tree) -> None:
        """Put control and quiet files back; give folders of every kind their modes back."""
        wrong: list[str] = []
        passing = self._passing(top, before, now, beside=area == "common")
        for path in _different(before, now, beside=area == "common"):
            if path in passing:
                continue
            was, is_now = lookup(before, path), lookup(now, path)
            kind = kind_of(path, beside=area == "common")
            if (was or is_now) is not None and (was is None or was.is_dir) and (is_now is None or is_now.is_dir):
                if self._folder(area, path, kind, was, is_now):
                    wrong.append(path)
                continue
            if kind in (Kind.CONTROL, Kind.QUIET):
                wrong.append(path)
            elif kind is Kind.STATE and _other_type(was, is_now):
                self.changed.add(path)
                wrong.append(path)
            elif kind is Kind.STATE and was is not None and is_now is not None and was.mode != is_now.mode and is_now.is_file:
                self.aside.note_mode(area, path, stat.S_IMODE(is_now.mode))  # a reflog git cannot append to stops every ref
                (top / path).chmod(stat.S_IMODE(was.mode))
        self._usable_stores(area, top, before, now)
        if not wrong:
            return
        with Anchor(top) as anchor, Source(self.site.vault, None) as source:
            taken = ""
            for path in wrong:
                if kind_of(path) is Kind.CONTROL:
                    self.changed.add(path)
                if taken and path.startswith(taken + "/"):
                    continue  # went aside with its folder
                if _both_folders(before, now, path):
                    mode = lookup(now, path)
                    self.aside.note_mode(area, path, stat.S_IMODE(mode.mode) if mode is not None else 0o755)
                else:
                    self.aside.take(anchor, area, path)
                    taken = path
                crash_point("guard.entry")
            work = Converge(anchor, before, source)
            work.run(wrong)
            self.problems += work.problems

    def _passing(self, top: Path, before: Tree, now: Tree, *, beside: bool) -> set[str]:
        """Locks that go by themselves: git at work in another worktree holds one for a moment. The attempt's own stay (46)."""
        if not self.site.linked and not self.snapshot.siblings:
            return set()
        locks = {p for p in _different(before, now, beside=beside) if p.endswith(".lock") and lookup(before, p) is None}
        held, until = set(locks), time.monotonic() + LOCK_SECONDS
        while held and time.monotonic() < until:
            time.sleep(0.02)
            held = {path for path in held if os.path.lexists(top / path)}
        return locks - held

    def _usable_stores(self, area: str, top: Path, before: Tree, now: Tree) -> None:
        """Folders for objects that the attempt made and closed: git has to write there."""
        for name, entry in now.get("objects", {}).items():
            path = f"objects/{name}"
            if entry.is_dir and lookup(before, path) is None and entry.mode & 0o700 != 0o700:
                self.aside.note_mode(area, path, stat.S_IMODE(entry.mode))
                (top / path).chmod(stat.S_IMODE(entry.mode) | 0o700)

    def _folder(self, area: str, path: str, kind: Kind, was: Entry | None, now: Entry | None) -> bool:
        """Does this folder have to be made, removed, or given its mode back?"""
        if was is None:
            return kind in (Kind.CONTROL, Kind.QUIET) and not path.startswith("objects")
        if now is None:
            return kind in (Kind.CONTROL, Kind.QUIET) or path in ("refs", "objects", "objects/info", "objects/pack", "logs", "modules")
        return was.mode != now.mode

    def _refs(self, folders: GitFolders) -> Refs:
        """Read the refs as the attempt left them; what git itself could not read is put back at once."""
        packed = b""
        with suppress(OSError):
            packed = read_regular(self.site.common / "packed-refs")
        common = folders.common if folders.common is not None else folders.private
        found = refs.read(folders.private, common, packed)
        if found.head in ("", refs.BROKEN):
            self._put_back_raw("private", self.site.private, self.snapshot.private, "HEAD")
        if not found.packed_ok:
            self._put_back_raw("common", self.site.common, self.snapshot.shared, "packed-refs")
            with suppress(OSError):
                packed = read_regular(self.site.common / "packed-refs")
            found = Refs(found.head, refs.read(folders.private, common, packed).refs)
        return found

    def _put_back_raw(self, area: str, top: Path, before: Tree, path: str) -> None:
        self.changed.add(path)
        with Anchor(top) as anchor, Source(self.site.vault, None) as source:
            self.aside.take(anchor, area, path)
            work = Converge(anchor, before, source)
            work.run([path])
            self.problems += work.problems


def _different(before: Tree, now: Tree, *, beside: bool) -> list[str]:
    """Paths whose meaning differs, folders before what is in them. Other worktrees' folders and object stores aside."""
    found = []
    for folder in sorted({*before, *now}):
        old, new = before.get(folder, {}), now.get(folder, {})
        if old is new:
            continue
        for name in sorted({*old, *new}):
            path = manifest.join(folder, name)
            was, is_now = old.get(name), new.get(name)
            if was is not None and is_now is not None and was.means() == is_now.means():
                continue
            if kind_of(path, beside=beside) is not Kind.SIBLING and not path.startswith("evolver"):
                found.append(path)
    return sorted(found)


def _other_type(was: Entry | None, now: Entry | None) -> bool:
    """A FIFO where git reads a file blocks it for ever; through a symlink in place of a folder git would write elsewhere."""
    if now is None:
        return False
    if was is None:
        return not (now.is_file or now.is_dir)
    return stat.S_IFMT(was.mode) != stat.S_IFMT(now.mode)


def _both_folders(before: Tree, now: Tree, path: str) -> bool:
    was, is_now = lookup(before, path), lookup(now, path)
    return was is not None and was.is_dir and is_now is not None and is_now.is_dir

