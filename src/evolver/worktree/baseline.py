"""Takes a baseline: walks, reads what must be kept, and has it on disk twice before the agent may start.

What a first baseline costs: one walk, one `git status`, one parse of the index, and the bytes of everything that clean HEAD blobs cannot
give back. Later ones: one walk, and what changed.
"""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace

from evolver.crash import crash_point
from evolver.errors import PreflightError
from evolver.worktree import leftout, manifest, mounts, refs, xattrs
from evolver.worktree.anchor import Anchor, read_regular
from evolver.worktree.blobs import Blobs
from evolver.worktree.content import Content, compared, digests, kept, link_or_special
from evolver.worktree.gitwalk import GitFolders, walk_git
from evolver.worktree.holdings import check_room, dirty
from evolver.worktree.ignored import Budget, Status, leave_new, measured, read_status
from evolver.worktree.index import Index, IndexDamaged, parse, tree_oid
from evolver.worktree.manifest import UNKNOWN, Entry, Scan, Tree, split
from evolver.worktree.site import Site
from evolver.worktree.snapshot import DotGit, Snapshot, encode

TRIES = 10


def take(site: Site, known: Snapshot | None, iteration_id: str, *, reuse_walk: bool) -> Snapshot:
    """Again when something went away between being listed and being read: a build in another worktree below this one, say."""
    for _ in range(TRIES):
        try:
            return Taking(site, known, iteration_id, reuse_walk=reuse_walk).take()
        except FileNotFoundError as error:
            gone = error.filename
            time.sleep(0.05)
    raise PreflightError(
        f"{gone} went away while the baseline was taken, {TRIES} times in a row",
        "Something writes here all the time: end it, or leave its folder out with `[rollback] leave`.",
    )


