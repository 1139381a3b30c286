"""The locked worktree of one run: the only object that may change what the user has.

The facade over manifest, vault, control guard, preserve, restore and verify; `iteration.py`, `recovery.py` and `resume.py`
know nothing below it. The caller holds `run.lock` for as long as it uses a `Workspace`.

Order of calls in one iteration (after quiesce nothing else may write to the tree):

    baseline -> [agent] -> guard_control -> inspect -> (diff) -> [validators] -> guard_control ->
        settle -> accept                                            (passing)
        preserve (stash) | keep_attempt -> restore -> verify        (rejected; hard, stash)
        hold                                                        (rejected; none)

`guard_control` comes before any other call after anything foreign (agent or validator) ran.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Literal

from evolver import reserve
from evolver.crash import crash_point
from evolver.definition import RollbackSection
from evolver.errors import EXHAUSTED, EvolverError, GitError, NotRestoredError, PreflightError
from evolver.git import Git
from evolver.layout import Layout
from evolver.model import DirtyPolicy
from evolver.worktree import mounts, refs
from evolver.worktree import snapshot as snapshots
from evolver.worktree import verify as verifying
from evolver.worktree.accept import Accepting, AcceptRefused
from evolver.worktree.aside import Aside
from evolver.worktree.attempt import (
    commits_since,
    describe,
    diff_pieces,
    head_and_stash,
    history_pieces,
    messages_since,
    stat_of,
)
from evolver.worktree.baseline import Taking
from evolver.worktree.control import Guard, Guarded
from evolver.worktree.gitwalk import walk_git
from evolver.worktree.inspect import Inspection, inspect, walk
from evolver.worktree.keeping import anchor_refs, store_in_stash
from evolver.worktree.kept import prune
from evolver.worktree.manifest import Scan
from evolver.worktree.preflight import preflight
from evolver.worktree.preserve import keep
from evolver.worktree.quiet import Quiet
from evolver.worktree.rebuild import adopt_identity, is_replaced
from evolver.worktree.restore import files_back, index_back, journal, journal_done, state_back
from evolver.worktree.retention import remember_user_files, retained
from evolver.worktree.settle import settle
from evolver.worktree.siblings import siblings, worked_in
from evolver.worktree.site import Site
from evolver.worktree.snapshot import Snapshot
from evolver.worktree.values import Accepted, Attempt, Baseline, ControlReport, Preserved, Restored, Verified

DEFAULT_MAX_VAULT = 2 << 30  # bytes of untracked files a run may have to keep

__all__ = ["DEFAULT_MAX_VAULT", "AcceptRefused", "Workspace"]


@dataclass
class Workspace:
    """Baseline, restore, accept. One object a run, so that unchanged files are not read again in the next iteration."""

    layout: Layout
    _site: Site
    _snapshot: Snapshot | None = None
    _guarded: Guarded | None = None
    _control: ControlReport = field(default_factory=ControlReport)
    _found: Inspection | None = None
    _left: frozenset[str] = frozenset()
    _opaque: frozenset[str] = frozenset()
    _shared: bool = False  # another run is active in a sibling worktree
    _proof: Scan | None = None  # a walk after the last write that met nothing but the baseline
    _quiet: Quiet | None = None  # knows whether anybody wrote since that walk
    _altered: tuple[str, ...] = ()  # ignored files of the user that the validators of a passing attempt changed

    @classmethod
    def open(
        cls,
        layout: Layout,
        *,
        rollback: RollbackSection,
        scope: str = ".",
        max_vault: int = DEFAULT_MAX_VAULT,
        env: Mapping[str, str] = os.environ,
    ) -> Workspace:
        """Runs no git command and changes nothing: an attempt may still lie in the tree (recovery, resume)."""
        return cls(layout, Site.make(layout, rollback, scope, max_vault, env))

    # ------------------------------------------------------------ before the agent

    def preflight(self, *, dirty: DirtyPolicy) -> None:
        """Raise `PreflightError` (message: what; hint: what to do) when a run must not start here. Changes nothing."""
        preflight(self._site, dirty)

    def baseline(self, iteration_id: str) -> Baseline:
        """Everything the user has, now. Vault and lifeboat are synced when it returns. Raise `PreflightError` when it
        cannot be kept (too large, too little disk)."""
        self._prune_attempts()
        self._aside().discard()
        try:
            quiet, self._quiet = self._quiet, None
            reuse = quiet is not None and self._proof is not None and quiet.undisturbed()
            taken = Taking(self._site, self._snapshot, iteration_id, reuse_walk=reuse).take()
        except OSError as error:
            if error.errno not in EXHAUSTED:
                raise
            message = f"the baseline cannot be kept: {error.strerror}" + (f": {error.filename}" if error.filename else "")
            raise PreflightError(message, "Make room, or raise the limit; nothing was changed.") from error
        self._site.write_own_stash("", ())
        self._snapshot, self._guarded, self._found, self._proof = taken, None, None, None
        self._control, self._altered = ControlReport(), ()
        reserve.hold(self.layout.reserve)
        crash_point("baseline.after")
        return taken.value(self.layout.vault)

    def load_baseline(self, fingerprint: str) -> Baseline:
        """A baseline that an earlier process took. Raise `EvolverError` when the vault does not hold it (any more).
        Looks into the lifeboat when `.git` is gone; runs no git command."""
        if self._snapshot is None or self._snapshot.fingerprint != fingerprint:
            site = self._site
            data = site.vault.read_baseline(fingerprint)
            self._snapshot = snapshots.decode(data, site.vault.content_bytes)
            self._snapshot.fingerprint = fingerprint
            adopt_identity(site, self._snapshot)
            self._snapshot.own_stash = site.read_own_stash(fingerprint)
            self._guarded, self._found, self._proof, self._control = None, None, None, ControlReport()
        return self._snapshot.value(self.layout.vault)

    # ------------------------------------------------------------ after the agent

    def guard_control(self, baseline: Baseline) -> ControlReport:
        """Compare git's control files with the baseline and put them back by plain file operations; rebuild a deleted or
        replaced `.git`, evolver's own state folder included. To be called before any git command after an agent or a
        validator ran. The report accumulates over the calls since `baseline`."""
        snapshot = self._of(baseline)
        self._proof = self._quiet = None
        reserve.let_go_if_needed(self.layout.reserve)
        self._site.repin()
        self._guarded = Guard(self._site, snapshot, self._aside()).run(self._control)
        self._site.vault.mend()
        if not self._site.vault.has_baseline(snapshot.fingerprint):  # an agent removed it in both places: we still know it
            self._site.vault.prepare()
            self._site.vault.write_baseline(snapshot.fingerprint, snapshots.encode(snapshot))
        self._control = self._guarded.report
        self._look_beside()
        return self._control

    def inspect(self, baseline: Baseline, control: ControlReport) -> Attempt:
        """What changed since the baseline. Also seals it: the tree that a commit of the attempt would have is written
        (`Attempt.tree`), so that what validators alter later can be told from the attempt. What git or the disk will not
        tell is no exception but `Attempt.unknown`: such an attempt can be undone, never committed or kept aside."""
        snapshot, guarded = self._of(baseline), self._quiesced(baseline)
        try:
            return self._inspect(snapshot, guarded, control)
        except (GitError, OSError) as error:
            self._found = None
            return Attempt(guarded.refs.commit, guarded.refs.branch, control=control, unknown=str(error))

    def _inspect(self, snapshot: Snapshot, guarded: Guarded, control: ControlReport) -> Attempt:
        found = self._found = inspect(self._site, snapshot, guarded, self._opaque, self._their_exclude())
        moved = refs.changes(snapshot.refs, guarded.refs)
        commits, subjects = commits_since(self._site.git, snapshot.pre_ref, guarded.refs.commit)
        attempt = Attempt(
            post_ref=guarded.refs.commit,
            branch=guarded.refs.branch,
            changes=describe(found, snapshot, guarded),
            refs=(*head_and_stash(snapshot, guarded), *(r for r in moved if r.name not in self._left)),
            commits=commits,
            commit_subjects=subjects,
            index_changed=found.index_changed,
            control=control,
            committable=bool(found.wanted or found.oversized),
            oversized=found.oversized,
            refs_left=tuple(r.name for r in moved if r.name in self._left),
            tree=found.tree,
            mounts=tuple(mounts.differences(snapshot.mounts, mounts.inside(self._site.root))),
            **stat_of(self._bare_git(), snapshot.pre_ref, found),
        )
        crash_point("inspect.after")
        return attempt

    def diff(self, baseline: Baseline, attempt: Attempt) -> Iterator[str]:
        """Unified diff of the committable part, a line at a time; a line of megabytes comes in pieces."""
        return diff_pieces(self._bare_git(), baseline.pre_ref, attempt.tree)

    def history(self, baseline: Baseline, attempt: Attempt) -> tuple[str, Iterator[str]]:
        """What the agent's own commits say, and the diff of each."""
        git = self._bare_git()
        return messages_since(git, baseline.pre_ref, attempt.post_ref), history_pieces(git, baseline.pre_ref, attempt.post_ref)

    # ------------------------------------------------------------ rejected

    def preserve(self, baseline: Baseline, attempt: Attempt, *, message: str) -> Preserved:
        """One ordinary stash entry that holds the whole attempt. Idempotent for one attempt. Raise `GitError` when it
        cannot be made: then nothing may be restored."""
        crash_point("preserve.before")
        snapshot, guarded, found = self._of(baseline), self._quiesced(baseline), self._inspected(baseline, attempt)
        kept = keep(self._site, snapshot, found, message=message, post_ref=attempt.post_ref)
        crash_point("preserve.commit")
        names = anchor_refs(self._site, snapshot, guarded.refs, self._left, kept.commit)
        stash = None
        if kept.holds:
            stash = store_in_stash(self._site, snapshot, guarded.refs, kept, message, shared=self._shared)
        crash_point("preserve.after")
        return Preserved(stash, names)

    def keep_attempt(self, baseline: Baseline, attempt: Attempt, *, ref: str, message: str) -> str:
        """Keep the whole attempt under `ref` (a full name below refs/evolver/attempts/); returns the commit id."""
        snapshot, found = self._of(baseline), self._inspected(baseline, attempt)
        kept = keep(self._site, snapshot, found, message=message, post_ref=attempt.post_ref, ignored=True)
        self._site.git.run("update-ref", ref, kept.commit)
        crash_point("keep.after")
        return kept.commit

    def restore(self, baseline: Baseline, attempt: Attempt) -> Restored:
        """Put the baseline back. Idempotent; may be killed and called again, also by another process. Never raises for what
        cannot be done: `problems` names it, and `verify` has the last word."""
        crash_point("restore.before")
        snapshot, guarded, site = self._of(baseline), self._quiesced(baseline), self._site
        journal(site, snapshot)
        # What validators did since the attempt was inspected is met by the walk below, which serves `verify` too.
        changed = self._found.changed if self._found is not None else walk(site, snapshot, self._opaque, name=False)[1]
        self._found = None
        files = files_back(site, snapshot, changed)
        state = state_back(site, snapshot, guarded.refs, self._left, shared=self._shared)
        index = index_back(site, snapshot, changed)
        self._quiet = Quiet(site.root, snapshot.work) if not self._opaque else None  # before the walk looks at anything
        scan, rest = walk(site, snapshot, self._opaque, name=False)
        problems = (*files.problems, *state.problems, *index.problems)
        again = files_back(site, snapshot, rest)
        self._proof = scan if not rest else None
        problems += again.problems
        crash_point("restore.after")
        return Restored(files.written + again.written, files.deleted + again.deleted, state.refs, problems)

    def verify(self, baseline: Baseline) -> Verified:
        """Compare the worktree and the repository with the baseline anew."""
        verified, scan = self._compare(baseline, self._proof)
        snapshot = self._of(baseline)
        if verified.equal:
            snapshot.work_trusted = scan.trusted_ns
            journal_done(self._site)
        if not verified.equal or scan is not self._proof:
            self._quiet = None  # what it watched over is not what was verified
        return verified

    def fingerprint_now(self, baseline: Baseline) -> Verified:
        """What differs from the baseline now (stat data aside). Works on a held tree; changes nothing in it."""
        self._look_beside()
        return self._compare(baseline, None)[0]

    def hold(self, baseline: Baseline, attempt: Attempt) -> None:
        """Mode none: put the attempt's own control files back, so that the state is as the agent left it."""
        crash_point("hold.before")
        site = self._site
        areas = {
            "private": site.private,
            "common": site.common,
            "root": site.root,
            "above-private": site.private.parent,
            "above-common": site.common.parent,
        }
        self._aside().put_back(areas)
        self._guarded = None
        crash_point("hold.after")

    # ------------------------------------------------------------ passed

    def settle(self, baseline: Baseline, attempt: Attempt) -> tuple[str, ...]:
        """After the validators of a passing attempt: remove what they dropped (unless ignored), put back what they
        altered. Returns the paths, as text. The attempt stays. Raise `AcceptRefused` when something cannot be put right."""
        snapshot, found = self._of(baseline), self._inspected(baseline, attempt)
        try:
            settled = settle(self._site, snapshot, found, self._opaque)
        except (GitError, OSError) as error:
            raise AcceptRefused(f"what the validators left could not be put right: {error}") from error
        if settled.problems:
            raise AcceptRefused(f"what the validators left could not be put right: {settled.problems[0]}")
        self._altered = settled.users
        crash_point("settle.after")
        return settled.put_right

    def accept(
        self,
        baseline: Baseline,
        attempt: Attempt,
        *,
        message: str,
        commits: Literal["squash", "keep"] = "squash",
        hooks: bool = False,
    ) -> Accepted:
        """One commit on the baseline's branch whose tree is `attempt.tree`; `message` brings its trailers along. Raise
        `AcceptRefused` when it may not be made; then nothing has changed and the attempt is to be rejected."""
        snapshot, guarded, found = self._of(baseline), self._quiesced(baseline), self._inspected(baseline, attempt)
        if not attempt.committable:
            raise AcceptRefused("the attempt left nothing to commit")
        users = sorted({*found.user_untracked(snapshot), *self._altered})
        remember_user_files(self._site, snapshot, users)
        accepting = Accepting(self._site, snapshot, found, guarded.refs, attempt.commits, self._left, self._shared)
        commit = accepting.run(message, commits, hooks=hooks)
        return Accepted(
            commit,
            tuple(os.fsencode(p) for p in sorted(found.wanted)),
            attempt.commits if commits == "squash" else (),
            tuple(os.fsencode(p) for p in users),
        )

    def commits_made(self, iteration_id: str, pre_ref: str) -> str | None:
        """Recovery: the accepting commit of `iteration_id`, if the branch already has it on top of `pre_ref`."""
        git = self._site.git
        snapshot = self._snapshot
        branch = (snapshot.refs.branch if snapshot is not None else None) or "HEAD"
        done = git.run("log", "-1", "--format=%H%x00%(trailers:key=Evolver-Iteration,valueonly)", branch, check=False)
        commit, _, trailers = done.text.partition("\0")
        if not done.ok or iteration_id not in trailers.split():
            return None
        return commit if git.run("merge-base", "--is-ancestor", pre_ref, commit, check=False).ok and commit != pre_ref else None

    def finish_accept(self, baseline: Baseline, commit: str) -> tuple[str, ...]:
        """Recovery: `accept` was killed after its commit was made; do what was still to do (index, other refs, droppings).
        Returns the commit's paths, as text. Idempotent."""
        listed = self._site.git.run("diff-tree", "-r", "-z", "--no-renames", "--name-only", baseline.pre_ref, commit)
        return tuple(p.decode("utf-8", "backslashreplace") for p in listed.fields())

    def release(self) -> None:
        """The run ended verified: prune vault and lifeboat, except `head` and the user's bytes of accepted attempts of
        the last 14 days."""
        crash_point("release.before")
        self._prune_attempts()
        self._aside().discard()
        self._site.vault.keep_only(retained(self._site))
        self._site.boat.prune()
        reserve.let_go(self.layout.reserve)
        self._snapshot, self._guarded, self._found, self._proof = None, None, None, None
        self._site.pinned = False
        crash_point("release.after")

    # ------------------------------------------------------------ parts

    def _of(self, baseline: Baseline) -> Snapshot:
        if self._snapshot is None or self._snapshot.fingerprint != baseline.fingerprint:
            raise EvolverError(f"baseline {baseline.fingerprint[:16]} is not the one in hand", "This is a bug in evolver.")
        return self._snapshot

    def _aside(self) -> Aside:
        return Aside(self.layout.state / "aside" / "attempt")

    def _prune_attempts(self) -> None:
        """`[rollback] keep_attempts`: the oldest kept ones go, between iterations, when nothing foreign is at work."""
        if self._site.rollback.keep_attempts:
            prune(self._site.git, self._site.rollback.keep_attempts)

    def _bare_git(self) -> Git:
        """For comparing trees: git would read .gitattributes of the worktree, where an attempt may have put a FIFO (hazard 38)."""
        return self._site.git.but(work_tree=self._site.boat.folder)

    def _their_exclude(self) -> bytes | None:
        """The attempt's `info/exclude`, when it changed it: what it hid or showed by that belongs to the attempt."""
        if "info/exclude" not in self._control.changed:
            return None
        body = self._aside().body_of("info/exclude")
        return body.read_bytes() if body is not None and body.is_file() else b""

    def _quiesced(self, baseline: Baseline) -> Guarded:
        if self._guarded is None:
            self.guard_control(baseline)
        if self._guarded is None:
            raise NotRestoredError("git's control files could not be compared", f"The baseline is in {self.layout.vault}.")
        return self._guarded

    def _inspected(self, baseline: Baseline, attempt: Attempt) -> Inspection:
        """The inspection this attempt came from; made again in a process that has none."""
        if self._found is None:
            attempt = self.inspect(baseline, attempt.control)
        if self._found is None:
            raise NotRestoredError(f"it cannot be read: {attempt.unknown}", f"The baseline is in {self.layout.vault}.")
        return self._found

    def _look_beside(self) -> None:
        """Refs that are not this run's to move, and folders where another run works."""
        others = siblings(self._site)
        snapshot, guarded = self._snapshot, self._guarded
        self._shared = any(s.active for s in others)
        self._opaque = worked_in(self._site, others)
        existed = set(snapshot.siblings) if snapshot is not None else set()
        left = {s.branch for s in others if s.branch is not None and (s.folder == self._site.common or s.folder.name in existed)}
        own = snapshot.refs.branch if snapshot is not None else None
        if self._shared and snapshot is not None and guarded is not None:
            left |= {r.name for r in refs.changes(snapshot.refs, guarded.refs) if r.name != refs.STASH}
        self._left = frozenset(name for name in left if name is not None and name != own)

    def _compare(self, baseline: Baseline, proof: Scan | None) -> tuple[Verified, Scan]:
        snapshot, site = self._of(baseline), self._site
        differences: list[str] = []
        if proof is None:
            proof, changed = walk(site, snapshot, self._opaque, name=False)
            differences += verifying.worktree(changed)
        differences += [f"{path}: cannot be read" for path in proof.unreadable]
        if site.root.stat().st_mode & 0o7777 != snapshot.root_mode:
            differences.append("the mode of the worktree's own folder differs")
        differences += mounts.differences(snapshot.mounts, mounts.inside(site.root))
        if is_replaced(site, snapshot):
            differences.insert(0, ".git is not the one of the baseline")
        else:
            folders = walk_git(site, snapshot, keep=False)
            differences += verifying.repository(site, snapshot, folders, self._left, shared=self._shared)
        return Verified(tuple(differences[: verifying.NAMED]), snapshot.left), proof

