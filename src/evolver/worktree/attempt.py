"""The public face of an inspection: changes, commits, counts and the diff."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Set
from typing import TypedDict

from evolver.git import Git
from evolver.worktree import mounts, refs, verify
from evolver.worktree.beside import Beside
from evolver.worktree.control import Guarded
from evolver.worktree.inspect import Inspection, changes_of
from evolver.worktree.manifest import lookup
from evolver.worktree.site import Site
from evolver.worktree.snapshot import STASH_LOG, Snapshot
from evolver.worktree.values import Attempt, Change, ChangeKind, ControlReport, RefChange

COMMITS = 1000  # of the agent's own, that are listed


class Counts(TypedDict):
    insertions: int
    deletions: int
    patch_id: str


def attempt_of(
    site: Site, bare: Git, snapshot: Snapshot, guarded: Guarded, found: Inspection, beside: Beside, control: ControlReport
) -> Attempt:
    """The attempt as others see it. `bare`: a git that reads no file of the worktree."""
    moved = refs.changes(snapshot.refs, guarded.refs)
    commits, subjects = commits_since(site.git, snapshot.pre_ref, guarded.refs.commit)
    return Attempt(
        post_ref=guarded.refs.commit,
        branch=guarded.refs.branch,
        changes=describe(found, snapshot, guarded, site.lived_in),
        refs=tuple(r for r in (*head_and_stash(snapshot, guarded), *moved) if r.name not in beside.left),
        commits=commits,
        commit_subjects=subjects,
        index_changed=found.index_changed,
        control=control,
        committable=found.tree != snapshot.head_tree or bool(found.oversized or found.refused),
        oversized=found.oversized,
        refs_left=tuple(r.name for r in moved if r.name in beside.left),
        refs_put_back=tuple(sorted(beside.unclear)),
        tree=found.tree,
        mounts=tuple(mounts.differences(snapshot.mounts, mounts.inside(site.root))),
        **stat_of(bare, snapshot.pre_ref, found),
    )


def describe(found: Inspection, snapshot: Snapshot, guarded: Guarded, lived_in: Set[str]) -> tuple[Change, ...]:
    """Paths of the worktree, and of git's folder where a submodule or another worktree's metadata changed. `lived_in`: worktrees
    somebody else added."""
    listed = list(changes_of(found))
    for name in verify.modules(snapshot.private, guarded.folders.private):
        listed.append(Change(os.fsencode(f".git/{name}"), ChangeKind.MODIFIED, True))
    names = {n for n, e in (guarded.folders.common or guarded.folders.private).get("worktrees", {}).items() if e.is_dir}
    for name in sorted((names ^ set(snapshot.siblings)) - lived_in):
        kind = ChangeKind.ADDED if name in names else ChangeKind.DELETED
        listed.append(Change(os.fsencode(f".git/worktrees/{name}/"), kind, True))
    for name in sorted(names & set(snapshot.siblings)):
        path = f"worktrees/{name}/locked"
        was, is_now = lookup(snapshot.shared, path), lookup(guarded.folders.common or guarded.folders.private, path)
        if (was.content if was else None) != (is_now.content if is_now else None):
            kind = ChangeKind.ADDED if was is None else ChangeKind.DELETED if is_now is None else ChangeKind.MODIFIED
            listed.append(Change(os.fsencode(f".git/{path}"), kind, True))
    return tuple(listed)


def head_and_stash(snapshot: Snapshot, guarded: Guarded) -> tuple[RefChange, ...]:
    """HEAD when it says something else; the stash when an entry below the first one went."""
    out = []
    if guarded.refs.head != snapshot.refs.head:
        out.append(RefChange("HEAD", snapshot.refs.head, guarded.refs.head or None))
    now = guarded.folders.common if guarded.folders.common is not None else guarded.folders.private
    was, is_now = lookup(snapshot.shared, STASH_LOG), lookup(now, STASH_LOG)
    tip = snapshot.refs.refs.get("refs/stash")
    if tip == guarded.refs.refs.get("refs/stash") and (was.content if was else b"") != (is_now.content if is_now else b""):
        out.append(RefChange("refs/stash", tip, tip))
    return tuple(out)


def commits_since(git: Git, pre_ref: str, post_ref: str | None) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """(ids, subjects) of what HEAD has and pre_ref has not, oldest first. None when it cannot be told."""
    if post_ref is None or post_ref == pre_ref:
        return (), ()
    # `rev-list`, not `log`: that one obeys log.* of the user's config, and puts what a signature check says between the lines.
    args = ("rev-list", "--reverse", f"--max-count={COMMITS}", "--encoding=UTF-8", "--format=%H %s", f"{pre_ref}..{post_ref}", "--")
    done = git.run(*args, check=False)
    if not done.ok:
        return (), ()
    lines = [line.decode("utf-8", "replace") for line in done.out.split(b"\n")[1::2]]  # every other one says `commit <id>`
    return tuple(line.partition(" ")[0] for line in lines), tuple(line.partition(" ")[2] for line in lines)


def stat_of(git: Git, pre_ref: str, found: Inspection) -> Counts:
    """Lines in and out, and an id that equal committable changes share."""
    if not found.wanted:
        return Counts(insertions=0, deletions=0, patch_id="")
    insertions = deletions = 0
    done = git.run("diff-tree", "-r", "-z", "--no-renames", "--numstat", pre_ref, found.tree, "--", check=False)
    for field in done.fields():
        parts = field.split(b"\t", 2)
        if len(parts) == 3 and parts[0].isdigit() and parts[1].isdigit():
            insertions += int(parts[0])
            deletions += int(parts[1])
    digest = hashlib.sha256()
    for path, staged in sorted(found.wanted.items()):
        digest.update(b"%s\0%o %s\0" % (os.fsencode(path), staged.mode, staged.oid.encode()))
    return Counts(insertions=insertions, deletions=deletions, patch_id=digest.hexdigest()[:40])


PIECE = 1 << 20  # bytes of a line that are looked at together


def diff_pieces(git: Git, pre_ref: str, tree: str) -> Iterator[str]:
    """The unified diff, however large, in constant memory: lines with their newline; of a longer line than `PIECE` its pieces."""
    if tree:
        yield from _pieces(git, "diff", *_PLAIN, pre_ref, tree, "--")


def history_pieces(git: Git, pre_ref: str, post_ref: str | None) -> Iterator[str]:
    """The same for each of the agent's own commits; what one adds and a later one removes stays in a history that is kept."""
    if post_ref is not None:
        yield from _pieces(git, "log", "-p", "-m", "--format=", *_PLAIN, f"{pre_ref}..{post_ref}", "--")


def messages_since(git: Git, pre_ref: str, post_ref: str | None) -> str:
    """What the agent's own commits say, whole."""
    done = git.run("log", "--format=%B", f"{pre_ref}..{post_ref}", "--", check=False) if post_ref is not None else None
    return done.out.decode("utf-8", "replace") if done is not None else ""


_PLAIN = ("--no-ext-diff", "--no-textconv", "--no-color", "--no-renames")


def _pieces(git: Git, *args: str) -> Iterator[str]:
    running = git.start(*args)  # GitPython ends the process when this object is dropped
    process = running.proc
    try:
        while piece := process.stdout.readline(PIECE):
            yield piece.decode("utf-8", "replace")
    finally:
        process.stdout.close()
        process.stderr.close()
        process.wait()
