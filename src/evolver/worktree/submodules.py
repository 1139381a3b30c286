"""What an accepted attempt committed in submodules stays: their own HEAD, refs, reflogs and index, as they were when the attempt ended.

Put back with everything else, the accepted gitlink would name a commit that nothing in the submodule refers to, for `gc` to remove.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from contextlib import suppress

from evolver.worktree.anchor import Anchor, read_regular
from evolver.worktree.content import kept
from evolver.worktree.gitfolder import Kind, kind_of
from evolver.worktree.ignorerules import below
from evolver.worktree.index import GITLINK, Index, IndexDamaged, parse
from evolver.worktree.manifest import Tree, entries, lookup, split
from evolver.worktree.objects import Staged
from evolver.worktree.site import Site
from evolver.worktree.snapshot import Snapshot
from evolver.worktree.source import stored


def folder_of(site: Site, path: str) -> str | None:
    """Where the submodule at `path` has its git folder: below `modules/` of this worktree's own. None: it has one of another kind."""
    with suppress(OSError, ValueError):
        pointer = os.fsdecode(read_regular(site.root / path / ".git").removeprefix(b"gitdir:").strip())
        folder = os.path.relpath(os.path.realpath(site.root / path / pointer), os.path.realpath(site.private))
        if folder.startswith("modules/"):
            return folder
    return None


def accepted_in(site: Site, snapshot: Snapshot, now: Tree, wanted: dict[str, Staged]) -> Tree:
    """Git's private folder as it is to be when the attempt is accepted: submodules whose gitlink is part of the commit as they are in `now`,
    when the attempt ended, all else as the baseline has it. What validators do to either can then be put back: the bytes are in the vault."""
    moved = (folder_of(site, path) for path, staged in wanted.items() if staged.mode == GITLINK)
    tops = sorted(top for top in moved if top is not None)
    if not tops:
        return snapshot.private
    tree = dict(snapshot.private)
    for top in tops:
        for folder in [f for f in tree if f == top or f.startswith(f"{top}/")]:
            del tree[folder]
        tree |= {f: dict(content) for f, content in now.items() if f == top or f.startswith(f"{top}/")}
        above = top
        while above and (entry := lookup(now, above)) is not None:
            folder, name = split(above)
            tree[folder] = {**tree.get(folder, {}), name: entry}
            above = folder
    with Anchor(site.private) as anchor:
        keep = kept(anchor, site.vault, inline=True)
        for top in tops:
            for path, entry in entries(now, top):
                before = lookup(snapshot.private, path)
                if kind_of(path) is Kind.STATE and entry.is_file and (before is None or before.content != entry.content):
                    folder, name = split(path)
                    tree[folder][name] = entry._replace(content=keep(path, entry, None))
    return tree


def altered_in(site: Site, modules: Tree | None, wanted: dict[str, Staged], paths: Iterable[str]) -> list[str]:
    """Those of `paths` that are tracked files of a submodule whose gitlink is part of the commit: nothing has their bytes of when the
    attempt ended, and altered as they are the submodule would not be at what is committed."""
    tops = frozenset(path for path, staged in wanted.items() if staged.mode == GITLINK)
    found = []
    tracked: dict[str, Index] = {}
    for path in paths:
        top = below(path, tops)
        if top is None or modules is None or (folder := folder_of(site, top)) is None:
            continue
        if top not in tracked:
            with suppress(IndexDamaged):
                tracked[top] = parse(stored(site.vault, modules, f"{folder}/index"), len(wanted[top].oid) // 2)
        if top in tracked and path[len(top) + 1 :] in tracked[top].entries:
            found.append(path)
    return found


def committed_in(site: Site, pre_ref: str, commit: str) -> frozenset[str]:
    """Git folders of the submodules whose gitlink `commit` moved."""
    done = site.git.run("diff-tree", "-r", "-z", "--raw", "--no-renames", "--no-abbrev", pre_ref, commit, "--")
    fields = list(done.fields())
    paths = (os.fsdecode(path) for meta, path in zip(fields[::2], fields[1::2], strict=False) if meta.split(b" ")[1] == b"160000")
    return frozenset(folder for path in paths if (folder := folder_of(site, path)) is not None)
