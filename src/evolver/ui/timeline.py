"""What happened, folded out of the event stream: runs, their iterations, their steps. Pure; nothing but events is read.

`Timeline` takes envelopes one at a time, so it serves the live view and the morning after alike.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from decimal import Decimal

import msgspec

from evolver.events import types as ev
from evolver.events.envelope import Envelope
from evolver.ui.views import KEPT, PUT_BACK, RUNNING, IterationView, RunView, StepView

_TYPES = ev.all_types()


def event_of(envelope: Envelope) -> ev.Event | None:
    """The event as its class; None for a type, or a shape, that this version does not know."""
    kind = _TYPES.get(envelope.name)
    if kind is None:
        return None
    try:
        return msgspec.json.decode(bytes(envelope.data), type=kind)
    except msgspec.MsgspecError:
        return None


def _money(text: str | None) -> Decimal:
    try:
        return Decimal(text or 0)
    except ArithmeticError:
        return Decimal(0)


@dataclass(slots=True)
class _Run:
    """A run in the making: iterations by number, so that an event costs the same in the thousandth as in the first."""

    view: RunView
    iterations: dict[int, IterationView] = field(default_factory=dict)

    def frozen(self) -> RunView:
        return replace(self.view, iterations=tuple(self.iterations[number] for number in sorted(self.iterations)))


class Timeline:
    """Folds envelopes, in the stream's order, into runs."""

    def __init__(self, envelopes: Iterable[Envelope] = ()) -> None:
        self._runs: dict[str, _Run] = {}
        for envelope in envelopes:
            self.feed(envelope)

    def runs(self) -> tuple[RunView, ...]:
        """Oldest first."""
        return tuple(run.frozen() for run in self._runs.values())

    def last(self) -> RunView | None:
        return next(reversed(self._runs.values())).frozen() if self._runs else None

    def run(self, run_id: str) -> RunView | None:
        return self._runs[run_id].frozen() if run_id in self._runs else None

    def feed(self, envelope: Envelope) -> None:
        if envelope.runid is None:
            return
        run = self._runs.get(envelope.runid)
        if run is None:
            run = self._runs[envelope.runid] = _Run(
                RunView(envelope.runid, started_at=envelope.time, first_sequence=envelope.sequence)
            )
        before = run.view.last_at
        run.view = replace(run.view, last_at=envelope.time, last_sequence=envelope.sequence)
        event = event_of(envelope)
        if event is None:
            return
        run.view = _run_event(run.view, event, envelope.time)
        number = envelope.iteration if envelope.iteration is not None else number_in(getattr(event, "iteration_id", None))
        if number:
            iteration = run.iterations.get(number) or IterationView(
                number, f"{envelope.runid}/{number}", started_at=envelope.time
            )
            run.iterations[number] = replace(_iteration_event(iteration, event, envelope.time), seen_at=envelope.time)
        if isinstance(event, ev.RunRecovered):  # it ended when it died, not now
            run.view = replace(run.view, ended_at=run.iterations[number].ended_at if number else before)
        elif not number and isinstance(event, ev.StepStarted | ev.StepFinished):
            run.view = replace(run.view, steps=_step_event(run.view.steps, event, envelope.time))


def number_in(iteration_id: object) -> int | None:
    tail = iteration_id.rpartition("/")[2] if isinstance(iteration_id, str) else ""
    return int(tail) if tail.isascii() and tail.isdigit() and len(tail) < 19 else None


def _run_event(run: RunView, event: ev.Event, time: str) -> RunView:
    match event:
        case ev.RunStarted():
            return replace(
                run, loop=event.loop, version=event.version, definition_hash=event.definition_hash,
                validators_hash=event.validators_hash, mode=event.rollback_mode, pre_ref=event.pre_ref, branch=event.branch,
                max_iterations=event.max_iterations, isolation=event.isolation, left_out=event.left_out, started_at=time,
            )  # fmt: skip
        case ev.BaselineValidated():
            return replace(run, red=event.red, red_reason=event.reason)
        case ev.RunHeld():
            return replace(run, held=event.iteration_id)
        case ev.RunResumed():
            return replace(run, held="", resumed=event.action, resumed_by=event.by, head=event.post_ref or run.head)
        case ev.RunRecovered():
            return replace(run, recovered=event.action)
        case ev.RunLanded():
            return replace(run, landed=f"{event.how} onto {event.branch}")
        case ev.RunFinished():
            return replace(
                run, reason=event.reason, detail=event.detail, exit_code=event.exit_code, head=event.head,
                best=event.best_score, ended_at=time,
            )  # fmt: skip
        case _ if event.SEVERITY == "alert":
            return replace(run, alerts=(*run.alerts, alert_text(event)))
    return run


def alert_text(event: ev.Event) -> str:
    """One line for a person."""
    match event:
        case ev.AlertPushedAttempt():
            refs = ", ".join(event.refs)
            return f"part of iteration {number_in(event.iteration_id)} is already on remote {event.remote}: {refs}"
        case ev.AlertControlChanged():
            undone = "put back" if event.reverted else "left"
            return f"iteration {number_in(event.iteration_id)} changed git's own files ({undone}): {', '.join(event.paths)}"
        case ev.AlertLogTampered():
            return f"the event stream was tampered with: {event.kind} in {event.file} at {event.expected_sequence}"
        case ev.AlertStalled():
            return f"stalled ({event.condition}): {event.detail}"
        case ev.AlertRefsLeft():
            said = [f"left, as another worktree stands on them or moved them: {', '.join(event.refs)}"] if event.refs else []
            said += [f"put back, what they said kept below refs/evolver/attempts/moved: {', '.join(event.put_back)}"] if event.put_back else []
            return f"refs that moved during iteration {number_in(event.iteration_id)}: {'; '.join(said)}"
        case ev.RollbackFailed():
            left = ", ".join(event.leftovers[:5]) or event.reason
            return f"iteration {number_in(event.iteration_id)} could not be restored: {left}"
    return event.TYPE


