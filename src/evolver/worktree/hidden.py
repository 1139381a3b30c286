"""Edits that git was told not to look at: `update-index --assume-unchanged` and `--skip-worktree`.

`git status` and `git diff` call such a file clean, so whoever asks them whether a file holds somebody's work must ask here too.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from evolver.git import Git
from evolver.worktree.objects import TemporaryIndex

_AT_ONCE = 500  # paths in one command line


def hidden_edits(git: Git) -> frozenset[bytes]:
    """Flagged files that are in the worktree and differ from HEAD. Raise `GitError`."""
    listed = git.run("ls-files", "-v", "-z").fields()
    flagged = [line[2:] for line in listed if line[:1].islower() or line[:1] == b"S"]
    top = os.fsencode(git.root)
    present = [path for path in flagged if os.path.lexists(os.path.join(top, path))]  # bytes
    if not present:
        return frozenset()
    found: set[bytes] = set()
    # An index without flags and without stat data: git has to compare contents, through the user's filters.
    plain = git.but(options=(*git.options, "core.sparseCheckout=false", "core.ignoreStat=false"))
    with tempfile.TemporaryDirectory(prefix="evolver-hidden-") as scratch, TemporaryIndex(plain, Path(scratch) / "index") as index:
        index.read_tree("HEAD")
        for start in range(0, len(present), _AT_ONCE):
            paths = present[start : start + _AT_ONCE]
            done = plain.run("diff", "--name-only", "-z", "--no-renames", "--ignore-submodules", "HEAD", "--", *paths, env=index.env)
            found.update(done.fields())
    return frozenset(found)
