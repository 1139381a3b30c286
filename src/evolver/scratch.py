"""Files of a run's scratch folder: steps may write there, so none of them is what it was."""

from __future__ import annotations

import os
import shutil
from pathlib import Path


def put(path: Path, text: str) -> None:
    """Write a file anew, whatever a step has put in its place.

    Never through a link: a step in a sandbox cannot write to the user's files, and must not have it done by us.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    remove(path)
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    with open(fd, "wb") as file:
        file.write(text.encode("utf-8", "surrogateescape"))


def remove(path: Path) -> None:
    """Whatever it is; a link itself and not what it points to."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)
