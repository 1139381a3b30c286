"""What an attempt changed, and the tree that a commit of it would have. Writes objects, nothing the user sees."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from evolver import reserve
from evolver.errors import GitError
from evolver.worktree import ignorerules, leftout, manifest
from evolver.worktree.adding import add_files, known_to_index
from evolver.worktree.anchor import Anchor, read_regular
from evolver.worktree.content import compared
from evolver.worktree.control import Guarded
from evolver.worktree.gitlinks import gitlink_head
from evolver.worktree.ignorerules import LONGEST, below
from evolver.worktree.index import GITLINK, Index, IndexDamaged, parse
from evolver.worktree.manifest import LEFT, Entry, Scan, Tree, lookup, split
from evolver.worktree.objects import Hashed, Staged, TemporaryIndex, hash_files
from evolver.worktree.site import Site
from evolver.worktree.snapshot import Snapshot
from evolver.worktree.trees import changed_tree
from evolver.worktree.values import Change, ChangeKind

Changed = Mapping[str, tuple[Entry | None, Entry | None]]


def walk(site: Site, snapshot: Snapshot, opaque: frozenset[str], *, name: bool) -> tuple[Scan, Changed]:
    """Walk the worktree; what differs from the baseline. Learns new stat data of what only was touched. `name`: changed files
    get their sha256."""
    with Anchor(site.root) as anchor:
        skip = {".git"} | snapshot.opaque | opaque
        result = manifest.scan(anchor.top, snapshot.work, opaque=skip, trusted_ns=snapshot.work_trusted)
        without_git(result)
        content = compared(anchor, snapshot.algorithm, name=name)
        changed = dict(manifest.differences(snapshot.work, result, content, skip))
        leftout.note(site, snapshot, anchor, result, changed, content)
    if opaque:  # nor a new folder that holds one
        changed = {
            p: c for p, c in changed.items() if below(p, opaque) is None and not (c[0] is None and any(o.startswith(p + "/") for o in opaque))
        }
    for path in result.touched:
        if path not in changed:
            folder, leaf = split(path)
            if leaf in snapshot.work.get(folder, {}):
                snapshot.work[folder][leaf] = result.tree[folder][leaf]
    return result, changed


def without_git(result: Scan) -> None:
    """The own `.git` is the guard's business."""
    top = result.tree.get("", {})
    if ".git" in top:
        result.tree[""] = {n: e for n, e in top.items() if n != ".git"}
    result.touched = [p for p in result.touched if p != ".git"]


@dataclass
class Inspection:
    """Everything known of one attempt; `Attempt` is its public face."""

    scan: Scan
    changed: Changed
    index: Index | None  # None: the attempt's index cannot be read
    index_changed: bool
    ignored: frozenset[str] = frozenset()  # new paths, by the attempt's rules
    shown: frozenset[str] = frozenset()  # ignored by the baseline's rules, and no longer by the attempt's
    ignored_then: frozenset[str] = frozenset()  # by the baseline's
    nested: frozenset[str] = frozenset()
    wanted: dict[str, Staged] = field(default_factory=dict)  # what a commit changes, against pre_ref
    blocked: tuple[str, ...] = ()  # paths that also hold uncommitted work of the user
    tree: str = ""
    oversized: str = ""  # why the attempt is neither hashed nor committed nor kept; empty: it may be
    refused: str = ""  # why `git add` would not make a commit of it; it can be looked at and undone all the same
    plugged: bool = False  # git's own rules cannot be read in the worktree: no filters, the baseline's ignore rules
    raw_index: bytes = b""
    modules: Tree | None = None  # git's private folder, as submodules are to be when the attempt is accepted
    displaced: dict[str, Staged] = field(default_factory=dict)  # what the attempt had in files that git's configuration names

    def user_untracked(self, snapshot: Snapshot) -> list[str]:
        """The user's untracked files the attempt changed or removed."""
        return [
            p
            for p, (before, _) in self.changed.items()
            if before is not None and not before.is_dir and not snapshot.tracked(p) and not below(p, self.nested)
        ]


def read_index(site: Site, snapshot: Snapshot) -> tuple[Index | None, bytes, bool]:
    """The attempt's index (None: damaged), its bytes, and whether it means something else than the baseline's."""
    try:
        raw = read_regular(site.private / "index")
    except OSError:
        return None, b"", bool(snapshot.index.raw)
    if snapshot.index.differs_only_in_stat(raw):
        return snapshot.index, raw, False
    try:
        index = parse(raw, snapshot.hash_size)
    except IndexDamaged:
        return None, raw, True
    if b"link" in index.extensions:
        return None, raw, True
    return index, raw, index.meaning() != snapshot.index.meaning()