@dataclass
class Taking:
    """One baseline being taken."""

    site: Site
    known: Snapshot | None
    iteration_id: str
    reuse_walk: bool = False  # nobody touched the worktree since the walk that verified the last rollback
    status: Status | None = None
    blobs: Blobs | None = None
    index_mtime_ns: int = 0
    _opaque: frozenset[str] = frozenset()
    _left: tuple[str, ...] = ()
    _mounts: frozenset[str] = frozenset()

    def take(self) -> Snapshot:
        crash_point("baseline.before")
        site, known = self.site, self.known
        site.vault.prepare()
        site.boat.launch()
        if not site.pinned or known is None:
            site.pin_config()
        site.boat.stow()
        crash_point("baseline.objects")
        folders = walk_git(site, known, keep=True)
        found, index = self._refs_and_index(folders)
        work, changed = self._walk(found, index)
        self._mounts = mounts.inside(site.root)
        same_root = known is not None and known.root_mode == site.root.stat().st_mode & 0o7777 and known.mounts == self._mounts
        if known is not None and same_root and not changed and not folders.changed:
            known.iteration_id, known.own_stash = self.iteration_id, ()
            known.git_trusted = folders.trusted
            return known
        snapshot = self._snapshot(folders, found, index, work)
        snapshot.seal()
        crash_point("baseline.vault")
        site.vault.sync()
        if not site.vault.has_baseline(snapshot.fingerprint):
            site.vault.write_baseline(snapshot.fingerprint, encode(snapshot))
        crash_point("baseline.lifeboat")
        return snapshot

    def _refs_and_index(self, folders: GitFolders) -> tuple[refs.Refs, Index]:
        site, known = self.site, self.known
        common = folders.common if folders.common is not None else folders.private
        packed = b""
        with suppress(FileNotFoundError):
            packed = read_regular(site.common / "packed-refs")
        found = refs.read(folders.private, common, packed)
        entry = folders.private.get("", {}).get("index")
        before = known.private.get("", {}).get("index") if known is not None else None
        if known is not None and before is not None and entry is not None and before.content == entry.content:
            index = known.index
        else:
            raw = read_regular(site.private / "index") if entry is not None else b""
            head = found.commit or ""
            try:
                index = parse(raw, 20 if len(head) == 40 else 32)
            except IndexDamaged as error:
                raise PreflightError(f"git's index cannot be read: {error}", "`git reset` makes a new one.") from error
        if b"link" in index.extensions:
            raise PreflightError("the index is split (core.splitIndex)", "Run `git update-index --no-split-index` once.")
        with suppress(FileNotFoundError):
            self.index_mtime_ns = (site.private / "index").stat().st_mtime_ns
        return found, index

    # ------------------------------------------------------------ the worktree

    def _walk(self, found: refs.Refs, index: Index) -> tuple[Scan, bool]:
        """The walk, with the content of every entry known; and whether anything differs from the known baseline."""
        site, known = self.site, self.known
        astray = leftout.lost(site, known) if known is not None else {}
        if self.reuse_walk and known is not None and index is known.index and not astray:
            return Scan(known.work, trusted=known.work_trusted), False
        with Anchor(site.root) as anchor:
            opaque = {".git"}
            if known is None:
                self.status = read_status(site.git)
                budget = Budget(site.rollback, self.status.ignored)
                opaque |= budget.folders()
                result = manifest.scan(anchor.top, opaque=opaque)
                out, names = budget.decide(anchor, result)
                self._opaque, self._left = frozenset(out), tuple(names)
            else:
                work, gone = leftout.renewed(known, astray)
                self._opaque, self._left = known.opaque - gone, leftout.without(known.left, gone)
                result = manifest.scan(anchor.top, work, opaque=opaque | self._opaque, trusted_ns=known.work_trusted)
            top = result.tree[""]
            if ".git" in top:
                result.tree[""] = {n: e for n, e in top.items() if n != ".git"}
                result.touched = [p for p in result.touched if p != ".git"]
            if known is not None and result.tree[""] == known.work.get("", {}):
                result.tree[""] = known.work[""]
            if known is not None and not astray and index is known.index and not result.unreadable and self._unchanged(anchor, result, known):
                known.work_trusted = result.trusted_ns
                return result, False
            if known is not None:
                self.status = read_status(site.git)
                settled = known.ignored - gone
                inside = [measured(result, top) for top in settled & self.status.ignored]
                kept_already = (sum(n for _, n in inside), sum(s for s, _ in inside))
                out_now = leave_new(site.rollback, result, settled, self.status.ignored, kept_already)
                self._opaque |= set(out_now)
                self._left = tuple(sorted({*self._left, *out_now}))
            self._read(anchor, result, found, index)
        if result.unreadable:
            if not os.path.lexists(site.root / result.unreadable[0].partition(":")[0]):
                raise FileNotFoundError(2, "went away", result.unreadable[0])
            raise PreflightError(f"{result.unreadable[0]} cannot be read", "Make it readable for this user, or ignore and leave it.")
        return result, True

    def _unchanged(self, anchor: Anchor, result: Scan, known: Snapshot) -> bool:
        """Only touched, or restored so shortly ago that stat data prove nothing: the bytes are compared."""
        changed = manifest.differences(known.work, result, compared(anchor, known.algorithm), {".git"} | known.opaque)
        for path in result.touched:
            folder, name = split(path)
            if path in changed:
                entry = result.tree[folder][name]
                result.tree[folder][name] = entry if entry.is_dir else entry._replace(content=UNKNOWN)
            elif folder in known.work:
                known.work[folder][name] = result.tree[folder][name]
        return not changed

    def _read(self, anchor: Anchor, result: Scan, found: refs.Refs, index: Index) -> None:
        known = self.known
        blobs = self.blobs = Blobs(self.site.git, index, known)
        check_room(self.site, result, index, self.status.ignored if self.status is not None else frozenset())
        read = kept(anchor, self.site.vault, inline=False)
        attributes = xattrs.bearing(self.site.root, self._unread(result))
        for path in result.touched:
            folder, name = split(path)
            entry = result.tree[folder][name]
            if entry.is_dir or entry.content != UNKNOWN:
                continue
            content = self._content(anchor, blobs, read, path, entry, index)
            if path in attributes:
                content += xattrs.MARK + self.site.vault.put(attributes[path]).encode()
            result.tree[folder][name] = entry._replace(content=content)

    def _unread(self, result: Scan) -> Iterator[tuple[str, str]]:
        """Folder and name of every regular file that is to be read."""
        known = self.known.work if self.known is not None else {}
        for folder, content in result.tree.items():
            if content is not known.get(folder):
                yield from ((folder, name) for name, entry in content.items() if entry[7] == UNKNOWN and stat.S_ISREG(entry[0]))

    def _content(self, anchor: Anchor, blobs: Blobs, read: Content, path: str, entry: Entry, index: Index) -> bytes:
        fixed = link_or_special(anchor, path, entry)
        if fixed is not None:
            return fixed
        staged = index.entries.get(path)
        try:
            if staged is not None and not blobs.partial and stat.S_ISREG(staged.mode):
                if blobs.surely(path, entry, staged, self.index_mtime_ns):
                    return b"b" + staged.oid.encode()
                fd = anchor.open_file(path)
                try:
                    oid, _ = digests(fd, blobs.algorithm)
                finally:
                    os.close(fd)
                if oid == staged.oid:
                    return b"b" + oid.encode()
            return read(path, entry, None)
        except PermissionError as error:
            raise PreflightError(f"{path} cannot be read", "Make it readable for this user, or ignore and leave it.") from error

    # ------------------------------------------------------------ the value

    def _snapshot(self, folders: GitFolders, found: refs.Refs, index: Index, work: Scan) -> Snapshot:
        site, known = self.site, self.known
        commit = found.commit
        if commit is None:
            raise PreflightError("HEAD points at no commit", "Commit once, then run evolver.")
        dotgit = DotGit.of(site.root, site.private, site.common)
        if dotgit is None:
            raise PreflightError(f"{site.root}/.git went away", "Run evolver again.")
        siblings = _siblings(folders.common if folders.common is not None else folders.private)
        if known is not None and known.pre_ref == commit:
            head_tree = known.head_tree
        else:
            head_tree = site.git.text("rev-parse", f"{commit}^{{tree}}")
        base = Snapshot(
            pre_ref=commit,
            head_tree=head_tree,
            refs=found,
            work=work.tree,
            private=folders.private,
            common=folders.common,
            index=index,
            dotgit=dotgit,
            opaque=self._opaque,
            left=self._left,
            siblings=siblings,
            algorithm="sha1" if len(commit) == 40 else "sha256",
            partial=self.blobs.partial if self.blobs is not None else known.partial if known is not None else False,
            work_trusted=work.trusted_ns,
            taken_ns=work.trusted_ns,
            git_trusted=folders.trusted,
            root_mode=site.root.stat().st_mode & 0o7777,
            mounts=self._mounts,
            iteration_id=self.iteration_id,
            digests=known.digests if known is not None else {},
        )
        status = self.status
        if status is None and known is not None and known.pre_ref == commit and index is known.index:
            return replace(base, ignored=known.ignored, dirty=known.dirty, staged=known.staged)
        if status is None:
            status = read_status(site.git)
        staged = tree_oid(index) != head_tree and bool(status.staged)
        return replace(base, ignored=status.ignored, dirty=dirty(base, status), staged=staged)


def _siblings(common: Tree) -> tuple[str, ...]:
    return tuple(sorted(name for name, entry in common.get("worktrees", {}).items() if entry.is_dir))

