"""Walks git's own folders: the files that are compared, their bytes kept for a baseline or only read."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from evolver.worktree import gitfolder, manifest
from evolver.worktree.anchor import Anchor
from evolver.worktree.content import kept, observed
from evolver.worktree.manifest import LEFT, UNKNOWN, Entry, Tree, split
from evolver.worktree.site import Site
from evolver.worktree.snapshot import Snapshot


@dataclass
class GitFolders:
    """git's folders as they are now, their changed files kept in the vault."""

    private: Tree
    common: Tree | None
    changed: bool
    trusted: int


def walk_git(site: Site, known: Snapshot | None, *, keep: bool) -> GitFolders:
    """Walk git's own folders. `keep`: changed files go into the vault (a baseline); else they are only read."""
    trees: list[Tree] = []
    changed = False
    trusted = 0
    for position, folder in enumerate((site.private, site.common) if site.linked else (site.private,)):
        before = None if known is None else (known.private if position == 0 else known.common)
        with Anchor(folder) as anchor:
            result = manifest.scan(anchor.top, before, opaque=gitfolder.Opaque(), trusted_ns=known.git_trusted if known else 0)
            content = _kept_git(anchor, site) if keep else _observed_git(anchor)
            for path in result.touched:
                above, name = split(path)
                entry = result.tree[above][name]
                if entry.content == UNKNOWN and not entry.is_dir:
                    entry = entry._replace(content=content(path, entry))
                    result.tree[above][name] = entry
                was = before.get(above, {}).get(name) if before is not None else None
                if gitfolder.kind_of(path) is not gitfolder.Kind.STORE:  # new objects are no other baseline
                    changed = changed or was is None or was.means() != entry.means()  # a racy file may be the same
            changed = changed or bool(result.gone) or (before is not None and len(before) != len(result.tree))
            trees.append(result.tree)
            trusted = result.trusted_ns if not trusted else min(trusted, result.trusted_ns)
    return GitFolders(trees[0], trees[1] if len(trees) > 1 else None, changed, trusted)


def _kept_git(anchor: Anchor, site: Site) -> Callable[[str, Entry], bytes]:
    read = kept(anchor, site.vault, inline=True)

    def content(path: str, entry: Entry) -> bytes:
        if gitfolder.kind_of(path) is gitfolder.Kind.STORE:
            return LEFT
        return read(path, entry, None)

    return content


def _observed_git(anchor: Anchor) -> Callable[[str, Entry], bytes]:
    read = observed(anchor)

    def content(path: str, entry: Entry) -> bytes:
        return LEFT if gitfolder.kind_of(path) is gitfolder.Kind.STORE else read(path, entry, None)

    return content
