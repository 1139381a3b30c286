"""Compares everything with the baseline anew. Reads only; believes nothing that restore thinks it did."""

from __future__ import annotations

import stat
from collections.abc import Iterator

from evolver.worktree import leftout, mounts
from evolver.worktree.beside import Beside
from evolver.worktree.gitfolder import Kind, kind_of
from evolver.worktree.gitwalk import GitFolders, walk_git
from evolver.worktree.inspect import Changed, read_index, walk
from evolver.worktree.manifest import Entry, Scan, Tree, entries, lookup
from evolver.worktree.rebuild import is_replaced
from evolver.worktree.refs import STASH, Refs
from evolver.worktree.retention import altered_beside, place_of
from evolver.worktree.site import Site
from evolver.worktree.snapshot import STASH_LOG, Snapshot
from evolver.worktree.state import StateBack, read_refs
from evolver.worktree.values import Verified
from evolver.worktree.xattrs import plain

NAMED = 200


def compare(site: Site, snapshot: Snapshot, beside: Beside, proof: Scan | None) -> tuple[Verified, Scan]:
    """Everything. `proof`: a walk that met nothing but the baseline, when nobody wrote since; without one it is made here."""
    differences: list[str] = []
    if proof is None:
        proof, changed = walk(site, snapshot, beside.opaque, name=False)
        differences += worktree(changed)
    differences += [f"{path}: cannot be read" for path in proof.unreadable]
    if site.root.stat().st_mode & 0o7777 != snapshot.root_mode:
        differences.append("the mode of the worktree's own folder differs")
    differences += mounts.differences(snapshot.mounts, mounts.inside(site.root))
    if is_replaced(site, snapshot):
        differences.insert(0, ".git is not the one of the baseline")
    else:
        folders = walk_git(site, snapshot, keep=False)
        differences += repository(site, snapshot, folders, beside.left, shared=beside.shared)
    aside = [f"{p} (earlier: {place_of(site, snapshot, p)})" for p in altered_beside(site, snapshot, beside.opaque)]
    added = (f".git/worktrees/{name}/" for name in sorted(site.lived_in))
    left = (*leftout.named(site, snapshot), *sorted(beside.opaque), *aside[:NAMED], *added)
    return Verified(tuple(differences[:NAMED]), left), proof


def worktree(changed: Changed) -> list[str]:
    """A name for each path that differs."""
    out = []
    for path, (before, now) in sorted(changed.items()):
        out.append(f"{path} {'is new' if before is None else 'is missing' if now is None else f'differs ({_how(before, now)})'}")
    return out


def _how(before: Entry, now: Entry) -> str:
    """In words: a person may have to set a group back that this user may not."""
    if stat.S_IFMT(before.mode) != stat.S_IFMT(now.mode):
        return "another type"
    parts = [f"mode {before.mode & 0o7777:o}, now {now.mode & 0o7777:o}"] if before.mode != now.mode and not before.is_link else []
    parts += [f"owner {before.uid}, now {now.uid}"] if before.uid != now.uid else []
    parts += [f"group {before.gid}, now {now.gid}"] if before.gid != now.gid else []
    if before.content != now.content:
        parts.append("content" if plain(before.content) != plain(now.content) else "extended attributes")
    return "; ".join(parts) or "content"


def repository(site: Site, snapshot: Snapshot, folders: GitFolders, left: frozenset[str], *, shared: bool) -> list[str]:
    """What of git's own state differs."""
    out: list[str] = []
    now = read_refs(site, folders)
    if now.head != snapshot.refs.head:
        out.append(f"HEAD says {now.head or 'nothing'!r}, not {snapshot.refs.head!r}")
    out += list(_refs(snapshot, now, left))
    if not shared:
        out += list(_stash(site, snapshot, now))
    index, _, changed = read_index(site, snapshot)
    if changed or (index is None and snapshot.index.raw):
        out.append("the index differs")
    out += list(_control(snapshot.private, folders.private, beside=False))
    if snapshot.common is not None and folders.common is not None:
        out += list(_control(snapshot.common, folders.common, beside=True))
    names = {n for n, e in (folders.common or folders.private).get("worktrees", {}).items() if e.is_dir}
    out += [f"worktree metadata {name} differs" for name in sorted((names ^ set(snapshot.siblings)) - site.lived_in)]
    return out


def _refs(snapshot: Snapshot, now: Refs, left: frozenset[str]) -> Iterator[str]:
    for name in sorted({*snapshot.refs.refs, *now.refs} - left - {STASH}):
        was, is_now = snapshot.refs.refs.get(name), now.refs.get(name)
        if was != is_now:
            yield f"{name} is {is_now or 'missing'}, not {was or 'missing'}"


def _stash(site: Site, snapshot: Snapshot, now: Refs) -> Iterator[str]:
    lines = StateBack(site, snapshot, now, frozenset(), False).stash_wanted()
    log = b"".join(lines)
    path = site.common / STASH_LOG
    tip = lines[-1].split(b" ", 2)[1].decode() if lines else snapshot.refs.refs.get(STASH)
    if now.refs.get(STASH) != tip or (tip is not None and (path.read_bytes() if path.is_file() else b"") != log):
        yield "the stash list differs"


def modules(before: Tree, now: Tree) -> Iterator[str]:
    """Submodules' own state: their HEAD, refs, index. Of the worktree's own git folder: each worktree has its own clones."""
    for path in sorted({p for tree in (before, now) for p, e in entries(tree, "modules") if not e.is_dir}):
        if kind_of(path) is Kind.STATE:
            was, is_now = lookup(before, path), lookup(now, path)
            if was is None or is_now is None or was.means() != is_now.means():
                yield path


def _control(before: Tree, now: Tree, *, beside: bool) -> Iterator[str]:
    for folder in sorted({*before, *now}):
        for name in sorted({*before.get(folder, {}), *now.get(folder, {})}):
            path = f"{folder}/{name}" if folder else name
            was, is_now = lookup(before, path), lookup(now, path)
            kind = kind_of(path, beside=beside)
            module = kind is Kind.STATE and path.startswith("modules/")
            if kind not in (Kind.CONTROL, Kind.QUIET) and not module:
                continue
            if (was or is_now) is not None and (was is None or was.is_dir) and (is_now is None or is_now.is_dir):
                if was is not None and is_now is not None and was.mode == is_now.mode:
                    continue
                if not module and kind is Kind.QUIET and (was is None or is_now is None):
                    continue  # an empty folder of git's own tells nothing
            if was is None or is_now is None or was.means() != is_now.means():
                yield f".git/{path} {'is new' if was is None else 'is missing' if is_now is None else 'differs'}"

