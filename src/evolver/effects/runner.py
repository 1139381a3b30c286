"""Runs a loop's effects and takes them back: the one object an iteration knows.

An effect that fails is reverted at once, in every mode. One that succeeded is reverted by `compensate`, newest first, when
its iteration is rejected later. Each act stands in the stream before it happens and after it.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from evolver import process
from evolver.crash import crash_point
from evolver.definition import EffectSection
from evolver.effects import approval, journal
from evolver.effects import plan as plans
from evolver.effects.acting import act, succeeded
from evolver.effects.host import Host, how
from evolver.effects.journal import Entry
from evolver.effects.machine import UNSETTLED, EffectState
from evolver.effects.outcome import Compensation
from evolver.effects.plan import EffectPlan
from evolver.effects.registry import REGISTRY
from evolver.effects.reverting import CWD, PRE_REF, Surroundings, revert
from evolver.effects.spec import Recorded
from evolver.effects.telling import Teller
from evolver.events.types import Emitter
from evolver.interrupts import Interrupts
from evolver.layout import Layout
from evolver.model import Judgement, StepContext, Verdict
from evolver.steps.runner import clean_environment

WITHHELD = frozenset({"EVOLVER_SINK_WEBHOOK_SECRET"})  # evolver's own
KEEP_DAYS = 14  # for what a revert replaced


class EffectRunner:
    """The effects of one loop in one worktree. `read` gives the stream from its end; by default the real one.

    `loop` is how the loop was named on the command line, for the command that a refusal tells to run.
    """

    def __init__(
        self,
        effects: tuple[EffectSection, ...],
        *,
        emitter: Emitter,
        layout: Layout,
        interrupts: Interrupts,
        approve: approval.Policy,
        env: Mapping[str, str] = os.environ,
        loop: str = "",
        events: Path | None = None,
        read: Callable[[], Iterable[journal.Record]] | None = None,
        redactor: Callable[[], process.Redactor | None] = lambda: None,
    ) -> None:
        """Raise `UsageError` when an effect is not well defined."""
        self.plans = plans.plans(effects)
        self._teller = Teller(emitter)
        self._emitter = emitter
        self._interrupts = interrupts
        self._policy = approve
        self._loop = loop
        self._events = events if events is not None else layout.events(env.get("EVOLVER_EVENTS"))
        self._read = read if read is not None else self._stream
        self._where = Surroundings(layout, clean_environment(env, WITHHELD), redactor)
        self._entries: dict[str, list[Entry]] = {}
        self._current = ""
        self.output = ""  # of the effect that failed last, for the next attempt's feedback; redacted
        self._announced: set[str] = set()

    def preflight(self) -> None:
        """Raise `PreflightError` when a risky effect may not run; it names the command that approves it."""
        approval.refuse(approval.unapproved(self.plans, self._policy, self._events), self._policy, self._loop)

    # ------------------------------------------------------------ running

    def run(self, when: str, context: StepContext) -> tuple[Verdict | None, bool]:
        """The effects of this place, in order, until one fails. Verdict (None: all well), and whether a person is needed."""
        self.output = ""
        chosen = [plan for plan in self.plans if plan.when == when]
        if not chosen:
            return None, False
        done = self._begin(context, chosen)
        if done is not None:
            return done
        for plan in chosen:
            if self._interrupts:
                return Verdict(Judgement.INCONCLUSIVE, f"interrupted by {self._interrupts.name}", plan.name), False
            entry = self._run(plan, context)
            if entry.state is not EffectState.SUCCEEDED:
                judgement = Judgement.INCONCLUSIVE if self._interrupts else Judgement.FAIL
                reason = f"effect {plan.name}: {entry.outcome} ({str(entry.state).replace('_', ' ')})"
                return Verdict(judgement, reason, plan.name), entry.state is EffectState.NEEDS_PERSON
        return None, False

    def _begin(self, context: StepContext, chosen: list[EffectPlan]) -> tuple[Verdict, bool] | None:
        if context.iteration_id != self._current:
            self._current = context.iteration_id
            self._entries = {self._current: self._entries.get(self._current, [])}
            self._prune(self._current)
        if any(
            e.state is EffectState.SUCCEEDED and e.effect == plan.name
            for e in self._entries[context.iteration_id]
            for plan in chosen
        ):
            # A second round: what the first one did is taken back before it is done once more.
            undone = self.compensate(context.iteration_id)
            if not undone.ok:
                return Verdict(Judgement.FAIL, undone.reason, chosen[0].name), True
        return None

    def _run(self, plan: EffectPlan, context: StepContext) -> Entry:
        entries = self._entries[context.iteration_id]
        entry = Entry(
            iteration_id=context.iteration_id,
            effect=plan.name,
            action=plan.action,
            definition_hash=plan.definition_hash,
            rollback_available=plan.rollback_available,
            state=EffectState.APPROVED,
            turn=sum(e.effect == plan.name for e in entries),
        )
        self._announce(plan, context)
        entry.recorded = {CWD: os.path.relpath(context.cwd, self._where.layout.root), PRE_REF: context.pre_ref}
        recorded = self._record(plan, entry)
        if recorded.problem:
            self._teller.failed(entry, f"not run: {recorded.problem}")
            return entry
        entry.recorded = {**entry.recorded, **recorded.values}
        entries.append(entry)
        self._teller.started(entry)
        crash_point("effect.started")
        self._act(plan, entry, context)
        return entry

    def _announce(self, plan: EffectPlan, context: StepContext) -> None:
        """What the loop file approves by itself is in the chain as well, once a run."""
        if plan.risky and self._policy == "listed" and plan.definition_hash not in self._announced:
            self._emitter.emit(approval.event(plan, approval.LISTED), iteration=context.iteration)
            self._announced.add(plan.definition_hash)

    def _record(self, plan: EffectPlan, entry: Entry) -> Recorded:
        try:
            plans.store(self._where.folder(entry), plan)
        except OSError as error:
            return Recorded({}, f"what undoes it cannot be kept: {error}")
        if plan.rollback is None:
            return Recorded({})
        earlier = [
            e.recorded
            for e in self._entries[entry.iteration_id]
            if e.state is EffectState.SUCCEEDED and REGISTRY[e.action].family == plan.spec.family
        ]
        return plan.rollback.record(self._host(plan, entry), plan.args, earlier)

    def _act(self, plan: EffectPlan, entry: Entry, context: StepContext) -> None:
        done = act(plan, entry, context, self._where, self._emitter, self._interrupts)
        if succeeded(done):
            self._teller.succeeded(entry, done.duration_ms)
            crash_point("effect.succeeded")
            return
        self.output = done.tail.decode("utf-8", "replace")
        if done.survivors:
            self._teller.rolling_back(entry, how(done))
            pids = ", ".join(map(str, done.survivors))
            self._teller.needs_person(entry, f"its processes {pids} cannot be stopped; nothing is reverted under them", "")
            return
        revert(entry, plan, self._where, self._teller, how(done), done.exit_code)

    @staticmethod
    def _in_worktree(entry: Entry) -> bool:
        spec = REGISTRY.get(entry.action)
        return spec is not None and spec.in_worktree

    def _host(self, plan: EffectPlan, entry: Entry) -> Host:
        return self._where.host(entry, plan.timeout_ms, self._where.log(entry, ".undo"))

    # ------------------------------------------------------------ taking back

    def compensate(self, iteration_id: str) -> Compensation:
        """Revert what this iteration's effects did, newest first. May be called again, also by another process.

        One that cannot be reverted does not keep the others from being tried; none is tried twice.
        """
        return self._settle(iteration_id, {EffectState.SUCCEEDED} | UNSETTLED, "the iteration was rejected")

    def settle(self, iteration_id: str) -> Compensation:
        """Revert only what was under way when its run died; what succeeded stays (mode none, until `resume --rollback`).

        So does what is in the worktree: that is held as it is, and a person may have worked in it since.
        """
        return self._settle(iteration_id, set(UNSETTLED), "its run died", worktree=False)

    def _settle(self, iteration_id: str, states: set[EffectState], reason: str, *, worktree: bool = True) -> Compensation:
        if iteration_id not in self._entries:
            self._entries[iteration_id] = journal.entries(self._read(), iteration_id)
        entries = self._entries[iteration_id]
        known = {plan.definition_hash: plan for plan in self.plans}
        for entry in reversed(entries):
            if entry.state in states and (worktree or not self._in_worktree(entry)):
                why = "its run died while it was running" if entry.state is EffectState.RUNNING else reason
                revert(entry, known.get(entry.definition_hash), self._where, self._teller, why)
        stuck = [e for e in entries if e.state is EffectState.NEEDS_PERSON and not e.told]
        left = tuple(
            f"effect {e.effect} ({e.action}): nothing reverts it"
            for e in entries
            if not e.rollback_available and e.state in (EffectState.SUCCEEDED, EffectState.FAILED)
        )
        why = "; ".join(f"effect {e.effect} ({e.action}): {e.outcome or 'its revert failed'}" for e in stuck)
        return Compensation(ok=not stuck, reason=why, left=left)

    def standing(self, iteration_id: str) -> tuple[str, ...]:
        """The effects of this iteration that are in force and that `compensate` would revert."""
        entries = self._entries.get(iteration_id) or journal.entries(self._read(), iteration_id)
        return tuple(f"{e.effect} ({e.action})" for e in entries if e.state is EffectState.SUCCEEDED and e.rollback_available)

    # ------------------------------------------------------------ the stream, and what is kept

    def _stream(self) -> Iterable[journal.Record]:
        from evolver.events.reader import read_backwards

        return read_backwards(self._events)

    def _prune(self, current: str) -> None:
        """Drop what earlier iterations kept: each is accepted, undone or vouched for. What a revert replaced stays a while."""
        here = journal.folder_of(self._where.kept, current)
        oldest = time.time() - KEEP_DAYS * 86400
        for folder in self._where.kept.glob("*/*/*"):
            if folder.parent == here:
                continue
            if not any(path.stat().st_mtime > oldest for path in folder.glob("replaced-*")):
                shutil.rmtree(folder, ignore_errors=True)
