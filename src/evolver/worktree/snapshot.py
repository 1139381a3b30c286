"""A baseline in memory and on disk: the manifests of the worktree and of git's folders, refs, index, and what was left out."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from evolver.errors import EvolverError
from evolver.worktree.gitfolder import Kind, kind_of
from evolver.worktree.index import Index
from evolver.worktree.manifest import LEFT, Entry, Folder, Tree
from evolver.worktree.refs import Refs
from evolver.worktree.values import Baseline

VERSION = 4
BARE_LINKS = 3  # the version before: a link's content was its target alone
STASH_LOG = "logs/refs/stash"

_Row = tuple[bytes, int, int, int, int, int, int, int, bytes]
_Rows = list[tuple[bytes, list[_Row]]]


@dataclass(frozen=True)
class DotGit:
    """What `.git` in the worktree was: its type, inode and device, a gitfile's bytes; and the inode of git's folder."""

    mode: int
    ino: int
    dev: int
    data: bytes
    folder_ino: int
    common_ino: int

    @classmethod
    def of(cls, root: Path, git_dir: Path, common: Path) -> DotGit | None:
        """None when it is not there."""
        try:
            st = os.lstat(root / ".git")
            data = b""
            if os.path.islink(root / ".git"):
                data = os.fsencode(os.readlink(root / ".git"))
            elif os.path.isfile(root / ".git"):
                data = (root / ".git").read_bytes()
            return cls(st.st_mode & 0o170000, st.st_ino, st.st_dev, data, os.stat(git_dir).st_ino, os.stat(common).st_ino)
        except OSError:
            return None


@dataclass
class Snapshot:
    """Everything the user had. Trees share unchanged folders with the snapshot before."""

    pre_ref: str
    head_tree: str  # pre_ref's tree
    refs: Refs
    work: Tree
    private: Tree
    common: Tree | None  # None: the private folder is the common one
    index: Index
    dotgit: DotGit
    opaque: frozenset[str] = frozenset()  # left out: noted, never entered
    left: tuple[str, ...] = ()
    ignored: frozenset[str] = frozenset()  # topmost ignored paths
    dirty: frozenset[str] = frozenset()  # tracked paths with uncommitted edits of the user
    staged: bool = False  # the index is not HEAD's tree
    siblings: tuple[str, ...] = ()  # linked worktrees that existed
    algorithm: str = "sha1"
    partial: bool = False
    root_mode: int = 0  # of the worktree's own folder
    mounts: frozenset[str] = frozenset()  # mount points in it
    work_trusted: int = 0
    taken_ns: int = 0  # what has a ctime before this was there at the baseline
    git_trusted: int = 0
    iteration_id: str = ""
    fingerprint: str = ""
    own_stash: tuple[bytes, ...] = ()  # lines this iteration's preserved attempt added on top of the user's stash list
    digests: dict[str, tuple[Folder, bytes]] = field(default_factory=dict)

    @property
    def shared(self) -> Tree:
        return self.common if self.common is not None else self.private

    @property
    def hash_size(self) -> int:
        return 20 if self.algorithm == "sha1" else 32

    def tracked(self, path: str) -> bool:
        return path in self.index.entries

    def is_ignored(self, path: str) -> bool:
        """Below one of the topmost ignored paths of the baseline."""
        if path in self.ignored:
            return True
        at = path.find("/")
        while at > 0:
            if path[:at] in self.ignored:
                return True
            at = path.find("/", at + 1)
        return False

    def value(self, vault: Path) -> Baseline:
        files = sum(len(folder) for folder in self.work.values())
        return Baseline(self.fingerprint, self.pre_ref, self.refs.branch, files, self.left, vault)

    def seal(self) -> None:
        """Compute the fingerprint: everything a user would call the same, stat data aside."""
        total = hashlib.sha256(f"evolver baseline {VERSION}\n{self.root_mode:o}\n{self.refs.head}\n".encode("utf-8", "surrogateescape"))
        total.update("".join(f"{path}\0" for path in sorted(self.mounts)).encode("utf-8", "surrogateescape"))
        for name in sorted(self.refs.refs):
            total.update(f"{name} {self.refs.refs[name]}\n".encode("utf-8", "surrogateescape"))
        total.update(self.index.meaning().encode())
        for folder in sorted(self.work):
            total.update(self._digest(folder, self.work[folder]))
        for tree, beside in ((self.private, False), (self.common or {}, True)):
            for path, entry in control_entries(tree, beside=beside):
                total.update(repr((path, entry.mode, entry.content)).encode("utf-8", "surrogateescape"))
        self.fingerprint = total.hexdigest()

    def _digest(self, path: str, folder: Folder) -> bytes:
        cached = self.digests.get(path)
        if cached is not None and cached[0] is folder:
            return cached[1]
        hasher = hashlib.sha256(os.fsencode(path) + b"\0")
        for name in sorted(folder):
            entry = folder[name]
            mode, uid, gid, content = entry.means() if entry.content != LEFT else (entry.ino, 0, 0, LEFT)  # by which it is found again
            hasher.update(b"%s\0%o %d %d %d:%s" % (os.fsencode(name), mode, uid, gid, len(content), content))
        digest = hasher.digest()
        self.digests[path] = (folder, digest)
        return digest


def control_entries(tree: Tree, *, beside: bool) -> Iterator[tuple[str, Entry]]:
    """What of git's folder is compared byte by byte, in order. The reflog of the stash is the user's list."""
    for folder in sorted(tree):
        for name in sorted(tree[folder]):
            path = f"{folder}/{name}" if folder else name
            entry = tree[folder][name]
            if entry.is_dir:
                continue
            kind = kind_of(path, beside=beside)
            module = path.startswith("modules/") and kind is not Kind.SIBLING
            if kind in (Kind.CONTROL, Kind.QUIET) or path == STASH_LOG or module:
                yield path, entry


# ---------------------------------------------------------------- on disk


class _Stored(msgspec.Struct, array_like=True):
    version: int
    pre_ref: str
    head_tree: str
    head: bytes
    refs: list[tuple[bytes, bytes]]
    work: _Rows
    private: _Rows
    common: _Rows | None
    dotgit: tuple[int, int, int, bytes, int, int]
    opaque: list[bytes]
    left: list[str]
    ignored: list[bytes]
    dirty: list[bytes]
    staged: bool
    siblings: list[bytes]
    algorithm: str
    partial: bool
    root_mode: int
    mounts: list[bytes] = []
    taken_ns: int = 0


def _rows(tree: Tree) -> _Rows:
    encode = os.fsencode
    return [(encode(folder), [(encode(name), *entry) for name, entry in content.items()]) for folder, content in tree.items()]


def _tree(rows: _Rows, version: int) -> Tree:
    decode = os.fsdecode
    tree = {decode(folder): {decode(row[0]): Entry(*row[1:]) for row in content} for folder, content in rows}
    if version == BARE_LINKS:
        for folder in tree.values():
            links = {name: e._replace(content=b"l" + e.content) for name, e in folder.items() if e.is_link and e.content != LEFT}
            folder.update(links)
    return tree


def encode(snapshot: Snapshot) -> bytes:
    en = os.fsencode
    d = snapshot.dotgit
    stored = _Stored(
        VERSION,
        snapshot.pre_ref,
        snapshot.head_tree,
        en(snapshot.refs.head),
        [(en(n), en(v)) for n, v in snapshot.refs.refs.items()],
        _rows(snapshot.work),
        _rows(snapshot.private),
        _rows(snapshot.common) if snapshot.common is not None else None,
        (d.mode, d.ino, d.dev, d.data, d.folder_ino, d.common_ino),
        [en(p) for p in snapshot.opaque],
        [p.encode("utf-8", "backslashreplace").decode() for p in snapshot.left],
        [en(p) for p in snapshot.ignored],
        [en(p) for p in snapshot.dirty],
        snapshot.staged,
        [en(p) for p in snapshot.siblings],
        snapshot.algorithm,
        snapshot.partial,
        snapshot.root_mode,
        [en(p) for p in snapshot.mounts],
        snapshot.taken_ns,
    )
    return msgspec.msgpack.encode(stored)


def decode(data: bytes, index_bytes: Callable[[bytes], bytes]) -> Snapshot:
    """`index_bytes(content)` gives the bytes an entry's content names. Raise `EvolverError` on data of another version."""
    from evolver.worktree.index import parse

    try:
        s = msgspec.msgpack.decode(data, type=_Stored)
    except msgspec.MsgspecError as error:
        raise EvolverError(f"the stored baseline cannot be read: {error}", "It was written by another version of evolver.") from error
    if s.version not in (BARE_LINKS, VERSION):
        raise EvolverError(f"the stored baseline has version {s.version}, not {VERSION}", "It was written by another version of evolver.")
    de = os.fsdecode
    private = _tree(s.private, s.version)
    hash_size = 20 if s.algorithm == "sha1" else 32
    entry = private.get("", {}).get("index")
    raw = index_bytes(entry.content) if entry is not None else b""
    return Snapshot(
        pre_ref=s.pre_ref,
        head_tree=s.head_tree,
        refs=Refs(de(s.head), {de(n): de(v) for n, v in s.refs}),
        work=_tree(s.work, s.version),
        private=private,
        common=_tree(s.common, s.version) if s.common is not None else None,
        index=parse(raw, hash_size),
        dotgit=DotGit(*s.dotgit),
        opaque=frozenset(map(de, s.opaque)),
        left=tuple(s.left),
        ignored=frozenset(map(de, s.ignored)),
        dirty=frozenset(map(de, s.dirty)),
        staged=s.staged,
        siblings=tuple(map(de, s.siblings)),
        algorithm=s.algorithm,
        partial=s.partial,
        root_mode=s.root_mode,
        mounts=frozenset(map(de, s.mounts)),
        taken_ns=s.taken_ns,
    )


__all__ = ["STASH_LOG", "DotGit", "Snapshot", "control_entries", "decode", "encode"]
