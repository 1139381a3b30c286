"""Puts back what git keeps beside the control files: HEAD, refs, reflogs, the stash list, index, submodules' and worktrees' metadata.

Refs move in one transaction, each only from the value it had at quiesce (compare-and-swap); what moved since is somebody else's and is
named, never overwritten (hazards 12, 14, 16, 22).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from evolver.crash import crash_point
from evolver.errors import GitError
from evolver.worktree import refs
from evolver.worktree.anchor import TEMPORARY, Anchor, read_regular
from evolver.worktree.converge import Converge
from evolver.worktree.gitfolder import Kind, kind_of
from evolver.worktree.gitwalk import GitFolders, walk_git
from evolver.worktree.manifest import Tree, entries, lookup
from evolver.worktree.refs import BROKEN, STASH, Refs
from evolver.worktree.remove import remove
from evolver.worktree.site import Site
from evolver.worktree.snapshot import STASH_LOG, Snapshot
from evolver.worktree.source import Source

REASON = "evolver: back to the baseline"


def read_refs(site: Site, folders: GitFolders) -> Refs:
    packed = b""
    with suppress(OSError):
        packed = read_regular(site.common / "packed-refs")
    return refs.read(folders.private, folders.common if folders.common is not None else folders.private, packed)


def write_beside(folder: Path, name: str, data: bytes, mode: int = 0o644) -> None:
    """Old bytes or new bytes, never half of them."""
    temporary = folder / f"{TEMPORARY}{name}"
    with open(temporary, "wb") as file:
        file.write(data)
        os.fchmod(file.fileno(), mode)
    temporary.replace(folder / name)


@dataclass
class StateBack:
    """One pass. `quiesced`: refs as read when everything foreign was dead; `left`: refs that are not ours to move."""

    site: Site
    snapshot: Snapshot
    quiesced: Refs
    left: frozenset[str]
    stash_is_shared: bool  # another run is active beside us: its entries stay
    moved: int = 0
    problems: list[str] = field(default_factory=list)
    foreign: list[str] = field(default_factory=list)  # those that only say that somebody else moved a ref meanwhile
    branch_to: tuple[str, str] | None = None  # accepting: (ref, commit) instead of the baseline's value

    def run(self) -> None:
        folders = walk_git(self.site, self.snapshot, keep=False)
        self._try("refs", lambda: self._refs(read_refs(self.site, folders)))
        crash_point("restore.refs")
        if not self.stash_is_shared:
            self._try("stash", lambda: self.stash_back(read_refs(self.site, folders)))
        crash_point("restore.stash")
        self._try("reflogs", lambda: self._logs(folders))
        self._try("submodules", lambda: self._modules(folders))
        self._try("worktrees", lambda: self._siblings(folders))

    def rest(self) -> None:
        """After an acceptance that was killed: the stash list, and what was taken away. What was added since is not the attempt's."""
        folders = walk_git(self.site, self.snapshot, keep=False)
        if not self.stash_is_shared:
            self._try("stash", lambda: self.stash_back(read_refs(self.site, folders)))
        self._try("reflogs", lambda: self._logs(folders))
        for top, before, now in self._areas(folders):
            missing = [p for p, _ in entries(before, "modules") if kind_of(p) is Kind.STATE and lookup(now, p) is None]
            self._try("submodules", partial(self._converge, top, before, missing))
        top, before, now = self._areas(folders)[-1]
        lost = [n for n in self.snapshot.siblings if n not in now.get("worktrees", {})]
        paths = [p for n in lost for p in (f"worktrees/{n}", *(p for p, _ in entries(before, f"worktrees/{n}")))]
        self._try("worktrees", lambda: self._converge(top, before, paths))

    def _try(self, what: str, act: Callable[[], None]) -> None:
        try:
            act()
        except OSError as error:
            self.problems.append(f"{what}: {error.strerror or error} {error.filename or ''}".strip())
        except GitError as error:
            self.problems.append(f"{what}: {error.message}")

    # ------------------------------------------------------------ HEAD and refs

    def _wanted(self, name: str) -> str | None:
        if self.branch_to is not None and name == self.branch_to[0]:
            return self.branch_to[1]
        return self.snapshot.refs.refs.get(name)

    def _refs(self, now: Refs) -> None:
        head = self.snapshot.refs.head
        if head.startswith("ref: ") and now.head != head:
            self.site.git.run("symbolic-ref", "-m", REASON, "HEAD", head[5:])
            self.moved += 1
        elif not head.startswith("ref: ") and now.head.startswith("ref: "):
            # Detached first: one transaction may not move both HEAD and the branch it stands on.
            self.site.git.run("update-ref", "--no-deref", "-m", REASON, "HEAD", head)
            now = Refs(head, now.refs)
            self.moved += 1
        deletes: list[bytes] = []
        updates: list[bytes] = []
        names = {*now.refs, *self.snapshot.refs.refs, *([self.branch_to[0]] if self.branch_to else [])}
        gone, made = [], []
        for name in sorted(names - self.left - {STASH, "HEAD"}):
            want, have = self._wanted(name), now.refs.get(name)
            if have == want:
                continue
            if have != self.quiesced.refs.get(name):
                self.foreign.append(f"{name}: moved by somebody else after the attempt ended")
                self.problems.append(self.foreign[-1])
                continue
            self.moved += 1
            if want is None:
                if have == BROKEN or (have is not None and have.startswith("ref: ")):
                    self._unlink_ref(name)
                else:
                    deletes.append(f"delete {name}\0{have}\0".encode("utf-8", "surrogateescape"))
                gone.append(name)
            elif want.startswith("ref: "):
                self.site.git.run("symbolic-ref", "-m", REASON, name, want[5:])
            else:
                if have == BROKEN:
                    self._unlink_ref(name)
                    have = None
                old = "" if have is None or have.startswith("ref: ") else have
                updates.append(f"update {name}\0{want}\0{old}\0".encode("utf-8", "surrogateescape"))
                made.append(name)
        detached = self.branch_to[1] if self.branch_to is not None and self.branch_to[0] == "HEAD" else head
        if not head.startswith("ref: ") and now.head != detached:
            updates.append(f"update HEAD\0{detached}\0\0".encode())
            self.moved += 1
        # A ref that is as it should be, where the attempt packed another below its name: git cannot delete that one under it.
        for name in sorted(self.snapshot.refs.refs):
            want = self._wanted(name)
            if want is not None and now.refs.get(name) == want and any(g.startswith(f"{name}/") for g in gone):
                self._unlink_ref(name)
                updates.append(f"update {name}\0{want}\0\0".encode("utf-8", "surrogateescape"))
                made.append(name)
        if _in_the_way(gone, made):
            self._transaction(deletes)
            deletes = []
        self._transaction(deletes + updates)

    def _transaction(self, commands: Iterable[bytes]) -> None:
        lines = list(commands)
        if lines:
            data = b"start\0" + b"".join(lines) + b"prepare\0commit\0"
            self.site.git.run("update-ref", "--no-deref", "-m", REASON, "-z", "--stdin", input=data)

    def _unlink_ref(self, name: str) -> None:
        for top in (self.site.private, self.site.common):
            with suppress(FileNotFoundError, NotADirectoryError):
                parent = os.open(top / os.path.dirname(name), os.O_RDONLY | os.O_DIRECTORY)
                try:
                    remove(parent, os.path.basename(name))
                finally:
                    os.close(parent)

    # ------------------------------------------------------------ the stash list, by its entries' ids

    def stash_now(self) -> list[bytes]:
        """The lines of the list as it is."""
        try:
            return stash_lines(read_regular(self.site.common / STASH_LOG))
        except OSError:
            return []

    def stash_back(self, now: Refs) -> None:
        log = b"".join((*stash_lines(self.bytes_of(self.snapshot.shared, STASH_LOG)), *self.snapshot.own_stash))
        tip = self.snapshot.refs.refs.get(STASH)
        if self.snapshot.own_stash:
            tip = self.snapshot.own_stash[-1].split(b" ", 2)[1].decode()
        path = self.site.common / STASH_LOG
        have = now.refs.get(STASH)
        if have != tip:
            self.moved += 1
            if tip is None:
                self.site.git.run("update-ref", "-d", STASH, check=have != BROKEN)
                self._unlink_ref(STASH)
            else:
                self.site.git.run("update-ref", "-m", REASON, STASH, tip)
        current = path.read_bytes() if path.is_file() else None
        if tip is None:
            path.unlink(missing_ok=True)
        elif current != log:
            path.parent.mkdir(parents=True, exist_ok=True)
            write_beside(path.parent, path.name, log)

    # ------------------------------------------------------------ reflogs, submodules, other worktrees

    def bytes_of(self, tree: Tree, path: str) -> bytes:
        entry = lookup(tree, path)
        if entry is None or not entry.is_file:
            return b""
        with Source(self.site.vault, None) as source:
            return b"".join(source.chunks(entry.content))

    def _areas(self, folders: GitFolders) -> list[tuple[Path, Tree, Tree]]:
        areas = [(self.site.private, self.snapshot.private, folders.private)]
        if self.snapshot.common is not None and folders.common is not None:
            areas.append((self.site.common, self.snapshot.common, folders.common))
        return areas

    def _logs(self, folders: GitFolders) -> None:
        """A reflog may have grown; what it held is the user's way back to older commits (hazard 17)."""
        for top, before, _ in self._areas(folders):
            for path, entry in entries(before, "logs"):
                if entry.is_dir or path == STASH_LOG:
                    continue
                file = top / path
                try:
                    if file.stat().st_size >= entry.size:
                        with open(file, "rb") as stream:
                            if stream.read(entry.size) == self.bytes_of(before, path):
                                continue
                except OSError:
                    pass
                self._converge(top, before, [path])

    def _modules(self, folders: GitFolders) -> None:
        for top, before, now in self._areas(folders):
            wrong = [
                path
                for path in sorted({*(p for p, _ in entries(before, "modules")), *(p for p, _ in entries(now, "modules"))})
                if kind_of(path) is Kind.STATE and not _same(before, now, path)
            ]
            self._converge(top, before, wrong)

    def _siblings(self, folders: GitFolders) -> None:
        """Metadata of worktrees the attempt added goes; of those it removed comes back. Folders outside stay untouched."""
        top, before, now = self._areas(folders)[-1]
        names = {n for n, e in now.get("worktrees", {}).items() if e.is_dir}
        for name in sorted(names - set(self.snapshot.siblings)):
            with Anchor(top) as anchor:
                remove(anchor.folder("worktrees"), name)
        wrong = []
        for name in self.snapshot.siblings:
            if name not in names:
                wrong += [f"worktrees/{name}", *(p for p, _ in entries(before, f"worktrees/{name}"))]
            else:
                pointers = (f"worktrees/{name}/{file}" for file in ("gitdir", "commondir", "locked"))
                wrong += [p for p in pointers if not _same(before, now, p)]
        self._converge(top, before, wrong)

    def _converge(self, top: Path, before: Tree, paths: list[str]) -> None:
        if not paths:
            return
        with Anchor(top) as anchor, Source(self.site.vault, None) as source:
            work = Converge(anchor, before, source)
            work.run(paths)
            self.problems += work.problems


def _same(before: Tree, now: Tree, path: str) -> bool:
    was, is_now = lookup(before, path), lookup(now, path)
    if was is None or is_now is None:
        return was is is_now
    return was.means() == is_now.means()


def _in_the_way(gone: list[str], made: list[str]) -> bool:
    """`a/b` has to go before `a` can be made, and the other way round: not in one transaction."""
    return any(g.startswith(m + "/") or m.startswith(g + "/") for g in gone for m in made)


def stash_lines(data: bytes) -> list[bytes]:
    return [line + b"\n" for line in data.split(b"\n") if line]
