"""What was written is on disk before what it was made from is forgotten: a power cut may not take both."""

from __future__ import annotations

import ctypes
import os
import sys
from pathlib import Path

from evolver.errors import NotRestoredError


def sync_filesystem(path: Path) -> None:
    """Everything written on the file system of `path` is on disk when this returns. Raise `OSError`."""
    if not sys.platform.startswith("linux"):
        os.sync()
        return
    library = ctypes.CDLL(None, use_errno=True)
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        if library.syncfs(fd) < 0:
            code = ctypes.get_errno()
            raise OSError(code, os.strerror(code), str(path))
    finally:
        os.close(fd)


def settled_on_disk(folders: tuple[Path, ...], vault: Path) -> None:
    """What restores wrote in `folders`, here or in a process before. Raise `NotRestoredError`: then the vault may not be pruned."""
    try:
        for folder in {os.stat(folder).st_dev: folder for folder in folders}.values():
            sync_filesystem(folder)
    except OSError as error:
        message = f"what was put back could not be written to the disk: {error.strerror}"
        raise NotRestoredError(message, f"The baseline is kept in {vault}.") from error
