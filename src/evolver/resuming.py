"""A person's decision about a held tree: nothing changed, keep it, or roll it back. Never an agent's."""

from __future__ import annotations

import getpass
from collections.abc import Mapping
from dataclasses import dataclass

from evolver.carrying import carry
from evolver.changes.within import ChangesLogAt
from evolver.definition import LoopDefinition
from evolver.errors import ExitStatus, HeldError, UsageError
from evolver.events.types import RunResumed
from evolver.holding import drift, held_lines, planted
from evolver.keeping import stored_definition
from evolver.layout import Layout
from evolver.machine import IterationState, Phase
from evolver.model import Judgement, RollbackMode, Verdict
from evolver.opening import Opened
from evolver.rejecting import Rejection
from evolver.resume_lock import ResumeLock, read, remove
from evolver.telling import text_path
from evolver.worktree.values import Attempt, Baseline, ChangeKind
from evolver.worktree.vouched import Vouched
from evolver.worktree.workspace import AcceptRefused


@dataclass(frozen=True, slots=True)
class Held:
    """A held tree as it is now, seen against the baseline and against what it was when the loop stopped."""

    lock: ResumeLock
    baseline: Baseline
    attempt: Attempt
    drifted: tuple[str, ...]  # what a validator, a person or anything else changed since the agent had finished
    effects: tuple[str, ...] = ()  # outside the worktree, in force, and reverted by rolling back
    planted: tuple[str, ...] = ()  # git's own files that nobody changed since the attempt did: AREA/PATH

    def restores(self) -> tuple[str, ...]:
        """Paths that rolling back would write again."""
        return tuple(text_path(c.path) for c in self.attempt.changes if c.kind is not ChangeKind.ADDED)

    def deletes(self) -> tuple[str, ...]:
        """Paths that rolling back would remove."""
        return tuple(text_path(c.path) for c in self.attempt.changes if c.kind is ChangeKind.ADDED)


@dataclass(frozen=True, slots=True)
class Decision:
    """How `resume` ended."""

    action: str  # nothing | unchanged | kept | rolled_back | undecided | not_restored
    exit_code: ExitStatus
    detail: str = ""
    stash: str | None = None
    commit: str | None = None
    kept: tuple[str, ...] = ()  # where what a person may have changed since the stop is kept, the attempt with it; then refs it named
    copies: str = ""  # folder with what no commit can hold
    put_back: tuple[str, ...] = ()  # keeping: git's own files that are the baseline's again, AREA/PATH


def refuse_agents(env: Mapping[str, str]) -> None:
    """An agent cannot vouch for its own work: `HeldError` inside a step."""
    if env.get("EVOLVER_RUN_ID"):
        raise HeldError(
            "`evolver resume` was called from inside a run (EVOLVER_RUN_ID is set)",
            "Only a person may resume; call it from your own shell.",
        )


