"""The lifeboat's copy of the stream: outside the worktree, so that it outlives a deleted `.git`.

Hard links where the filesystem is the same (nothing to keep up to date), copies where not. A lifeboat that cannot be
written is no reason to stop a run: the log itself is still there and checked.
"""

from __future__ import annotations

import os
import shutil
import threading
from pathlib import Path

from evolver.events import head as heads
from evolver.events import paths


class Mirror:
    """One log's files in `directory`. Every method leaves the log itself alone."""

    def __init__(self, directory: Path, path: Path) -> None:
        self._directory = directory
        self._path = path
        self._copying = False  # False: hard links
        self._broken = False
        self._pruned = False

    @property
    def stream(self) -> Path:
        return self._directory / self._path.name

    def read_head(self) -> heads.Head | None:
        return heads.read(paths.head_path(self.stream))

    def write_head(self, head: heads.Head) -> None:
        try:
            heads.write(paths.head_path(self.stream), head)
        except FileNotFoundError:
            self.attach()
        except OSError:
            self._broken = True

    def attach(self) -> None:
        """Make the lifeboat hold every segment that exists now."""
        if self._pruned:
            return
        try:
            self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            late: list[Path] = []
            for file in paths.segments(self._path):
                if not self._link(file):
                    self._copying = True
                    if file == self._path:
                        _copy(file, self.stream)
                    elif _size(self._directory / file.name) != _size(file):
                        late.append(file)
            if late:  # gigabytes perhaps: a run must not start later because its history is long
                threading.Thread(target=self._copy_late, args=(late,), name="lifeboat", daemon=True).start()
        except OSError:
            self._broken = True

    def appended(self, line: bytes) -> None:
        """Nothing to do for hard links."""
        if not self._copying or self._broken or self._pruned:
            return
        try:
            fd = os.open(self.stream, os.O_WRONLY | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK)
            try:
                os.write(fd, line)
            finally:
                os.close(fd)
        except FileNotFoundError:
            self.attach()
        except OSError:
            self._broken = True

    def rotated(self, closed: Path) -> None:
        """The open segment became `closed`, and there is a new one."""
        try:
            if self._copying and not self._broken and not self._pruned:
                self.stream.rename(self._directory / closed.name)
        except OSError:
            pass  # attach copies what is missing
        self.attach()

    def put_back(self) -> list[Path]:
        """Give the log's folder every segment it lacks; the paths that were made. Raise `OSError`."""
        made: list[Path] = []
        self._path.parent.mkdir(parents=True, exist_ok=True)
        for file in paths.segments(self.stream):
            target = self._path.with_name(file.name)
            if target.exists():
                continue
            try:
                os.link(file, target, follow_symlinks=False)
            except OSError:
                _copy(file, target)
            made.append(target)
        return made

    def prune(self) -> None:
        """Forget the stream, keep the head: the run ended verified."""
        for file in paths.segments(self.stream):
            file.unlink(missing_ok=True)
        self._pruned = True

    def _link(self, file: Path) -> bool:
        target = self._directory / file.name
        try:
            if target.exists() and target.samefile(file):
                return True
            fresh = target.with_name(f"{target.name}.new")
            fresh.unlink(missing_ok=True)
            os.link(file, fresh, follow_symlinks=False)
            fresh.rename(target)
        except OSError:
            return False
        return True

    def _copy_late(self, files: list[Path]) -> None:
        for file in files:
            try:
                _copy(file, self._directory / file.name)
            except OSError:
                return


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return -1


def _copy(source: Path, target: Path) -> None:
    fresh = target.with_name(f"{target.name}.new")
    shutil.copyfile(source, fresh)
    fresh.rename(target)
