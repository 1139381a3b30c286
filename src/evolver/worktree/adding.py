"""What `git add` makes of files, in the user's own configuration, without his index.

git decides: clean filters, line ends, encodings, `core.fileMode`, `core.symlinks`. Part of that it reads from the index (a file that has
CRLF there is not converted; an executable bit or a link that the file system cannot show), so a small index is made that says of these
paths, and of nothing else, what the user's does: the cost follows the list.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path

from evolver.errors import GitError
from evolver.git import Git
from evolver.worktree.anchor import Anchor
from evolver.worktree.ignorerules import ATTRIBUTES
from evolver.worktree.index import GITLINK, Index, built, parse
from evolver.worktree.manifest import Entry, Tree, join, lookup, split
from evolver.worktree.objects import Hashed, Staged, TemporaryIndex, hash_files, lent


def known_to_index(before: Index, theirs: Index | None, now: Tree, paths: Iterable[str]) -> dict[str, Staged]:
    """What the index says that git may ask: of the paths the baseline's bytes and the attempt's mode (`git add --chmod`), and the
    attributes of folders above that a sparse checkout left out."""
    known: dict[str, Staged] = {}
    folders: set[str] = set()
    for path in paths:
        was = before.entries.get(path)
        later = theirs.entries.get(path) if theirs is not None else None
        entry, mode = was or later, (later or was)
        if entry is not None and mode is not None and GITLINK not in (entry.mode, mode.mode):
            known[path] = Staged(mode.mode, entry.oid)
        folder = split(path)[0]
        while folder not in folders:
            folders.add(folder)
            folder = split(folder)[0]
    for folder in folders:
        path = join(folder, ATTRIBUTES)
        entry = before.entries.get(path)
        if entry is not None and entry.hidden and entry.mode != GITLINK and lookup(now, path) is None:
            known.setdefault(path, Staged(entry.mode, entry.oid))
    return known


def add_files(
    git: Git, anchor: Anchor, files: Mapping[str, Entry], scratch: Path, known: Mapping[str, Staged], hash_size: int
) -> Hashed:
    """When git fails (a clean filter does, an encoding is not to be had), the bytes as they lie there, and why. Raise `GitError` when
    these cannot be had either."""
    readable, refused = lent(anchor, files)
    if not readable:
        return Hashed({}, refused)
    with TemporaryIndex(git, scratch / "add-index", built({p: (s.mode, s.oid) for p, s in known.items()}, hash_size)) as index:
        names = b"".join(os.fsencode(path) + b"\0" for path in readable)
        try:
            git.run("update-index", "--add", "--replace", "-z", "--stdin", input=names, env=index.env)
        except GitError as error:
            if error.disk_full:
                raise
            said = error.message.partition(": exit ")[2].partition(": ")[2] or error.message
            return replace(hash_files(git, anchor, files, scratch), failed=f"git cannot add it: {said}")
        entries = parse(index.path.read_bytes(), hash_size).entries
    staged = {path: Staged(entries[path].mode, entries[path].oid) for path in readable if path in entries}
    refused |= {path: "git takes no file of this name" for path in readable if path not in entries}
    return Hashed(staged, refused)
