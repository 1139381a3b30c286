"""Earlier bytes of the user's files that are not put back (untracked ones that an accepted attempt changed, those in another worktree):
kept in the vault for 14 days."""

from __future__ import annotations

import os
import time
from collections.abc import Collection
from contextlib import suppress

import msgspec

from evolver.worktree.manifest import LEFT, join, lookup
from evolver.worktree.site import Site
from evolver.worktree.snapshot import Snapshot
from evolver.worktree.xattrs import plain

DAYS = 14
FILE = "kept.jsonl"


class KeptFile(msgspec.Struct, frozen=True):
    """One line of `vault/kept.jsonl`. The bytes are in `vault/objects/`, under the first two and the other digits."""

    time: int  # seconds
    iteration_id: str
    path: str
    sha256: str  # of a link: its target
    mode: str


def remember_user_files(site: Site, snapshot: Snapshot, paths: list[str]) -> None:
    """Before the acceptance: killed in between, a line too many does no harm."""
    lines = []
    for path in paths:
        entry = lookup(snapshot.work, path)
        if entry is None or not (entry.is_link or entry.content.startswith(b"s")) or entry.content == LEFT:
            continue
        digest = site.vault.put(entry.content[1:]) if entry.is_link else plain(entry.content)[1:].decode()
        name = os.fsencode(path).decode("utf-8", "backslashreplace")
        kept = KeptFile(int(time.time()), snapshot.iteration_id, name, digest, f"{entry.mode & 0o177777 if entry.is_link else entry.mode & 0o7777:o}")
        lines.append(msgspec.json.encode(kept) + b"\n")
    if lines:
        site.vault.sync()
        with open(site.vault.folder / FILE, "ab") as file:
            file.write(b"".join(lines))
            file.flush()
            os.fsync(file.fileno())


def altered_beside(site: Site, snapshot: Snapshot, beside: Collection[str]) -> list[str]:
    """Uncommitted files in worktrees below ours that are not as the baseline has them. Whoever changed them: they are left so, and these
    bytes are nowhere else."""
    found = []
    for folder, content in snapshot.work.items() if beside else ():
        if not any(folder == top or folder.startswith(f"{top}/") for top in beside):
            continue
        for name, entry in content.items():
            if entry.is_file and entry.content.startswith(b"s"):
                path = join(folder, name)
                with suppress(OSError):
                    st = (site.root / path).lstat()
                    if (st.st_ino, st.st_size, st.st_ctime_ns) == (entry.ino, entry.size, entry.ctime_ns):
                        continue
                found.append(path)
    return sorted(found)


def place_of(site: Site, snapshot: Snapshot, path: str) -> str:
    """Where a file's earlier bytes are."""
    entry = lookup(snapshot.work, path)
    digest = plain(entry.content)[1:].decode() if entry is not None else ""
    return str(site.vault.folder / "objects" / digest[:2] / digest[2:])


def kept_files(site: Site) -> list[KeptFile]:
    """What is still kept, oldest first."""
    found = []
    with suppress(FileNotFoundError):
        for line in (site.vault.folder / FILE).read_bytes().splitlines():
            with suppress(msgspec.MsgspecError):
                found.append(msgspec.json.decode(line, type=KeptFile))
    return [kept for kept in found if kept.time > time.time() - DAYS * 86400]


def retained(site: Site) -> list[str]:
    """The digests that a prune must spare; forgets what is older."""
    kept = kept_files(site)
    path = site.vault.folder / FILE
    if kept:
        temporary = path.with_name(f"{FILE}.tmp")
        temporary.write_bytes(b"".join(msgspec.json.encode(k) + b"\n" for k in kept))
        temporary.replace(path)
    else:
        path.unlink(missing_ok=True)
    return [k.sha256 for k in kept]
