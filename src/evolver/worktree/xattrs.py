"""Extended attributes and access lists of regular files: part of a file's content in the manifest, their bytes in the vault.

Only what a user or an administrator sets on a file: `user.*`, its access list, its capabilities. Labels of the kernel's own
(SELinux, IMA) and of overlay file systems follow from where a file lies. Folders are not looked at.
"""

from __future__ import annotations

import ctypes
import os
import threading
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path

import msgspec

from evolver.worktree.manifest import join

MARK = b"+"  # content: between what the bytes are called and the sha256 of the attributes
ACL = "system.posix_acl_access"
_NAMED = frozenset({ACL, "security.capability"})
_LIST: Callable[..., list[str]] | None = getattr(os, "listxattr", None)  # Linux only

_CLONE_FS = 0x200

Pairs = list[tuple[bytes, bytes]]


def _ours(names: list[str]) -> list[str]:
    return sorted(name for name in names if name.startswith("user.") or name in _NAMED)


def packed(where: int | str) -> bytes:
    """All of them, of an open file or of a path that is no link; empty when there are none (or none can be had here)."""
    if _LIST is None:
        return b""
    with suppress(OSError):
        names = _LIST(where)
        if names and (names := _ours(names)):
            pairs: Pairs = [(os.fsencode(name), os.getxattr(where, name)) for name in names]
            return msgspec.msgpack.encode(pairs)
    return b""


def bearing(root: Path, files: Iterable[tuple[str, str]]) -> dict[str, bytes]:
    """Of regular files (folder below `root`, name), those that have any: path -> `packed`. For a first baseline, where every file is
    asked: by its name in its folder, which takes half the time of its path, in a thread that has a working folder of its own. By name, as
    the agent is not at work yet; opening every file would cost more than the whole walk."""
    found: dict[str, bytes] = {}
    if _LIST is not None:
        thread = threading.Thread(target=_ask, args=(f"{root}/", files, found))
        thread.start()
        thread.join()
    return found


def _ask(top: str, files: Iterable[tuple[str, str]], found: dict[str, bytes]) -> None:
    ask, here, prefix = _LIST, None, top
    assert ask is not None
    alone = ctypes.CDLL(None, use_errno=True).unshare(_CLONE_FS) == 0
    for folder, name in files:
        if folder != here:
            here, prefix = folder, f"{top}{folder}/" if folder else top
            if alone:
                with suppress(OSError):
                    os.chdir(prefix)
                    prefix = ""
        try:
            if ask(prefix + name) and (extra := packed(prefix + name)):
                found[join(folder, name)] = extra
        except OSError:
            continue


def unpacked(data: bytes) -> Pairs:
    """The inverse of `packed`."""
    return msgspec.msgpack.decode(data, type=Pairs) if data else []


def plain(content: bytes) -> bytes:
    """What the bytes are called, without the attributes."""
    return content.partition(MARK)[0] if content[:1] in (b"b", b"s") else content


def digest(content: bytes) -> str:
    """What the vault calls the attributes; empty: there are none."""
    return content.partition(MARK)[2].decode() if content[:1] in (b"b", b"s") else ""


def put(fd: int, pairs: Pairs) -> None:
    """Make the attributes of an open file these and no others: a folder's default access list gives a new file one. Raise `OSError`."""
    if _LIST is None:
        return
    wanted = {os.fsdecode(name): value for name, value in pairs}
    for name in _ours(_names(fd)):
        if name not in wanted:
            os.removexattr(fd, name)
    for name, value in wanted.items():
        os.setxattr(fd, name, value)


def _names(fd: int) -> list[str]:
    try:
        return _LIST(fd) if _LIST is not None else []
    except OSError:  # a file system without
        return []
