"""Orphans come to us instead of init, so that a daemon a step left behind is found and killed. Linux only.

Elsewhere `adopting` does nothing and says so by yielding False; what a step left is then found by its session and by the
run's marker in its environment, which a process that clears its environment and starts a session of its own escapes.
"""

from __future__ import annotations

import contextlib
import ctypes
import sys
import threading
from collections.abc import Iterator

PR_SET_CHILD_SUBREAPER = 36
PR_GET_CHILD_SUBREAPER = 37

_lock = threading.Lock()
_users = 0
_before = 0


def _prctl(option: int, argument: object) -> int:
    library = ctypes.CDLL(None, use_errno=True)
    return int(library.prctl(option, argument, 0, 0, 0))


def _get() -> int:
    value = ctypes.c_int(0)
    return value.value if _prctl(PR_GET_CHILD_SUBREAPER, ctypes.byref(value)) == 0 else 0


@contextlib.contextmanager
def adopting() -> Iterator[bool]:
    """While inside, this process adopts the orphans among its descendants. Put back afterwards: evolver may be a library."""
    global _users, _before  # the kernel has one flag for the whole process
    if sys.platform != "linux":
        yield False
        return
    with _lock:
        if _users == 0:
            _before = _get()
        _users += 1
        works = _prctl(PR_SET_CHILD_SUBREAPER, 1) == 0
    try:
        yield works
    finally:
        with _lock:
            _users -= 1
            if _users == 0:
                _prctl(PR_SET_CHILD_SUBREAPER, _before)