def _step_event(steps: tuple[StepView, ...], event: ev.StepStarted | ev.StepFinished, time: str) -> tuple[StepView, ...]:
    if isinstance(event, ev.StepStarted):
        return (*steps, StepView(event.step, event.name, event.round, timeout_ms=event.timeout_ms, started_at=time))
    key = (event.step, event.name, event.round)
    index = next(
        (
            n
            for n in reversed(range(len(steps)))
            if (steps[n].step, steps[n].name, steps[n].round) == key and steps[n].judgement == RUNNING
        ),
        None,
    )
    started = steps[index] if index is not None else StepView(event.step, event.name, event.round, started_at=time)
    done = replace(
        started, judgement=event.judgement, reason=event.reason, exit_code=event.exit_code, duration_ms=event.duration_ms,
        log=event.log, log_bytes=event.log_bytes, log_error=event.log_error, score=event.score, flaky=event.flaky, killed=event.killed,
        agent=event.agent,
        tokens=(event.input_tokens or 0) + (event.output_tokens or 0), cost=_money(event.cost_usd), transient=event.transient,
    )  # fmt: skip
    return (*steps, done) if index is None else (*steps[:index], done, *steps[index + 1 :])


def _effect_text(event: ev.EffectRolledBack | ev.EffectFailed) -> str:
    if isinstance(event, ev.EffectRolledBack):
        return f"Effect {event.effect} was reverted by {event.rollback_ref} ({event.reason})"
    if event.to == "needs_person":
        return f"Effect {event.effect} could NOT be reverted, a person is needed ({event.reason})"
    return f"Effect {event.effect} failed and was not reverted ({event.reason})"


def _iteration_event(iteration: IterationView, event: ev.Event, time: str) -> IterationView:
    match event:
        case ev.IterationStarted():
            return replace(iteration, mode=event.rollback_mode, pre_ref=event.pre_ref, branch=event.branch, started_at=time)
        case ev.StepStarted() | ev.StepFinished():
            return replace(iteration, steps=_step_event(iteration.steps, event, time))
        case ev.IterationInspected():
            return replace(
                iteration, post_ref=event.post_ref, added=event.added, modified=event.modified, deleted=event.deleted,
                paths=event.paths, paths_total=event.added + event.modified + event.deleted,
            )  # fmt: skip
        case ev.IterationAccepted():
            return replace(
                iteration, outcome="accepted", commit=event.commit, branch=event.branch, pre_ref=event.pre_ref,
                paths=event.paths, paths_total=event.paths_total, insertions=event.insertions, deletions=event.deletions,
                squashed=event.squashed, user_files=event.user_files, user_files_kept=event.user_files_kept,
                score=event.score, closing_at=iteration.seen_at, ended_at=time,
            )  # fmt: skip
        case ev.IterationNoChange():
            return replace(iteration, outcome="no_change", reason=event.reason, verified=event.verified, ended_at=time)
        case ev.RollbackStarted():
            return replace(iteration, reason=event.reason, post_ref=event.post_ref, closing_at=iteration.seen_at)
        case ev.RollbackFinished():
            held = iteration.outcome in ("held", "rollback_failed")  # then it is a person's `resume --rollback`, later
            interrupted = not held and (event.reason.startswith("interrupted") or event.reason.endswith(": interrupted"))
            return replace(
                iteration, outcome="interrupted" if interrupted else "rolled_back", reason=event.reason, verified=event.verified, left=event.left,
                rollback_ref=event.rollback_ref, stash_ref=event.stash_ref, attempt_ref=event.attempt_ref,
                restored=event.restored, removed=event.deleted, refs=event.refs, post_ref=event.post_ref,
                ended_at=iteration.ended_at if held else time,
            )  # fmt: skip
        case ev.RollbackFailed():
            return replace(
                iteration, outcome="rollback_failed", reason=event.reason, verified=False, left=event.left,
                leftovers=event.leftovers, vault=event.vault, stash_ref=event.stash_ref, ended_at=iteration.ended_at or time,
            )  # fmt: skip
        case ev.RollbackSkipped():
            return replace(
                iteration, outcome="held", reason=event.reason, vault=event.vault, post_ref=event.post_ref,
                closing_at=iteration.seen_at, ended_at=time,
            )  # fmt: skip
        case ev.RunRecovered():
            return replace(
                iteration, recovered=True, attempt_ref=event.attempt_ref or iteration.attempt_ref,
                ended_at=iteration.closing_at or iteration.ended_at,
            )  # fmt: skip
        case ev.RunResumed():
            return _resumed(iteration, event)
        case ev.IterationReverted():
            return replace(iteration, reverted_by=event.revert_commit)
        case ev.EffectRolledBack() | ev.EffectFailed():
            return replace(iteration, effects=(*iteration.effects, _effect_text(event)))
        case _ if event.SEVERITY == "alert" and not isinstance(event, ev.RunHeld):
            return replace(iteration, alerts=(*iteration.alerts, alert_text(event)))
    return iteration


def _resumed(iteration: IterationView, event: ev.RunResumed) -> IterationView:
    """A person's decision is how a held iteration ended; when it ended stays as it was."""
    decided = replace(iteration, resumed=event.action, resumed_by=event.by, note=event.note)
    if iteration.outcome not in ("held", "rollback_failed"):
        return decided
    match event.action:
        case "kept":
            moved = event.post_ref if event.post_ref != event.pre_ref else None
            return replace(decided, outcome=KEPT, commit=moved)
        case "unchanged":
            return replace(decided, outcome=PUT_BACK)
    return decided
