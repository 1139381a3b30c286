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
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Literal

from evolver import reserve
from evolver.crash import crash_point
from evolver.definition import RollbackSection
from evolver.errors import EXHAUSTED, EvolverError, GitError, NotRestoredError, PreflightError
from evolver.git import Git
from evolver.layout import Layout
from evolver.model import DirtyPolicy
from evolver.resume_lock import remove_planted
from evolver.worktree import attribution, leftout
from evolver.worktree import snapshot as snapshots
from evolver.worktree import vouched as vouching
from evolver.worktree.accept import Accepting, AcceptRefused
from evolver.worktree.aside import Aside
from evolver.worktree.attempt import attempt_of, diff_pieces, history_pieces, messages_since
from evolver.worktree.baseline import take
from evolver.worktree.beside import Beside
from evolver.worktree.control import Guard, Guarded
from evolver.worktree.copies import base_of
from evolver.worktree.durable import settled_on_disk
from evolver.worktree.finishing import accepting_commit, finish
from evolver.worktree.inspect import Inspection, inspect, walk
from evolver.worktree.keeping import ATTEMPTS, TRANSIENT, anchor_refs, copy_all, copy_nested, keep_under, store_in_stash
from evolver.worktree.kept import forget_copies, prune
from evolver.worktree.manifest import Scan
from evolver.worktree.named import displaced
from evolver.worktree.preflight import IN_PROGRESS, preflight
from evolver.worktree.preserve import keep
from evolver.worktree.quiet import Quiet
from evolver.worktree.rebuild import adopt_identity, mark_replaced
from evolver.worktree.restore import files_back, index_back, journal, journal_done, state_back
from evolver.worktree.retention import altered_beside, remember_user_files, retained
from evolver.worktree.settle import settle
from evolver.worktree.site import Site
from evolver.worktree.snapshot import Snapshot
from evolver.worktree.submodules import accepted_in
from evolver.worktree.values import Accepted, Attempt, Baseline, ControlReport, Preserved, Restored, Verified
from evolver.worktree.verify import compare
from evolver.worktree.vouched import Vouched

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
    _beside: Beside = field(default_factory=Beside)
    _proof: Scan | None = None  # a walk after the last write that met nothing but the baseline
    _quiet: Quiet | None = None  # knows whether anybody wrote since that walk
    _running: bool = False  # a baseline was taken here and nothing is held yet: a resume lock that stands is none of ours
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
            taken = take(self._site, self._snapshot, iteration_id, reuse_walk=reuse)
        except OSError as error:
            if error.errno not in EXHAUSTED:
                raise
            message = f"the baseline cannot be kept: {error.strerror}" + (f": {error.filename}" if error.filename else "")
            raise PreflightError(message, "Make room, or raise the limit; nothing was changed.") from error
        self._site.write_own_stash("", ())
        self._site.lived_in.clear()
        self._snapshot, self._guarded, self._found, self._proof = taken, None, None, None
        self._control, self._altered, self._beside, self._running = ControlReport(), (), Beside(), True
        self._look_beside()
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
        report = self._guarded.report
        if self._running and remove_planted(self.layout):
            report = ControlReport(tuple(sorted({*report.changed, "evolver/resume.lock"})), report.git_replaced)
        self._control = report
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
        found = self._found = inspect(self._site, snapshot, guarded, self._beside.opaque, self._their_exclude())
        found.displaced = displaced(self._site, self._aside())
        found.modules = accepted_in(self._site, snapshot, guarded.folders.private, found.wanted)
        attempt = attempt_of(self._site, self._bare_git(), snapshot, guarded, found, self._beside, control)
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

    def preserve(self, baseline: Baseline, attempt: Attempt, *, message: str, ref: str = "", person: bool = False) -> Preserved:
        """One ordinary stash entry that holds the whole attempt. Idempotent for one attempt. Raise `GitError` when it
        cannot be made: then nothing may be restored. What no stash entry can hold (repositories in the worktree) is copied beside,
        and named by the entry, or by `ref` when there is no other need of one."""
        crash_point("preserve.before")
        snapshot, guarded, found = self._of(baseline), self._quiesced(baseline), self._inspected(baseline, attempt)
        site, ref = self._site, ref or f"{ATTEMPTS}{snapshot.iteration_id}"
        copy = partial(copy_nested, site, snapshot, guarded, found, name=ref.removeprefix(ATTEMPTS))
        kept = keep(site, snapshot, found, message=message, post_ref=attempt.post_ref, copy=copy, person=person)
        crash_point("preserve.commit")
        names = anchor_refs(self._site, snapshot, guarded.refs, self._beside.left, kept.commit)
        stash = None
        if kept.holds:
            stash = store_in_stash(site, snapshot, guarded.refs, kept, message, shared=self._beside.shared)
        elif kept.copies:  # an entry of the stash list would be empty
            names = (keep_under(site, kept, ref)[0], *names)
        crash_point("preserve.after")
        return Preserved(stash, names, self._copies(kept.copies))

    def keep_attempt(self, baseline: Baseline, attempt: Attempt, *, ref: str, message: str, all_of_it: bool = False) -> Preserved:
        """Keep the whole attempt under `ref` (a full name below refs/evolver/attempts/) or one beside it; the first of `refs` is that,
        the others are what it named itself. `all_of_it`: whatever git ignores too, since a person may have worked on it after a crash or
        during a hold; retention passes it over. Idempotent. Raise `EvolverError` or `OSError` when it cannot be kept; then
        nothing may be restored."""
        snapshot, guarded, found = self._of(baseline), self._quiesced(baseline), self._inspected(baseline, attempt)
        site, name = self._site, ref.removeprefix(ATTEMPTS)
        copy = partial(copy_nested, site, snapshot, guarded, found, name=name)
        if all_of_it:
            copy = partial(copy_all, site, snapshot, guarded, found, name=name, aside=self._aside())
        kept = keep(site, snapshot, found, message=message, post_ref=attempt.post_ref, copy=copy, ignored=True, person=all_of_it)
        crash_point("keep.before")
        name, commit = keep_under(site, kept, ref)
        names = anchor_refs(site, snapshot, guarded.refs, self._beside.left, commit)
        crash_point("keep.after")
        return Preserved(None, (name, *names), self._copies(kept.copies))

    def _copies(self, name: str) -> str:
        return str(base_of(self._site.private) / name) if name else ""

    def restore(self, baseline: Baseline, attempt: Attempt) -> Restored:
        """Put the baseline back. Idempotent; may be killed and called again, also by another process. Never raises for what
        cannot be done: `problems` names it, and `verify` has the last word. Raise `NotRestoredError`, with nothing changed, when the
        branch is checked out in another worktree now."""
        crash_point("restore.before")
        snapshot, guarded, site = self._of(baseline), self._quiesced(baseline), self._site
        self._look_beside()
        if self._beside.taken_over:
            raise NotRestoredError(self._beside.taken_over, "Switch that worktree to another branch, then run `evolver resume --rollback hard`.")
        journal(site, snapshot)
        remember_user_files(site, snapshot, altered_beside(site, snapshot, self._beside.opaque))
        # What validators did since the attempt was inspected is met by the walk below, which serves `verify` too.
        found, self._found = self._found, None
        if found is not None and not leftout.lost(site, snapshot):
            scan, changed = found.scan, found.changed
        else:  # something left out is elsewhere, perhaps by a validator: in what the list would have removed
            scan, changed = walk(site, snapshot, self._beside.opaque, name=False)
        files = files_back(site, snapshot, changed, scan.moved)
        state = state_back(site, snapshot, guarded.refs, self._beside.left, shared=self._beside.shared, unclear=self._beside.unclear)
        index = index_back(site, snapshot, changed)
        self._quiet = Quiet(site.root, snapshot.work) if not self._beside.opaque else None  # before the walk looks at anything
        scan, rest = walk(site, snapshot, self._beside.opaque, name=False)
        problems = (*files.problems, *state.problems, *index.problems)
        again = files_back(site, snapshot, rest, scan.moved)
        self._proof = scan if not rest else None
        problems += again.problems
        crash_point("restore.after")
        return Restored(files.written + again.written, files.deleted + again.deleted, state.refs, problems)

    def verify(self, baseline: Baseline) -> Verified:
        """Compare the worktree and the repository with the baseline anew."""
        self._look_beside()
        verified, scan = compare(self._site, self._of(baseline), self._beside, self._proof)
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
        return compare(self._site, self._of(baseline), self._beside, None)[0]

    def beyond_paths(self, attempt: Attempt) -> tuple[str, ...]:
        """Control files and index of the attempt, a line each with a digest: with its paths and refs, what a hold remembers it by.
        To be called while its control files are aside."""
        lines = [f"control {name} {digest}" for name, digest in self._aside().digests() if name.split("/", 1)[1] not in TRANSIENT]
        if self._found is not None and not attempt.unknown:
            index = self._found.index if attempt.index_changed else None
            lines.append(f"index {index.meaning() if index is not None else 'unchanged'}")
        return tuple(lines)

    def hold(self, baseline: Baseline, attempt: Attempt, *, without: Collection[str] = ()) -> None:
        """Mode none: put the attempt's own control files back, so that the state is as the agent left it; those in `without` (AREA/PATH,
        as in `beyond_paths`) stay the baseline's."""
        crash_point("hold.before")
        site, self._running = self._site, False
        areas = {
            "private": site.private,
            "common": site.common,
            "root": site.root,
            "above-private": site.private.parent,
            "above-common": site.common.parent,
        }
        self._aside().put_back(areas, without)
        mark_replaced(site, self._of(baseline))
        self._guarded = None
        crash_point("hold.after")

    # ------------------------------------------------------------ held, and a person vouches for it

    def vouched(self, baseline: Baseline, attempt: Attempt) -> Vouched:
        """What `commit_vouched` would commit. Changes nothing. Raise `AcceptRefused` when a person has to finish something first."""
        snapshot, guarded, found = self._of(baseline), self._quiesced(baseline), self._inspected(baseline, attempt)
        aside = {path.partition("/")[0] for path in self._aside().taken("private")}
        begun = [name for name in IN_PROGRESS if name in aside or os.path.lexists(self._site.private / name)]
        return vouching.look(self._site, snapshot, found, guarded.refs, begun)

    def commit_vouched(self, baseline: Baseline, attempt: Attempt, wanted: Vouched, *, message: str) -> str:
        """One commit on the current HEAD; every other ref, the stash and git's own files stay as they stand. Returns its id."""
        snapshot, found = self._of(baseline), self._inspected(baseline, attempt)
        remember_user_files(self._site, snapshot, found.user_untracked(snapshot))
        return vouching.commit(self._site, snapshot, found, wanted, message)

    # ------------------------------------------------------------ passed

    def settle(self, baseline: Baseline, attempt: Attempt) -> tuple[str, ...]:
        """After the validators of a passing attempt: remove what they dropped (unless ignored), put back what they
        altered. Returns the paths, as text. The attempt stays. Raise `AcceptRefused` when something cannot be put right."""
        snapshot, found = self._of(baseline), self._inspected(baseline, attempt)
        if found.refused:
            return ()  # will not be committed, so there is nothing to be made as it was validated
        try:
            settled = settle(self._site, snapshot, found, self._beside.opaque)
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
        `AcceptRefused` when it may not be made, or not all of git's state could follow it; index and branch may have moved by
        then, and rejecting the attempt puts them back."""
        snapshot, guarded, found = self._of(baseline), self._quiesced(baseline), self._inspected(baseline, attempt)
        if not attempt.committable:
            raise AcceptRefused("the attempt left nothing to commit")
        users = sorted({*found.user_untracked(snapshot), *self._altered})
        remember_user_files(self._site, snapshot, [*users, *altered_beside(self._site, snapshot, self._beside.opaque)])
        self._look_beside()
        beside = self._beside
        accepting = Accepting(
            self._site, snapshot, found, guarded.refs, attempt.commits, beside.left, beside.shared, beside.unclear, beside.taken_over
        )
        commit = accepting.run(message, commits, hooks=hooks)
        return Accepted(
            commit,
            tuple(os.fsencode(p) for p in sorted(found.wanted)),
            attempt.commits if commits == "squash" else (),
            tuple(os.fsencode(p) for p in users),
        )

    def commits_made(self, iteration_id: str, pre_ref: str, post_ref: str | None) -> str | None:
        """Recovery: the accepting commit of `iteration_id`, if the branch has it between `pre_ref` and its tip. A person may have
        committed on top of it. `post_ref`: what the attempt itself had committed is none."""
        return accepting_commit(self._site, self._snapshot, iteration_id, pre_ref, post_ref)

    def finish_accept(self, baseline: Baseline, commit: str) -> tuple[str, ...]:
        """Recovery: `accept` was killed after its commit was made. Index, HEAD and refs are as they should be then; put back the stash
        list, and what else of git's state the attempt took away. What a person added since stays. Returns the commit's paths, as
        text. Idempotent. Raise `NotRestoredError` when it cannot be done."""
        finish(self._site, self._of(baseline), self._quiesced(baseline), self._beside.left, commit, shared=self._beside.shared)
        listed = self._site.git.run("diff-tree", "-r", "-z", "--no-renames", "--name-only", baseline.pre_ref, commit, "--")
        return tuple(p.decode("utf-8", "backslashreplace") for p in listed.fields())

    def release(self) -> None:
        """The run ended verified: prune vault and lifeboat, except `head` and the user's bytes of accepted attempts of
        the last 14 days."""
        crash_point("release.before")
        settled_on_disk((self._site.common, self._site.private, self._site.root), self.layout.vault)
        self._prune_attempts()
        attribution.forget_anchors(self._site)
        forget_copies(self._site.git)
        self._aside().discard()
        self._site.vault.keep_only(retained(self._site))
        self._site.boat.prune()
        reserve.let_go(self.layout.reserve)
        self._snapshot, self._guarded, self._found, self._proof = None, None, None, None
        self._site.unpin()
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
        now = self._guarded.refs if self._guarded is not None else None
        self._beside = self._beside.look(self._site, self._snapshot, now)