def inspect(
    site: Site, snapshot: Snapshot, guarded: Guarded, opaque: frozenset[str], exclude: bytes | None = None
) -> Inspection:
    """Raise `GitError` when git cannot be asked. `exclude`: the attempt's own `info/exclude`, when it changed that."""
    scan, changed = walk(site, snapshot, opaque, name=True)
    index, raw, index_changed = read_index(site, snapshot)
    found = Inspection(scan, changed, index, index_changed, raw_index=raw)
    found.nested = ignorerules.nested_roots(snapshot.work, scan.tree)
    added = [p for p, (before, _) in changed.items() if before is None]
    added.sort(key=lambda p: p.count("/"))
    found.ignored_then = frozenset(p for p in changed if p in snapshot.opaque)
    asked = [p for p in added if not snapshot.is_ignored(p) and below(p, found.nested) in (None, p)]
    already = frozenset(p for p in added if snapshot.is_ignored(p))
    if any(path.rpartition("/")[2] in ignorerules.RULES for path in changed) and ignorerules.plugged(scan.tree):
        found.plugged = True
        found.ignored = found.ignored_then = already | ignorerules.ignored_then(site, snapshot, scan.tree, asked)
        _seal(site, snapshot, guarded, found)
        return found
    found.ignored = already | ignorerules.ignored_now(site.git, scan.tree, asked)
    found.ignored_then = found.ignored
    if ignorerules.rules_changed(changed):
        found.ignored = ignorerules.ignored_now(site.git, scan.tree, added)
        found.ignored_then = already | ignorerules.ignored_then(site, snapshot, scan.tree, asked)
    if exclude is not None or ignorerules.rules_changed(changed) or any(_other_type(changed, top) for top in snapshot.ignored):
        git = site.git if exclude is None else ignorerules.by_exclude(site, exclude)
        hidden = [p for p in changed if snapshot.is_ignored(p) or p in found.ignored_then]
        hidden.sort(key=lambda p: p.count("/"))
        found.shown = frozenset(hidden) - ignorerules.ignored_now(git, scan.tree, hidden)
    _seal(site, snapshot, guarded, found)
    if scan.moved:
        shown = set(scan.moved.values()) - ignorerules.ignored_now(site.git, scan.tree, list(scan.moved.values()))
        for old, new in scan.moved.items():
            if new in shown:
                found.refused = f"{old!r}, which is ignored and no part of the baseline, was moved to {new!r}, where it would be committed"
    return found


# ---------------------------------------------------------------- the tree a commit would have


def _other_type(changed: Changed, path: str) -> bool:
    """An ignored folder became a file: `build/` does not match that."""
    before, now = changed.get(path, (None, None))
    return before is not None and now is not None and before.is_dir != now.is_dir


def _seal(site: Site, snapshot: Snapshot, guarded: Guarded, found: Inspection) -> None:
    """`git add -A` as of the worktree, on top of pre_ref; what the user had untracked stays out of it."""
    files, wanted, blocked = _committable(snapshot, found)
    _index_only(site, snapshot, found, wanted)
    found.tree, found.blocked = snapshot.head_tree, tuple(blocked)
    weight = sum(entry.size for entry in files.values())
    if weight > site.max_vault:
        found.oversized = f"{weight >> 20} MiB of new or changed files, at most {site.max_vault >> 20} MiB allowed (EVOLVER_MAX_VAULT)"
        return
    room = reserve.free(site.common)
    if weight > room:  # asked before, as git leaves the half of an object behind when it meets a full disk
        found.oversized = f"the disk is full: no room for {weight >> 20} MiB of new or changed files ({room >> 20} MiB are free)"
        return
    if not files and not wanted:
        return
    try:
        with Anchor(site.root) as anchor:
            hashed = hashed_of(site, snapshot, found, anchor, files)
        found.refused = hashed.why_not
        wanted |= hashed.staged
        tree = changed_tree(site.git, snapshot.head_tree, wanted, snapshot.hash_size)
    except (GitError, OSError) as error:
        if not (error.disk_full if isinstance(error, GitError) else error.errno in reserve.FULL):
            raise
        found.oversized = f"the disk is full: no room for {weight >> 20} MiB of new or changed files"
        return
    found.wanted, found.tree = wanted, tree