class Resume:
    """One resume lock being decided on. The worktree is locked, and a dead run is recovered."""

    def __init__(self, opened: Opened) -> None:
        self.opened = opened
        self.layout: Layout = opened.layout

    def look(self) -> Held | None:
        """The held tree; None when nothing is held. Git's control files are the baseline's until `leave` or a decision."""
        lock = read(self.layout)
        if lock is None:
            return None
        workspace = self.opened.workspace
        baseline = workspace.load_baseline(lock.baseline)
        control = workspace.guard_control(baseline)
        self.opened.log.ensure_present()
        attempt = workspace.inspect(baseline, control)
        beyond = workspace.beyond_paths(attempt)
        effects = self.opened.effects(lock.run_id).standing(lock.iteration_id)
        return Held(lock, baseline, attempt, drift(lock.held, held_lines(attempt, beyond)), effects, planted(lock.held, beyond))

    def leave(self, held: Held) -> Decision:
        """Decide nothing: the tree stays as it is, and so does the lock."""
        self.opened.workspace.hold(held.baseline, held.attempt)
        return Decision("undecided", ExitStatus.HELD)

    def unchanged(self, held: Held, note: str) -> Decision:
        """The tree equals the baseline: there is nothing to decide."""
        self._resumed(held, "unchanged", held.attempt.post_ref, note)
        return Decision("unchanged", ExitStatus.ACCEPTED)

    def keep(self, held: Held, note: str) -> Decision:
        """A person vouches for the tree as it stands: commit it on their HEAD, or adopt HEAD when nothing is uncommitted. Config and
        hooks that are still as the attempt left them go back to the baseline, as on acceptance; what a person made of them stays."""
        lock, workspace = held.lock, self.opened.workspace
        message = "\n".join(
            [
                f"evolver: keep held iteration {lock.iteration}",
                "",
                *([note, ""] if note else []),
                f"Evolver-Run: {lock.run_id}",
                f"Evolver-Iteration: {lock.iteration_id}",
                "Evolver-Kept-By: a person",
                "",
            ]
        )
        try:
            wanted = self.to_keep(held)
            commit = workspace.commit_vouched(held.baseline, held.attempt, wanted, message=message)
        except BaseException:
            workspace.hold(held.baseline, held.attempt)
            raise
        workspace.hold(held.baseline, held.attempt, without=held.planted)
        self._resumed(held, "kept", commit, note)
        return Decision("kept", ExitStatus.ACCEPTED, commit=commit, put_back=held.planted)

    def to_keep(self, held: Held) -> Vouched:
        """What `keep` would commit. Raise `UsageError` when it cannot."""
        try:
            return self.opened.workspace.vouched(held.baseline, held.attempt)
        except AcceptRefused as refused:
            raise UsageError(
                f"the tree cannot be kept: {refused.reason}",
                "Finish or commit it yourself, then `evolver resume --keep` again; or roll back with --rollback hard|stash.",
            ) from refused

    def roll_back(self, held: Held, mode: RollbackMode, note: str) -> Decision:
        """Put the baseline back, by the same pieces an iteration uses. When something drifted since the stop, all that
        is there is kept as a private ref, whatever the mode: a stash entry has no ignored files, control files or notes."""
        if mode is RollbackMode.NONE:
            raise UsageError("--rollback none would change nothing", "Choose hard or stash, or --keep.")
        lock = held.lock
        definition = stored_definition(self.layout, lock.definition) or LoopDefinition()
        rejection = Rejection(
            layout=self.layout,
            workspace=self.opened.workspace,
            events=self.opened.log.bind(lock.run_id),
            rollback=definition.rollback,
            mode=mode,
            run_id=lock.run_id,
            number=lock.iteration,
            baseline=held.baseline,
            attempt=held.attempt,
            reason=lock.reason,
            recovering=self._unseen(),
            by_person=True,
            # What cannot be read cannot be kept aside either; a person said `hard` knowing that (the hold told).
            drifted=bool(held.drifted) and not held.attempt.unknown,
            loop=lock.loop,
            definition=lock.definition,
            changes_log=ChangesLogAt.of(definition, self.layout.root, lock.changes_digest),
            compensate_effects=self.opened.effects(lock.run_id).compensate,
        )
        state = rejection.run(
            IterationState(
                mode=mode, phase=Phase.PRESERVE, verdict=Verdict(Judgement.FAIL, lock.reason), changed=held.attempt.changed
            )
        )
        if not state.verified or state.effects_failed:
            return Decision("not_restored", ExitStatus.NOT_RESTORED, rejection.problem)
        self._resumed(held, "rolled_back", held.baseline.pre_ref, note)
        kept = rejection.preserved
        return Decision("rolled_back", ExitStatus.ACCEPTED, stash=kept.stash, kept=rejection.whole.refs, copies=kept.copies)

    def _unseen(self) -> bool:
        """Recovery failed just now, in this very command: the person decided before being told what cannot be kept."""
        recovered = self.opened.recovered
        return recovered is not None and recovered.action == "rollback_failed"

    def _resumed(self, held: Held, action: str, post_ref: str | None, note: str) -> None:
        # The event goes first: a kill in between leaves the lock, and the next `resume` finds nothing left to change.
        self.opened.log.emit(
            RunResumed(
                from_="held",
                to="resumed",
                iteration_id=held.lock.iteration_id,
                action=action,
                pre_ref=held.lock.pre_ref,
                post_ref=post_ref,
                note=note,
                by=_person(),
            ),
            run_id=held.lock.run_id,
        )
        remove(self.layout)
        person = self.opened.person
        if person is not None and person.root != self.layout.root:
            carry(person, self.layout, held.lock.run_id)
        self.layout.stream_note.unlink(missing_ok=True)
        self.opened.workspace.release()


def _person() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a container's user may have no name
        return ""
