"""Whose `.git` lies where a run died or is held: that run's repository, or one that somebody put there since.

Recovery may build a lost `.git` again from the lifeboat, but never over another repository: a new clone in the place of one that was
thrown away, or one that was moved here. Looked at before the stream is opened and before git runs.
"""

from __future__ import annotations

import os
import re
from contextlib import suppress
from pathlib import Path

import msgspec

from evolver.errors import EvolverError, NotRestoredError
from evolver.layout import OWNER_FILE, Layout, baselines_in, git_dirs
from evolver.worktree.anchor import read_regular
from evolver.worktree.snapshot import decode
from evolver.worktree.vault import Vault

MARK = "belongs-to"  # in evolver's folder: of which baseline a `.git` without a vault is, built again or held as the attempt left it
IDENTITY = "identity"  # in the lifeboat: what `.git` is since it was built again
_OID = re.compile(rb"[0-9a-f]{40}([0-9a-f]{24})?")
_SAMPLE = 256  # objects looked at for a second name


def mark(git_dir: Path, fingerprint: str) -> None:
    """This `.git` has to do with the baseline, although the vault is not in it (yet)."""
    state = git_dir / "evolver"
    state.mkdir(exist_ok=True)
    (state / MARK).write_text(fingerprint)


def refuse_stranger(layout: Layout) -> None:
    """Raise `NotRestoredError` when the lifeboat belongs to another repository than the one that lies here."""
    if not (layout.lifeboat / OWNER_FILE).is_file():
        return
    known = baselines_in(layout.lifeboat / "vault")
    dirs = git_dirs(layout.root)
    if not known or known & baselines_in(layout.vault) or dirs is None:
        return
    private, common = dirs
    head = _head(private, common)
    if (layout.root / ".git").is_symlink() or head is None or _marked(private) in known or _same_folder(layout, private, common, known):
        return
    raise NotRestoredError(
        f"{layout.root}/.git (HEAD is {head[:12]}) is not the repository in which a run died or was held; of that one the lifeboat"
        f" {layout.lifeboat} is left",
        f"Nothing was changed. To keep the repository that is here, and forget the other one: move {layout.lifeboat} away."
        " To get the other one back: move .git away, then run `evolver resume`.",
    )


def _head(private: Path, common: Path) -> str | None:
    """The commit HEAD names, when it has its objects. None: nothing was ever committed here, or git could not read it."""
    with suppress(OSError):
        head = read_regular(private / "HEAD").strip()
        if head.startswith(b"ref: "):
            head = _ref(common, head[5:].strip())
        if _OID.fullmatch(head):
            oid, objects = head.decode(), common / "objects"
            borrowed = (objects / "info" / "alternates").exists()
            if borrowed or (objects / oid[:2] / oid[2:]).is_file() or any((objects / "pack").glob("*.pack")):
                return oid
    return None


def _ref(common: Path, name: bytes) -> bytes:
    with suppress(OSError):
        return read_regular(common / os.fsdecode(name)).strip()
    for line in read_regular(common / "packed-refs").splitlines():
        oid, _, named = line.partition(b" ")
        if named == name:
            return oid
    return b""


def _marked(private: Path) -> str:
    with suppress(OSError):
        return read_regular(private / "evolver" / MARK).decode("ascii", "replace")
    return ""


def _same_folder(layout: Layout, private: Path, common: Path, known: frozenset[str]) -> bool:
    """An attempt may have removed our folder from the old `.git`. Its inode alone proves nothing, a new one may have got it; but
    objects that still are the lifeboat's files cannot be a new repository's as well, unless it is a local clone, with other inodes."""
    inodes = private.stat().st_ino, common.stat().st_ino
    return inodes in _recorded(layout, known) and _linked(layout.lifeboat / "stores" / "objects", common / "objects")


def _recorded(layout: Layout, known: frozenset[str]) -> set[tuple[int, int]]:
    found = set()
    vault = Vault(layout.vault, layout.lifeboat / "vault")
    for fingerprint in known:
        with suppress(EvolverError):
            was = decode(vault.read_baseline(fingerprint), vault.content_bytes).dotgit
            found.add((was.folder_ino, was.common_ino))
    with suppress(OSError, msgspec.MsgspecError):
        stored = msgspec.msgpack.decode((layout.lifeboat / IDENTITY).read_bytes(), type=tuple[str, tuple[int, int, int, bytes, int, int]])
        found.add((stored[1][4], stored[1][5]))
    return found


def _linked(stores: Path, objects: Path) -> bool:
    seen = 0
    for base, _, names in os.walk(stores):
        for name in names:
            with suppress(OSError):
                if os.path.samestat(os.lstat(os.path.join(base, name)), os.lstat(objects / os.path.relpath(base, stores) / name)):
                    return True
            seen += 1
            if seen > _SAMPLE:
                return False
    return False
