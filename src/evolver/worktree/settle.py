"""After the validators of a passing attempt: what they dropped goes, what they altered comes back; the attempt stays.

Droppings that git ignores (caches, reports) stay, as they would after the user's own test run.
"""

from __future__ import annotations

import os
from dataclasses import dataclass

from evolver.worktree import ignorerules, leftout, manifest
from evolver.worktree.anchor import Anchor
from evolver.worktree.content import compared
from evolver.worktree.converge import Converge
from evolver.worktree.ignorerules import LONGEST, below
from evolver.worktree.inspect import Inspection, seal_index, without_git
from evolver.worktree.manifest import Entry, lookup
from evolver.worktree.remove import remove
from evolver.worktree.site import Site
from evolver.worktree.snapshot import Snapshot
from evolver.worktree.source import Source
from evolver.worktree.submodules import altered_in


@dataclass(frozen=True)
class Settled:
    """What `settle` did, and what it left to be remembered."""

    put_right: tuple[str, ...]
    users: tuple[str, ...]
    problems: tuple[str, ...] = ()  # what could not be put right


def settle(site: Site, snapshot: Snapshot, found: Inspection, opaque: frozenset[str]) -> Settled:
    """The paths that were put right, and the user's ignored files that the validators altered: those stay, and are named."""
    skip = {".git"} | snapshot.opaque | opaque
    with Anchor(site.root) as anchor:
        scan = manifest.scan(anchor.top, found.scan.tree, opaque=skip, trusted_ns=found.scan.trusted_ns)
        without_git(scan)
        content = compared(anchor, snapshot.algorithm, name=True)
        changed = dict(manifest.differences(found.scan.tree, scan, content, skip))
        leftout.note(site, snapshot, anchor, scan, changed, content)
    astray = {p for p in changed if p in snapshot.opaque and p not in found.changed}
    failed = leftout.put_back(site, snapshot, dict.fromkeys(astray), scan.moved)  # before what it may lie in is removed
    if failed:
        return Settled((), (), failed)
    changed = {p: c for p, c in changed.items() if below(p, snapshot.opaque) is None}
    added = sorted((p for p, (before, _) in changed.items() if before is None), key=lambda p: p.count("/"))
    ignored = {p for p in added if snapshot.is_ignored(p)}
    ignored |= ignorerules.ignored_now(site.git, scan.tree, [p for p in added if p not in ignored])
    dropped = [p for p in added if p not in ignored and not _holds_ignored(p, ignored)]
    altered = [(p, before) for p, (before, _) in changed.items() if before is not None]
    theirs = altered_in(site, found.modules, found.wanted, (p for p, before in altered if not before.is_dir and p in found.changed))
    put_back, problems = _put_back(site, snapshot, found, altered)
    done = _remove(site, dropped) + put_back
    users = tuple(
        p for p, before in altered if not before.is_dir and p not in found.changed and snapshot.is_ignored(p)
    )
    problems += tuple(f"{p} in a submodule that the attempt committed in was altered" for p in theirs)
    return Settled(tuple(sorted(os.fsencode(p).decode("utf-8", "backslashreplace") for p in done)), users, problems)


def _holds_ignored(path: str, ignored: set[str]) -> bool:
    return any(p.startswith(path + "/") for p in ignored)


def _remove(site: Site, paths: list[str]) -> list[str]:
    gone = []
    with Anchor(site.root) as anchor:
        for path in paths:
            folder, name = manifest.split(path)
            if anchor.lstat(path) is not None and remove(anchor.folder(folder), name):
                gone.append(path)
    return gone


def _put_back(
    site: Site, snapshot: Snapshot, found: Inspection, altered: list[tuple[str, Entry]]
) -> tuple[list[str], tuple[str, ...]]:
    """What was put back, and what could not be. What the attempt committed comes from its tree, what it did not touch from the
    baseline. An ignored file stays altered."""
    from_tree: list[str] = []
    from_baseline: list[str] = []
    for path, _ in altered:
        if path in found.wanted and found.wanted[path].mode:
            from_tree.append(path)
        elif path not in found.changed and not snapshot.is_ignored(path) and lookup(snapshot.work, path) is not None:
            from_baseline.append(path)
    if from_tree:
        with Anchor(site.root) as anchor:
            for path in from_tree:
                now = anchor.lstat(path)
                if now is not None:
                    folder, name = manifest.split(path)
                    remove(anchor.folder(folder), name)
        with seal_index(site, snapshot) as index:
            index.stage({p: found.wanted[p] for p in from_tree}, "0" * (2 * snapshot.hash_size))
            data = b"".join(os.fsencode(p) + b"\0" for p in from_tree if len(p) < LONGEST)
            site.git.run("checkout-index", "-f", "-z", "--stdin", input=data, env=index.env)
        with Anchor(site.root) as anchor:
            for path in from_tree:
                before = lookup(found.scan.tree, path)
                if before is not None and before.is_file:
                    folder, name = manifest.split(path)
                    os.chmod(name, before.mode & 0o7777, dir_fd=anchor.folder(folder))
    problems: list[str] = []
    if from_baseline:
        with Anchor(site.root) as anchor, Source(site.vault, site.git) as source:
            work = Converge(anchor, snapshot.work, source)
            work.run(from_baseline)
            problems = work.problems
    return from_tree + from_baseline, tuple(problems)
