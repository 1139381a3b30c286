"""`.git` deleted or replaced: built again from the vault and the lifeboat (hazard 23). What the attempt put in its place goes aside.

Built beside and renamed into place; a kill in between is noticed by the next guard, which goes on with what is there.
"""

from __future__ import annotations

import os
import shutil
import stat
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import msgspec

from evolver.errors import NotRestoredError
from evolver.layout import baselines_in
from evolver.worktree import belonging
from evolver.worktree.anchor import Anchor, read_regular
from evolver.worktree.aside import Aside
from evolver.worktree.converge import Converge
from evolver.worktree.lifeboat import make_folder
from evolver.worktree.manifest import Tree, entries, join, lookup
from evolver.worktree.site import Site
from evolver.worktree.snapshot import DotGit, Snapshot
from evolver.worktree.source import Source
from evolver.worktree.vault import link_or_copy

NEW = ".git.evolver-new"


def adopt_identity(site: Site, snapshot: Snapshot) -> None:
    """Another process than the one that took the baseline: what `.git` is to be counted as the baseline's.

    It may have been built again since. And a repository that was copied, restored from a backup, mounted or moved has other
    inodes, perhaps another path in its gitfile; but it brings the vault along, and by that it is known. What an attempt changed in
    it is compared as ever.
    """
    with suppress(OSError, msgspec.MsgspecError):
        stored = msgspec.msgpack.decode((site.boat.folder / belonging.IDENTITY).read_bytes(), type=tuple[str, tuple[int, int, int, bytes, int, int]])
        if stored[0] == snapshot.fingerprint:
            snapshot.dotgit = DotGit(*stored[1])
    was, now = snapshot.dotgit, DotGit.of(site.root, site.private, site.common)
    if now is None or now.mode != was.mode or snapshot.fingerprint not in baselines_in(site.vault.folder):
        return
    moved = not _leads(site.root, was.data, site.private) and _leads(site.root, now.data, site.private)
    snapshot.dotgit = now if moved else replace(now, data=was.data)
    if site.linked:
        _adopt_gitdir(site, snapshot)


def _leads(root: Path, data: bytes, git_dir: Path) -> bool:
    """Does a gitfile or a link with these bytes lead to git's folder?"""
    return os.path.realpath(root / os.fsdecode(data.removeprefix(b"gitdir: ").rstrip(b"\r\n"))) == str(git_dir)


def _adopt_gitdir(site: Site, snapshot: Snapshot) -> None:
    """`git worktree move` wrote where the worktree lies now: to put the old place back would make git prune it some day."""
    dot = site.root / ".git"
    with suppress(OSError, ValueError):
        data = read_regular(site.private / "gitdir")
        for tree, folder in ((snapshot.private, ""), (snapshot.shared, str(site.private.relative_to(site.common)))):
            was = lookup(tree, join(folder, "gitdir"))
            if was is None or not _leads(site.private, data, dot) or _leads(site.private, site.vault.content_bytes(was.content), dot):
                continue
            tree[folder] = tree[folder] | {"gitdir": was._replace(content=b"i" + data, size=len(data))}


def _save_identity(site: Site, snapshot: Snapshot) -> None:
    now = DotGit.of(site.root, site.private, site.common)
    if now is None:
        raise NotRestoredError(f"{site.root}/.git could not be built again", f"The baseline is in {site.vault.mirror}.")
    snapshot.dotgit = now
    data = (snapshot.fingerprint, (now.mode, now.ino, now.dev, now.data, now.folder_ino, now.common_ino))
    temporary = site.boat.folder / f"{belonging.IDENTITY}.tmp"
    temporary.write_bytes(msgspec.msgpack.encode(data))
    temporary.replace(site.boat.folder / belonging.IDENTITY)


def is_replaced(site: Site, snapshot: Snapshot) -> bool:
    """Is `.git` not the one of the baseline any more?"""
    was, now = snapshot.dotgit, DotGit.of(site.root, site.private, site.common)
    if now is None:
        return True
    if (was.mode, was.data) != (now.mode, now.data):
        return True
    return (was.folder_ino, was.common_ino) != (now.folder_ino, now.common_ino)


def mark_replaced(site: Site, snapshot: Snapshot) -> None:
    """Held as the attempt left it: its `.git` must not be taken for a repository that a person put here."""
    with suppress(OSError):
        if is_replaced(site, snapshot) and stat.S_ISDIR(site.private.lstat().st_mode):
            belonging.mark(site.private, snapshot.fingerprint)


def rebuild(site: Site, snapshot: Snapshot, aside: Aside) -> bool:
    """Make `.git` the baseline's when it is not; False when there was nothing to do. Raise `NotRestoredError`."""
    if not site.root.is_dir():
        site.root.mkdir(parents=True)
    if not is_replaced(site, snapshot):
        _own_state(site)
        return False
    _refuse_to_guess(site, snapshot)
    try:
        _rebuild(site, snapshot, aside)
    except OSError as error:
        raise NotRestoredError(
            f"{site.root}/.git was replaced and cannot be built again: {error}", f"Everything it takes is in {site.boat.folder}."
        ) from error
    return True


