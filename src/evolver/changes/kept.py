"""A prepared rollback on disk, so that a loop killed between its restore and the log's commands is finished by the next run.

The restore removes log and backups, so whoever comes later has only this: the log's bytes, where in the vault file each backup
is, and what the attempt had left. It lies in evolver's state folder, complete or not at all.
"""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass
from pathlib import Path

import msgspec

from evolver.changes.vault import Kept

_INDEX = "prepared.json"
_BYTES = "backups"


class Index(msgspec.Struct, frozen=True):
    """What is needed to go on. `fingerprint`: of the baseline it belongs to."""

    fingerprint: str
    log: bytes
    backups: dict[str, tuple[int, int, str, int]]  # an entry's field: offset, size, sha256, mode
    present: tuple[str, ...]  # fields of created files and artifacts that were there


@dataclass(frozen=True, slots=True)
class Keep:
    """The folder of one kept rollback. Only the holder of the run lock uses it."""

    folder: Path
    fingerprint: str

    @property
    def vault(self) -> Path:
        return self.folder / _BYTES

    def begin(self) -> None:
        """Empty it. Raise `OSError`."""
        self.forget()
        self.folder.mkdir(mode=0o700, parents=True)

    def save(self, log: bytes, backups: dict[str, Kept], present: tuple[str, ...]) -> None:
        """Complete it; the vault file is on disk already. Raise `OSError`."""
        found = {name: (k.offset, k.size, k.sha256, k.mode) for name, k in backups.items()}
        data = msgspec.json.encode(Index(self.fingerprint, log, found, present))
        temporary = self.folder / f"{_INDEX}.tmp"
        with open(temporary, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        temporary.rename(self.folder / _INDEX)
        fd = os.open(self.folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)

    def load(self) -> Index | None:
        """None: there is none, or it is of another baseline."""
        try:
            found = msgspec.json.decode((self.folder / _INDEX).read_bytes(), type=Index)
        except (OSError, msgspec.DecodeError):
            return None
        return found if found.fingerprint == self.fingerprint else None

    def forget(self) -> None:
        """It was executed, or is of no more use."""
        shutil.rmtree(self.folder, ignore_errors=True)


def backups(index: Index) -> dict[str, Kept]:
    return {name: Kept(*values) for name, values in index.backups.items()}
