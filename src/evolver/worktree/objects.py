"""Writes blobs and trees of an attempt without touching the user's index: temporary indexes, fed by a list of paths."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from evolver.git import Git
from evolver.worktree.anchor import Anchor
from evolver.worktree.manifest import Entry


@dataclass(frozen=True)
class Staged:
    """What an index is to say of one path. `mode` 0: nothing."""

    mode: int
    oid: str


def quoted(path: str) -> bytes:
    """C-style, as git reads it on lines."""
    out = bytearray(b'"')
    for byte in os.fsencode(path):
        if byte in b'"\\':
            out += b"\\" + bytes((byte,))
        elif 0x20 <= byte < 0x7F:
            out.append(byte)
        else:
            out += b"\\%03o" % byte
    return bytes(out + b'"')


@dataclass(frozen=True)
class Hashed:
    """Path -> what an index says of it; path -> why it cannot be added; `failed`: why nothing can be added as git would do it."""

    staged: dict[str, Staged]
    refused: dict[str, str]
    failed: str = ""

    @property
    def why_not(self) -> str:
        """In words; empty: all of it can be added."""
        if self.failed:
            return self.failed
        return next((f"{path!r} cannot be added: {why}" for path, why in self.refused.items()), "")


def hash_files(git: Git, anchor: Anchor, files: Mapping[str, Entry], scratch: Path) -> Hashed:
    """Regular files and symlinks as they lie there: no filters, nothing of the user's configuration."""
    readable, refused = lent(anchor, files)
    regular = [p for p in readable if files[p].is_file]
    links = [p for p in readable if files[p].is_link]
    result: dict[str, Staged] = {}
    if regular:
        for path, oid in zip(regular, _blobs(git, regular), strict=True):
            result[path] = Staged(0o100755 if files[path].mode & stat.S_IXUSR else 0o100644, oid)
    if links:
        names = []
        for number, path in enumerate(links):
            target = scratch / f"link.{number}"
            target.write_bytes(anchor.readlink(path))
            names.append(target)
        for path, oid in zip(links, _blobs(git, [str(n) for n in names]), strict=True):
            result[path] = Staged(0o120000, oid)
        for name in names:
            name.unlink()
    return Hashed(result, refused)


def _blobs(git: Git, paths: list[str]) -> list[str]:
    done = git.run("hash-object", "-w", "--no-filters", "--stdin-paths", input=b"\n".join(quoted(p) for p in paths) + b"\n")
    return done.text.split()


def lent(anchor: Anchor, files: Mapping[str, Entry]) -> tuple[list[str], dict[str, str]]:
    """Lends permissions where the owner took them away. What stays unreadable (another user's file) is named, not read."""
    readable, refused = [], {}
    for path, entry in files.items():
        try:
            if entry.is_file:
                os.close(anchor.open_file(path))
            else:
                anchor.readlink(path)
        except OSError as error:
            refused[path] = error.strerror or str(error)
        else:
            readable.append(path)
    return readable, refused


class TemporaryIndex:
    """An index of our own. A context manager: the file goes away, unless it was taken."""

    def __init__(self, git: Git, path: Path, seed: bytes | None = None) -> None:
        self.git, self.path = git, path
        self._clean()
        if seed:
            path.write_bytes(seed)

    def __enter__(self) -> TemporaryIndex:
        return self

    def __exit__(self, *_: object) -> None:
        self._clean()

    def _clean(self) -> None:
        for path in (self.path, self.path.with_name(self.path.name + ".lock")):
            with suppress(FileNotFoundError):
                path.unlink()

    @property
    def env(self) -> dict[str, str]:
        return {"GIT_INDEX_FILE": str(self.path)}

    def read_tree(self, tree: str) -> None:
        self.git.run("read-tree", tree, env=self.env)

    def stage(self, wanted: Mapping[str, Staged], zero: str) -> None:
        """Removals first: a file may take a folder's place."""
        if not wanted:
            return
        lines = []
        for path, staged in sorted(wanted.items(), key=lambda item: item[1].mode != 0):
            mode = b"%o" % staged.mode if staged.mode else b"0"
            lines.append(mode + b" " + (staged.oid if staged.mode else zero).encode() + b"\t" + os.fsencode(path))
        self.git.run("update-index", "-z", "--replace", "--index-info", input=b"\0".join(lines) + b"\0", env=self.env)

    def write_tree(self, *, missing_ok: bool = False) -> str:
        return self.git.text("write-tree", *(("--missing-ok",) if missing_ok else ()), env=self.env)


def empty_tree(git: Git) -> str:
    return git.run("hash-object", "-t", "tree", "-w", "--stdin", input=b"").text


def commit_tree(git: Git, tree: str, parents: Iterable[str], message: str) -> str:
    """The identity is the user's, from config or GIT_COMMITTER_*."""
    wanted = [part for parent in parents for part in ("-p", parent)]
    return git.run("commit-tree", *wanted, "-F", "-", tree, input=message.encode("utf-8", "surrogateescape")).text
