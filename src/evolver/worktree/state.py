"""Puts back what git keeps beside the control files: HEAD, refs, reflogs, the stash list, index, submodules' and worktrees' metadata.

Refs move in one transaction, each only from the value it had at quiesce (compare-and-swap); what moved since is somebody else's and is
named, never overwritten (hazards 12, 14, 16, 22).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from evolver.crash import crash_point
from evolver.errors import GitError
from evolver.worktree import attribution, refs
from evolver.worktree.anchor import TEMPORARY, Anchor, read_regular
from evolver.worktree.converge import Converge
from evolver.worktree.gitfolder import Kind, kind_of
from evolver.worktree.gitwalk import GitFolders, walk_git
from evolver.worktree.ignorerules import below
from evolver.worktree.manifest import Tree, entries, lookup
from evolver.worktree.refs import BROKEN, STASH, Refs
from evolver.worktree.remove import remove
from evolver.worktree.siblings import moved, siblings
from evolver.worktree.site import Site
from evolver.worktree.snapshot import STASH_LOG, Snapshot
from evolver.worktree.source import Source, stored

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
    unclear: Mapping[str, str] = field(default_factory=dict)  # refs to be put back that may be somebody's: what to anchor first
    modules: Tree | None = None  # accepting: the private folder as submodules are to be, instead of the baseline's
    committed_in: frozenset[str] = frozenset()  # accepted before a kill: git folders of submodules that stay as they are

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
        before, now = self.snapshot.private, folders.private
        missing = [p for p, _ in entries(before, "modules") if kind_of(p) is Kind.STATE and lookup(now, p) is None]
        missing = [p for p in missing if below(p, self.committed_in) is None]
        self._try("submodules", lambda: self._converge(self.site.private, before, missing))
        top, shared, have = self._shared(folders)
        lost = [n for n in self.snapshot.siblings if n not in have.get("worktrees", {})]
        paths = [p for n in lost for p in (f"worktrees/{n}", *(p for p, _ in entries(shared, f"worktrees/{n}")))]
        self._try("worktrees", lambda: self._converge(top, shared, paths))

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
        if deletes or updates:
            updates += attribution.anchors(self.site.git, self.unclear)
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

    def stash_back(self, now: Refs) -> None:
        lines = self.stash_wanted()
        tip = lines[-1].split(b" ", 2)[1].decode() if lines else self.snapshot.refs.refs.get(STASH)
        log = b"".join(lines)
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

    def stash_wanted(self) -> list[bytes]:
        """The user's entries, those made in other worktrees meanwhile, and the one that keeps this attempt."""
        theirs = attribution.stashed_beside(self.site, self.snapshot, siblings(self.site, self.snapshot))
        return attribution.stash_wanted(self.site, self.snapshot, theirs)

    # ------------------------------------------------------------ reflogs, submodules, other worktrees

    def bytes_of(self, tree: Tree, path: str) -> bytes:
        return stored(self.site.vault, tree, path)

    def _shared(self, folders: GitFolders) -> tuple[Path, Tree, Tree]:
        return self.site.common, self.snapshot.shared, folders.common if folders.common is not None else folders.private

    def _logs(self, folders: GitFolders) -> None:
        """A reflog may have grown; what it held is the user's way back to older commits (hazard 17)."""
        areas = {self.site.private: self.snapshot.private, self.site.common: self.snapshot.shared}
        for top, before in areas.items():
            beside = top != self.site.private
            for path, entry in entries(before, "logs"):
                if entry.is_dir or path == STASH_LOG or path.removeprefix("logs/") in self.left:
                    continue
                if kind_of(path, beside=beside) is Kind.SIBLING:
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
        before, now = self.modules if self.modules is not None else self.snapshot.private, folders.private
        wrong = [
            path
            for path in sorted({*(p for p, _ in entries(before, "modules")), *(p for p, _ in entries(now, "modules"))})
            if kind_of(path) is Kind.STATE and not _same(before, now, path)
        ]
        self._converge(self.site.private, before, wrong)

    def _siblings(self, folders: GitFolders) -> None:
        """Metadata of worktrees the attempt added goes; of those it removed comes back. Folders outside stay untouched."""
        top, before, now = self._shared(folders)
        names = {n for n, e in now.get("worktrees", {}).items() if e.is_dir}
        theirs = {sibling.name: sibling for sibling in siblings(self.site, self.snapshot)}
        for name in sorted(names - set(self.snapshot.siblings) - set(theirs)):
            with Anchor(top) as anchor:
                remove(anchor.folder("worktrees"), name)
        wrong = []
        for name in self.snapshot.siblings:
            if name not in names:
                wrong += [f"worktrees/{name}", *(p for p, _ in entries(before, f"worktrees/{name}"))]
            else:
                pointers = (f"worktrees/{name}/{file}" for file in ("gitdir", "commondir", "locked"))
                if name not in theirs or not moved(self.site, self.snapshot, theirs[name]):
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
