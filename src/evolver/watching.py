"""`[guard] watch`: an agent that writes to a protected path is stopped at that moment, not after half an hour more.

Only saves time and money: what was written is found by the guard in any case, and whatever the watch cannot see (a path that
was replaced by way of its folder) as well.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from evolver.guard import protected_matcher
from evolver.interrupts import Interrupts

READY_S = 5.0  # a tree too large to be watched in this time is worked in unwatched, guarded as ever
_POLL_MS = 200


class Watch:
    """Looks for writes below `root` while a step runs. `hit` is the path that stopped it."""

    def __init__(self, root: Path, protected: tuple[str, ...], on_hit: Callable[[], None]) -> None:
        self._root = os.fsencode(root)
        self._matches = protected_matcher(protected)
        self._on_hit = on_hit
        self._ended, self._ready = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._run, args=(root,), name="guard-watch", daemon=True)
        self.hit = ""

    def start(self) -> None:
        """Returns when writes are seen from here on."""
        self._thread.start()
        self._ready.wait(READY_S)

    def stop(self) -> None:
        self._ended.set()
        self._thread.join()

    def _run(self, root: Path) -> None:
        from watchfiles import watch

        changes = watch(
            root,
            watch_filter=lambda _, path: self._is_protected(path),
            debounce=20,
            step=10,
            rust_timeout=_POLL_MS,
            yield_on_timeout=True,
            stop_event=self._ended,
            raise_interrupt=False,
            ignore_permission_denied=True,
        )
        try:
            for found in changes:  # the first comes, empty, once the tree is watched
                self._ready.set()
                if found and not self.hit:
                    self.hit = min(os.path.relpath(path, root) for _, path in found)
                    self._on_hit()
        except OSError:  # more folders than the system will watch: the guard looks afterwards
            self._ready.set()

    def _is_protected(self, path: str) -> bool:
        name = os.path.relpath(os.fsencode(path), self._root)
        return not name.startswith((b".git/", b"..")) and self._matches(name)


@contextmanager
def watching(root: Path, protected: tuple[str, ...], interrupts: Interrupts) -> Iterator[Watch]:
    """Watch while the block runs; a hit cancels the step that waits on `interrupts`."""
    watch = Watch(root, protected, interrupts.cancel)
    watch.start()
    try:
        yield watch
    finally:
        watch.stop()
