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

ABSENT = "0 {zero}"


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


def hash_files(git: Git, anchor: Anchor, files: Mapping[str, Entry], scratch: Path, *, filters: bool = True) -> dict[str, Staged]:
    """Write regular files and symlinks as blobs; path -> what an index says of it. Clean filters are the user's (the guard has
    put config back). A file that cannot be read raises."""
    regular = [p for p, e in files.items() if e.is_file]
    links = [p for p, e in files.items() if e.is_link]
    result: dict[str, Staged] = {}
    if regular:
        for path in regular:
            os.close(anchor.open_file(path))  # lends permissions where the owner took them away
        options = () if filters else ("--no-filters",)
        done = git.run("hash-object", "-w", *options, "--stdin-paths", input=b"\n".join(quoted(p) for p in regular) + b"\n")
        for path, oid in zip(regular, done.text.split(), strict=True):
            mode = 0o100755 if files[path].mode & stat.S_IXUSR else 0o100644
            result[path] = Staged(mode, oid)
    if links:
        names = []
        for number, path in enumerate(links):
            target = scratch / f"link.{number}"
            target.write_bytes(anchor.readlink(path))
            names.append(target)
        done = git.run("hash-object", "-w", "--no-filters", "--stdin-paths", input=b"\n".join(quoted(str(n)) for n in names) + b"\n")
        for path, oid in zip(links, done.text.split(), strict=True):
            result[path] = Staged(0o120000, oid)
        for name in names:
            name.unlink()
    return result


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