def hashed_of(site: Site, snapshot: Snapshot, found: Inspection, anchor: Anchor, files: Mapping[str, Entry]) -> Hashed:
    """Files of the attempt as blobs: as `git add` would make them, or as they lie there where git cannot."""
    if found.plugged:
        hashed = hash_files(site.git, anchor, files, site.boat.folder)
        return replace(hashed, failed="git cannot add it: what it reads its rules from (.gitignore, .gitattributes) is no file")
    known = known_to_index(snapshot.index, found.index, found.scan.tree, files)
    return add_files(site.git, anchor, files, site.boat.folder, known, snapshot.hash_size)


def seal_index(site: Site, snapshot: Snapshot) -> TemporaryIndex:
    """A temporary index that says what pre_ref's tree says."""
    plain = not snapshot.staged and not snapshot.index.unmerged
    index = TemporaryIndex(site.git, site.boat.folder / "seal-index", snapshot.index.raw if plain else None)
    if not plain:
        index.read_tree(snapshot.pre_ref)
    return index


def _committable(snapshot: Snapshot, found: Inspection) -> tuple[dict[str, Entry], dict[str, Staged], list[str]]:
    """Files to be hashed, paths to be removed, and paths that collide with the user's uncommitted work."""
    files: dict[str, Entry] = {}
    gone: dict[str, Staged] = {}
    blocked: list[str] = []
    theirs = found.index.entries if found.index is not None else {}
    for path, (before, now) in found.changed.items():
        entry = now if now is not None else before
        if entry is None or (entry.is_dir and (before is None or before.is_dir) and (now is None or now.is_dir)):
            continue
        tracked = snapshot.tracked(path)
        if not tracked:
            if before is not None and not before.is_dir:
                continue  # the user had it untracked: it stays so
            if below(path, found.nested) or (path in found.ignored and path not in theirs):
                continue
        if path in snapshot.dirty or (tracked and snapshot.index.entries[path].hidden):
            blocked.append(path)
            continue
        if now is None or not (now.is_file or now.is_link):
            their = theirs.get(path)
            if tracked and not (their is not None and their.hidden):  # hidden: a sparse checkout of the attempt's
                gone[path] = Staged(0, "")
        elif len(os.fsencode(path)) < LONGEST and now.content != LEFT:
            files[path] = now
    return files, gone, blocked


def _index_only(site: Site, snapshot: Snapshot, found: Inspection, wanted: dict[str, Staged]) -> None:
    """What only the attempt's index or a submodule's HEAD says: gitlinks, and files no longer tracked though still there."""
    before = snapshot.index.entries
    for path in snapshot.index.gitlinks:
        entry = before[path]
        if path not in snapshot.dirty:
            oid = gitlink_head(site.root, path)
            if oid is not None and oid != entry.oid:
                wanted[path] = Staged(GITLINK, oid)
            elif lookup(found.scan.tree, path) is None and lookup(snapshot.work, path) is not None:
                wanted[path] = Staged(0, "")
    if not found.index_changed or found.index is None:
        return
    theirs = found.index.entries
    for path in found.index.gitlinks:
        if path not in before and (oid := gitlink_head(site.root, path)) is not None:
            wanted[path] = Staged(GITLINK, oid)
    dropped = [p for p in before if p not in theirs and p not in found.changed and p not in snapshot.dirty and lookup(found.scan.tree, p)]
    if dropped and not found.plugged:
        for path in ignorerules.ask(site.git, dropped):
            wanted[path] = Staged(0, "")


# ---------------------------------------------------------------- the public face


def changes_of(found: Inspection) -> tuple[Change, ...]:
    """Paths a person would name: files, links and the like; folders only where nothing else tells of them."""
    named: list[Change] = []
    with_children = {split(path)[0] for path in found.changed}
    for path, (before, now) in sorted(found.changed.items()):
        entry = now if now is not None else before
        if entry is None:
            continue
        if entry.is_dir and (before is None or now is None) and path in with_children:
            continue
        kind = ChangeKind.ADDED if before is None else ChangeKind.DELETED if now is None else ChangeKind.MODIFIED
        digest = ""
        if now is not None:
            digest = hashlib.sha256(b"%o:%s" % (now.mode, now.content)).hexdigest()[:16]
        raw = os.fsencode(path) + (b"/" if entry.is_dir else b"")
        named.append(Change(raw, kind, path in found.ignored_then, digest))
    return tuple(named)

