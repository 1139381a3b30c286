"""A SQLite database's schema, and the whole database kept aside: what a half-done migration is compared and reverted with."""

from __future__ import annotations

import hashlib
import os
import sqlite3
from contextlib import closing
from pathlib import Path

LARGEST = 512 << 20  # bytes; a larger database is not kept aside
BUSY_SECONDS = 30.0
ABSENT = "absent"


def _connect(path: Path, *, create: bool = False) -> sqlite3.Connection:
    mode = "rwc" if create else "rw"
    return sqlite3.connect(f"{path.absolute().as_uri()}?mode={mode}", uri=True, timeout=BUSY_SECONDS)


def schema(path: Path) -> str:
    """SHA-256 over every table, index, view and trigger, and alembic's revisions; `ABSENT` when there is no such file.

    Raise `sqlite3.Error`.
    """
    if not path.exists():
        return ABSENT
    digest = hashlib.sha256()
    with closing(_connect(path)) as database:
        rows = database.execute(
            "SELECT type, name, tbl_name, sql FROM sqlite_master WHERE name NOT LIKE 'sqlite!_%' ESCAPE '!'"
        )
        for row in sorted(tuple(str(cell) for cell in row) for row in rows):
            digest.update("\0".join(row).encode() + b"\0\0")
    digest.update("\0".join(revisions(path) or ()).encode())
    return digest.hexdigest()


def revisions(path: Path) -> tuple[str, ...] | None:
    """What alembic's own table in this database says; None when there is no such file or table."""
    if not path.exists():
        return None
    with closing(_connect(path)) as database:
        try:
            return tuple(sorted(str(row[0]) for row in database.execute("SELECT version_num FROM alembic_version")))
        except sqlite3.OperationalError:
            return None


def copy(source: Path, target: Path) -> None:
    """The database's content, also of one that is in use (its write-ahead log included). Raise `sqlite3.Error`, `OSError`.

    Into an existing database it is written in one transaction, so a kill leaves the earlier or the new content.
    """
    fresh = not target.exists()
    with closing(_connect(source)) as before, closing(_connect(target, create=True)) as after:
        before.backup(after)
    if fresh:
        target.chmod(0o600)
        descriptor = os.open(target, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def remove(path: Path) -> None:
    """The database and what belongs to it."""
    for suffix in ("-wal", "-shm", "-journal", ""):
        Path(f"{path}{suffix}").unlink(missing_ok=True)


def remove_empty(path: Path) -> None:
    """A file of no bytes is what merely asking about an absent database leaves behind."""
    if path.is_file() and path.stat().st_size == 0 and not Path(f"{path}-wal").exists():
        remove(path)
