"""Which files are byte for byte the blob git has for them, without reading them: stat data match the index, and nothing converts."""

from __future__ import annotations

from evolver.git import Git
from evolver.worktree.index import INTENT_TO_ADD, Index, IndexEntry
from evolver.worktree.manifest import Entry
from evolver.worktree.snapshot import Snapshot

_M32 = 0xFFFFFFFF


class Blobs:
    """Asked per file by a baseline being taken."""

    def __init__(self, git: Git, index: Index, known: Snapshot | None) -> None:
        self.algorithm = "sha1" if index.hash_size == 20 else "sha256"
        if known is not None:
            self.partial = known.partial
        else:
            promisor = git.run("config", "--get-regexp", r"^(remote\..*\.promisor|extensions\.partialclone)$", check=False)
            self.partial = promisor.ok
        self._converting = self._converts(git, index)

    @staticmethod
    def _converts(git: Git, index: Index) -> bool:
        """Can git's bytes and the file's differ anywhere here: line ends, filters, encodings, $Id$ (kinds 10, 22, 28)?"""
        if git.run("config", "--get", "core.autocrlf", check=False).text not in ("", "false"):
            return True
        if any(path == ".gitattributes" or path.endswith("/.gitattributes") for path in index.entries):
            return True
        attributes = [git.root / ".gitattributes", git.git_dir / "info/attributes"]
        attributes += [git.root / o.split("=", 1)[1] for o in git.options if o.startswith("core.attributesFile=")]
        for path in attributes:
            try:
                if path.stat().st_size:
                    return True
            except OSError:
                continue
        return False

    def surely(self, path: str, entry: Entry, staged: IndexEntry, index_mtime_ns: int) -> bool:
        """The file has not been written since git compared it with its blob. A file with attributes is not sure: read it."""
        if self._converting or staged.hidden or staged.flags & INTENT_TO_ADD or entry.mtime_ns >= index_mtime_ns:
            return False
        ctime, ctime_ns, mtime, mtime_ns, _, ino, _, _, _, size = staged.stat
        return (
            (ctime, ctime_ns) == (entry.ctime_ns // 1_000_000_000 & _M32, entry.ctime_ns % 1_000_000_000)
            and (mtime, mtime_ns) == (entry.mtime_ns // 1_000_000_000 & _M32, entry.mtime_ns % 1_000_000_000)
            and ino == entry.ino & _M32
            and size == entry.size & _M32
        )