def _refuse_to_guess(site: Site, snapshot: Snapshot) -> None:
    """Nothing is put in the place of a git folder unless the lifeboat has the objects: an empty store would be the end of it."""
    lost = not _is_folder(site.common, snapshot.dotgit.common_ino)
    borrowed = lookup(snapshot.shared, "objects/info/alternates") is not None
    if lost and not site.boat.holds(snapshot.pre_ref) and not (borrowed and (site.boat.folder / "stores" / "objects").is_dir()):
        raise NotRestoredError(
            f"{site.root}/.git is not the one of the baseline, and {site.boat.folder} does not hold what building it again takes",
            "Nothing was changed. Put the repository's own .git back (it has evolver/vault in it), then run `evolver resume`; if the"
            " state folder was another one when the run started, set EVOLVER_STATE_DIR to that.",
        )


def _rebuild(site: Site, snapshot: Snapshot, aside: Aside) -> None:
    if site.linked:
        _dot_file(site, snapshot, aside)
        common_lost = not _is_folder(site.common, snapshot.dotgit.common_ino)
        if common_lost and snapshot.common is not None:
            _folder(site, snapshot, site.common, snapshot.common, aside, objects=True)
        if not _is_folder(site.private, snapshot.dotgit.folder_ino):
            _folder(site, snapshot, site.private, snapshot.private, aside, objects=False)
    else:
        inside = site.private == site.root / ".git"
        if not inside:
            _dot_file(site, snapshot, aside)
        lost = not _is_folder(site.private, snapshot.dotgit.folder_ino)
        if lost or (inside and (os.lstat(site.root / ".git").st_mode & 0o170000) != snapshot.dotgit.mode):
            _folder(site, snapshot, site.private, snapshot.private, aside, objects=True)
    _own_state(site)
    _save_identity(site, snapshot)


def _is_folder(path: Path, ino: int) -> bool:
    with suppress(OSError):
        st = path.lstat()
        return stat.S_ISDIR(st.st_mode) and st.st_ino == ino
    return False


def _dot_file(site: Site, snapshot: Snapshot, aside: Aside) -> None:
    """`.git` as a file or a symlink that names the folder."""
    dot, was = site.root / ".git", snapshot.dotgit
    with suppress(OSError):
        st = dot.lstat()
        data = os.fsencode(os.readlink(dot)) if stat.S_ISLNK(st.st_mode) else dot.read_bytes() if stat.S_ISREG(st.st_mode) else b""
        if (st.st_mode & 0o170000, data) == (was.mode, was.data):
            return
    temporary = site.root / NEW
    with suppress(FileNotFoundError):
        temporary.unlink()
    if stat.S_ISLNK(was.mode):
        temporary.symlink_to(os.fsdecode(was.data))
    else:
        temporary.write_bytes(was.data)
    if site.private.is_dir():
        with Anchor(site.root) as anchor:
            aside.take(anchor, "root", ".git")
    elif dot.is_dir() and not dot.is_symlink():
        shutil.rmtree(dot)
    temporary.replace(dot)


def _folder(site: Site, snapshot: Snapshot, target: Path, tree: Tree, aside: Aside, *, objects: bool) -> None:
    """Build one of git's folders beside `target` and rename it into place."""
    new = target.with_name(NEW if target.name == ".git" else target.name + ".evolver-new")
    make_folder(target.parent)
    new.mkdir(mode=0o755, exist_ok=True)
    with Anchor(new) as anchor, Source(site.vault, None) as source:
        plain = {folder: {n: e for n, e in content.items() if e.content != b"-"} for folder, content in tree.items()}
        work = Converge(anchor, plain, source)
        work.run([path for path, _ in entries(plain)])
    if work.problems:
        raise OSError(0, work.problems[0])
    if objects:
        site.boat.relaunch_objects(new)
        make_folder(new / "objects")
    make_folder(new / "refs")
    if target == site.private:
        belonging.mark(new, snapshot.fingerprint)
    # Into the folder that is about to be git's: the old one's own state folder goes away with it.
    moved = Aside(new / "evolver" / "aside" / aside.folder.name) if target == site.private else aside
    with Anchor(target.parent) as anchor:
        moved.take(anchor, "above-private" if target == site.private else "above-common", target.name)
    new.replace(target)


def _writable(state: Path) -> None:
    """An attempt may have taken the permission to write the stream, locks and step logs (hazard 35)."""
    for base, folders, names in os.walk(state):
        kept = Path(base, "x").relative_to(state).parts[0] == "vault"  # its files are read-only on purpose
        for name in (*folders, *(() if kept else names)):
            path = Path(base, name)
            with suppress(FileNotFoundError):  # a sink's thread, or another evolver, writes here as well
                st = path.lstat()
                wanted = 0o700 if stat.S_ISDIR(st.st_mode) else 0o600
                if not stat.S_ISLNK(st.st_mode) and st.st_mode & wanted != wanted and st.st_uid == os.geteuid():
                    path.chmod(stat.S_IMODE(st.st_mode) | wanted)


def _own_state(site: Site) -> None:
    """evolver's own folder in git's: a real folder, with the vault that the lifeboat still holds."""
    state = site.layout.state
    make_folder(state.parent)
    with suppress(FileNotFoundError):
        if not stat.S_ISDIR(state.lstat().st_mode):
            state.unlink()
    make_folder(state)
    _writable(state)
    vault, mirror = site.vault.folder, site.vault.mirror
    with suppress(FileNotFoundError):
        if not stat.S_ISDIR(vault.lstat().st_mode):
            vault.unlink()
    if vault.is_dir() and (vault / "objects").is_dir() and (vault / "baselines").is_dir():
        return
    for base, _, names in os.walk(mirror):
        folder = vault / os.path.relpath(base, mirror)
        make_folder(folder)
        for name in names:
            if not (folder / name).exists():
                link_or_copy(Path(base, name), folder / name)
    if vault.is_dir():
        vault.chmod(0o700)
