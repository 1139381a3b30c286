"""Following the stream, and waiting for a file to change, through watchfiles.

A notification can be missed (the folder is replaced under the watch, a network filesystem), so every wait also ends after
`NET_MS`; what it then costs is one `stat`.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from evolver.events.reader import Cursor, Filter, Record
from evolver.events.tailer import Tailer

NET_MS = 700
Stop = Callable[[], bool]


class _StopEvent:
    """What watchfiles asks for, from a plain callable."""

    def __init__(self, stop: Stop) -> None:
        self._stop = stop

    def is_set(self) -> bool:
        return self._stop()


def changes(folder: Path, stop: Stop) -> Iterator[None]:
    """One item at once, then one each time something in the folder changed, until `stop` says so."""
    from watchfiles import watch

    while not stop():
        yield
        if not folder.is_dir():  # deleted with `.git`; it comes back
            time.sleep(NET_MS / 4000)
            continue
        try:
            for _ in watch(
                folder,
                watch_filter=None,
                recursive=False,
                step=10,
                debounce=40,
                rust_timeout=NET_MS,
                yield_on_timeout=True,
                stop_event=_StopEvent(stop),
                ignore_permission_denied=True,
            ):
                yield
                if stop() or not folder.is_dir():
                    break
            else:
                return
        except FileNotFoundError:
            continue
        except (OSError, RuntimeError):  # no inotify instance or watch left for this user (watchfiles raises both)
            time.sleep(NET_MS / 1000)


def wait_until(done: Callable[[], bool], folder: Path, stop: Stop) -> bool:
    """Block until `done`, looked at whenever something in `folder` changes. False: `stop` came first."""
    for _ in changes(folder, stop):
        if done():
            return True
    return done()


def wait_for_removal(lock: Path, stop: Stop) -> bool:
    """Block until the file is gone; what `run --wait` does with the resume lock. False: `stop` came first."""
    return wait_until(lambda: not os.path.lexists(lock), lock.parent, stop)


def follow(
    path: Path, wanted: Filter, *, stop: Stop, after: Cursor | None = None, note: Callable[[str], None] | None = None
) -> Iterator[Record]:
    """What is there, then what comes. Whole lines only; rotation loses and repeats nothing; a cut log is named and read on."""
    reader = Tailer(path, note or (lambda _: None))
    for _ in changes(path.parent, stop):
        for record in reader.new():
            if (after is None or after.is_past(record.envelope)) and wanted.wants(record.envelope):
                yield record
