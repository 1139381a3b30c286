"""Makes the repository that `evolver demo` works on: a small heuristic, its tests, a deterministic score."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

from evolver.errors import UsageError
from evolver.git import Git
from evolver.loopfile import builtin_loops


def scratch(folder: Path | None) -> Path:
    """An empty folder to work in: `folder`, made if need be, or a temporary one. Raise `UsageError` when it holds anything."""
    if folder is None:
        return Path(tempfile.mkdtemp(prefix="evolver-demo-")).resolve()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if any(folder.iterdir()):
            raise UsageError(f"{folder} is not empty", "Name a folder that is empty or new; the demo makes a repository there.")
    except OSError as error:
        raise UsageError(
            f"{folder} cannot be used: {error.strerror}", "Name a folder that is empty or does not exist."
        ) from error
    return folder.resolve()


def make_repository(root: Path) -> None:
    """Put the demo's files into the empty folder `root` and commit them."""
    shutil.copytree(builtin_loops() / "demo" / "repo", root, dirs_exist_ok=True, ignore=shutil.ignore_patterns("__pycache__"))
    (root / ".gitignore").write_text("__pycache__/\n", encoding="utf-8")
    git = Git.at(root, root / ".git")
    git.run("init", "--quiet", "--initial-branch=main")
    # An identity of its own: the demo must run on a machine where git was never set up.
    git.run("config", "user.name", "evolver demo")
    git.run("config", "user.email", "demo@evolver.invalid")
    git.run("add", "--all")
    git.run("commit", "--quiet", "--message", "A heuristic that puts items where most room is left")
