"""Finishes what a killed run left half done, before anything new starts.

Survivors are killed first; then the tree is put back from the vault to the recorded baseline, or in mode none the resume lock is
written. Recovery never accepts an attempt; where the accepting commit was already made it only writes the missing event. What it
removes is first kept under refs/evolver/attempts/, since a person may have edited after the crash. It may be killed as well.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from evolver import history
from evolver.changes.within import ChangesLogAt
from evolver.crash import crash_point
from evolver.definition import RollbackSection
from evolver.effects.outcome import Compensation
from evolver.effects.runner import EffectRunner
from evolver.errors import HeldError, LogError, NotRestoredError
from evolver.events.log import EventLog
from evolver.events.reader import read_backwards
from evolver.events.types import IterationAccepted, RunRecovered
from evolver.history import LastRun, OpenIteration
from evolver.keeping import stored_definition
from evolver.layout import Layout
from evolver.machine import IterationState, Phase
from evolver.model import Judgement, RollbackMode, Verdict
from evolver.process import is_running, sweep_dead_run
from evolver.rejecting import Rejection
from evolver.resume_lock import remove_planted
from evolver.worktree.values import Baseline, ControlReport, Preserved
from evolver.worktree.workspace import Workspace


@dataclass(frozen=True, slots=True)
class Recovered:
    """What recovery did; `held` when a resume lock stands now."""

    run_id: str
    action: str
    held: bool = False
    reason: str = ""


def died(log: EventLog) -> LastRun | None:
    """The newest run, when it has no end. The caller holds the run lock, so an open run in the stream is a dead one."""
    last = history.last_run(read_backwards(log.path))
    return last if last is not None and last.state == "open" else None


def is_open(events: Path) -> bool:
    """Asked without the lock: a run that has no end, dead or alive."""
    with suppress(OSError, LogError):
        last = history.last_run(read_backwards(events))
        return last is not None and last.state == "open"
    return False


def recover(
    layout: Layout,
    log: EventLog,
    workspace: Workspace | None,
    *,
    rollback: RollbackSection,
    effects: Callable[[str], EffectRunner],
) -> Recovered | None:
    """Finish a dead run; None when there is none. `workspace` None: it worked in a clone that is gone.

    Raise `NotRestoredError` when its survivors cannot be killed or its baseline is gone: nothing is touched then.
    """
    dead = died(log)
    if dead is None:
        return None
    return _Recovery(layout, log, workspace, rollback, effects(dead.run_id), dead).run()


@dataclass
class _Recovery:
    layout: Layout
    log: EventLog
    where: Workspace | None
    rollback: RollbackSection
    effects: EffectRunner
    dead: LastRun
    elsewhere: bool = False  # this is a copy; the run itself is alive in the repository it was copied from

    def run(self) -> Recovered:
        killed, survivors = self._sweep()
        if survivors:
            raise NotRestoredError(
                f"run {self.dead.run_id} died, and its processes {', '.join(map(str, survivors))} still live and cannot be stopped",
                "Stop them as the user they belong to, then run evolver again. Nothing was restored under them.",
            )
        iteration = self.dead.iteration
        if self.where is None:
            self._tell(iteration, "the clone it worked in is gone", "nothing_to_do", killed)
            return Recovered(self.dead.run_id, "nothing_to_do", False, "the clone it worked in is gone")
        done = self._between(killed) if iteration is None else self._inside(iteration, killed)
        crash_point("recovery.done")
        return done

    def _sweep(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Kill what the dead run left. In a copy of a repository whose run is alive, that run's processes are nobody's to kill."""
        copied = bool(self.dead.git_dir_id) and self.dead.git_dir_id != self.layout.git_dir_id
        if copied and is_running(self.dead.pid, self.dead.pid_started):
            self.elsewhere = True
            return (), ()
        return sweep_dead_run(self.dead.run_id, [(self.dead.pid, self.dead.pid_started), *self.dead.children])

    def _compensate(self, iteration_id: str) -> Compensation:
        # What the live run did outside its worktree is its own to undo.
        return Compensation() if self.elsewhere else self.effects.compensate(iteration_id)

    @property
    def workspace(self) -> Workspace:
        assert self.where is not None
        return self.where

    def _between(self, killed: tuple[int, ...]) -> Recovered:
        """Died outside any iteration: before the first one (validators may have dropped things), or between two."""
        if self.dead.iterations == 0 and self.dead.baseline:
            baseline = self.workspace.load_baseline(self.dead.baseline)
            opened = OpenIteration(
                number=0,
                iteration_id=f"{self.dead.run_id}/0",
                baseline=baseline.fingerprint,
                pre_ref=baseline.pre_ref,
                branch=baseline.branch,
                mode=str(RollbackMode.HARD),  # only validators ran; there is no attempt to hold
                phase="baseline-validate",
            )
            return self._undo(opened, baseline, self.workspace.guard_control(baseline), killed, announce=False)
        self._tell(None, "between iterations", "nothing_to_do", killed)
        return Recovered(self.dead.run_id, "nothing_to_do")

    def _inside(self, iteration: OpenIteration, killed: tuple[int, ...]) -> Recovered:
        baseline = self.workspace.load_baseline(iteration.baseline)
        control = self.workspace.guard_control(baseline)
        self.log.ensure_present()
        commit = None
        if iteration.phase == "accepting":  # not when its rollback had begun
            commit = self.workspace.commits_made(iteration.iteration_id, iteration.pre_ref, iteration.post_ref)
        if commit is not None:
            return self._accepted(iteration, baseline, control, commit, killed)
        return self._undo(iteration, baseline, control, killed, announce=True)

    def _accepted(
        self, iteration: OpenIteration, baseline: Baseline, control: ControlReport, commit: str, killed: tuple[int, ...]
    ) -> Recovered:
        paths = self.workspace.finish_accept(baseline, commit)
        self.log.emit(
            IterationAccepted(
                from_="accepting",
                to="accepted",
                iteration_id=iteration.iteration_id,
                pre_ref=iteration.pre_ref,
                commit=commit,
                branch=iteration.branch,
                paths=paths[:100],
                paths_total=len(paths),
            ),
            run_id=self.dead.run_id,
            iteration=iteration.number,
        )
        self._tell(iteration, iteration.phase, "acceptance_recorded", killed)
        return Recovered(self.dead.run_id, "acceptance_recorded")

    def _undo(
        self, iteration: OpenIteration, baseline: Baseline, control: ControlReport, killed: tuple[int, ...], *, announce: bool
    ) -> Recovered:
        attempt = self.workspace.inspect(baseline, control)
        mode = RollbackMode(iteration.mode)
        reason = iteration.reason or f"the run died in phase {iteration.phase}"
        rejection = Rejection(
            layout=self.layout,
            workspace=self.workspace,
            events=self.log.bind(self.dead.run_id),
            rollback=self.rollback,
            mode=mode,
            run_id=self.dead.run_id,
            number=iteration.number,
            baseline=baseline,
            attempt=attempt,
            reason=reason,
            announce=announce,
            recovering=True,
            already_skipped=iteration.skipped,
            loop=self.dead.loop,
            definition=self.dead.definition_hash,
            changes_log=self._changes_log(iteration),
            compensate_effects=self._compensate,
        )
        holding = mode is RollbackMode.NONE and attempt.changed
        state = IterationState(
            mode=mode,
            phase=Phase.HOLD if holding else Phase.PRESERVE,
            verdict=Verdict(Judgement.INCONCLUSIVE, reason),
            changed=attempt.changed,
        )
        if holding and not self.elsewhere and not self.effects.settle(iteration.iteration_id).ok:
            state = state.but(effects_failed=True)
        state = rejection.run(state)
        if holding:
            self._tell(iteration, iteration.phase, "held", killed)
            return Recovered(self.dead.run_id, "held", True, reason)
        if not state.verified or state.effects_failed:
            self._tell(iteration, iteration.phase, "rollback_failed", killed)
            return Recovered(self.dead.run_id, "rollback_failed", True, rejection.problem)
        kept = rejection.preserved
        where = f"what was removed is kept as {kept.refs[0]}" if kept.refs else ""
        if kept.refs[1:]:
            where += f", refs and commits below {'/'.join(kept.refs[1].split('/')[:4])}/"
        if kept.copies:
            where += f", and what no commit can hold in {kept.copies}"
        self._tell(iteration, iteration.phase, "rolled_back", killed, kept)
        return Recovered(self.dead.run_id, "rolled_back", False, where)

    def _changes_log(self, iteration: OpenIteration) -> ChangesLogAt | None:
        definition = stored_definition(self.layout, self.dead.definition_hash)
        return ChangesLogAt.of(definition, self.layout.root, iteration.changes_digest) if definition is not None else None

    def _tell(
        self, iteration: OpenIteration | None, found: str, action: str, killed: tuple[int, ...], kept: Preserved | None = None
    ) -> None:
        self.log.emit(
            RunRecovered(
                from_="died",
                to="held" if action in ("held", "rollback_failed") else "recovered",
                iteration_id=iteration.iteration_id if iteration is not None else None,
                found=found,
                action=action,
                pre_ref=iteration.pre_ref if iteration is not None else self.dead.pre_ref,
                killed=killed,
                attempt_ref=kept.refs[0] if kept is not None and kept.refs else None,
                copies=(kept.copies or None) if kept is not None else None,
            ),
            run_id=self.dead.run_id,
        )


def drop_planted(layout: Layout, events: Path) -> None:
    """The run died before it could have written a lock: one that stands is the attempt's, and would keep recovery from undoing that."""
    if os.path.lexists(layout.resume_lock) or os.path.lexists(layout.lifeboat / "resume.lock"):
        with suppress(OSError, LogError):
            if history.may_hold(read_backwards(events), layout.git_dir_id):
                return
            remove_planted(layout)


def refuse_held(layout: Layout) -> None:
    """Raise `HeldError` when a resume lock stands, whatever for; `NotRestoredError` when it cannot be read."""
    from evolver.resume_lock import read

    lock = read(layout)
    if lock is None:
        return
    raise HeldError(
        f"iteration {lock.iteration_id} is held since {lock.time}: {lock.reason}",
        "Look at the worktree, then run `evolver resume` (`--dry-run` shows what it would do).",
    )
