"""Did anybody touch the worktree since a walk began? Asked of inotify for the moment between two iterations (Linux only).

So that one walk can serve as the end of an iteration and the beginning of the next. It only ever saves a walk: where it cannot be sure
(no inotify, too few watches, an event, a queue that overflowed) the answer is no. A write through mmap or through a hard link that lies
elsewhere raises no event; what such a writer does in these milliseconds counts as the attempt's, as anything does a moment later.
"""

from __future__ import annotations

import ctypes
import os
import sys
import threading
import time
from collections.abc import Iterable
from pathlib import Path

_MASK = 0x2 | 0x4 | 0x8 | 0x40 | 0x80 | 0x100 | 0x200 | 0x400 | 0x800  # modified, attributes, closed, moved, made, removed
_ONLYDIR_NOFOLLOW = 0x01000000 | 0x02000000
_FLAGS = os.O_NONBLOCK | os.O_CLOEXEC
MOST = 60_000  # folders: above, the watches cost as much as the walk they save
SECONDS = 2.0  # older than this, a walk is better


class Quiet:
    """Watches folders from its making on. `close` it when the answer is no longer wanted."""

    def __init__(self, root: Path, folders: Iterable[str]) -> None:
        self._fd = -1
        self._since = time.monotonic()
        if not sys.platform.startswith("linux"):
            return
        names = list(folders)
        if len(names) > MOST:
            return
        libc = ctypes.CDLL(None, use_errno=True)
        fd = libc.inotify_init1(_FLAGS)
        if fd < 0:
            return
        base = os.fsencode(root)
        for name in names:
            path = base + b"/" + os.fsencode(name) if name else base
            if libc.inotify_add_watch(fd, path, _MASK | _ONLYDIR_NOFOLLOW) < 0:
                os.close(fd)
                return
        self._fd = fd

    def undisturbed(self) -> bool:
        """Surely nothing happened. True once at most: it ends the watch."""
        if self._fd < 0 or time.monotonic() - self._since > SECONDS:
            self.close()
            return False
        try:
            return not os.read(self._fd, 4096)
        except BlockingIOError:
            return True
        except OSError:
            return False
        finally:
            self.close()

    def close(self) -> None:
        if self._fd >= 0:
            # Giving thousands of watches back takes the kernel a while, and nobody waits for it.
            threading.Thread(target=os.close, args=(self._fd,), daemon=True).start()
            self._fd = -1

    def __del__(self) -> None:
        if self._fd >= 0:  # no thread here: the interpreter may be going down
            os.close(self._fd)
            self._fd = -1
