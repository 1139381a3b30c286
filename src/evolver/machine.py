"""The iteration's state machine: which phase follows which, decided without a clock and without I/O.

    baseline -> codegen -> inspect -> guard -> effects_before -> validate -> effects_after -> accept
    rejected:  preserve -> compensate -> restore -> verify          (hard, stash; what preserve keeps is the mode's choice)
               hold                                                 (none)

`iteration.py` performs what `next_phase` says and folds the result into the state; `recovery.py` starts the same machine
in the middle. Every edge that can ever be taken stands in `TRANSITIONS`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum
from types import MappingProxyType

from evolver.model import Judgement, Outcome, RollbackMode, Verdict


class Phase(StrEnum):
    BASELINE = "baseline"
    CODEGEN = "codegen"
    INSPECT = "inspect"
    GUARD = "guard"
    EFFECTS_BEFORE = "effects_before"
    VALIDATE = "validate"
    EFFECTS_AFTER = "effects_after"
    ACCEPT = "accept"
    PRESERVE = "preserve"
    COMPENSATE = "compensate"
    RESTORE = "restore"
    VERIFY = "verify"
    HOLD = "hold"
    DONE = "done"


_REJECT = frozenset({Phase.PRESERVE, Phase.HOLD})

TRANSITIONS = MappingProxyType(
    {
        # An interrupt during the baseline ends the iteration: nothing was started, nothing changed.
        Phase.BASELINE: frozenset({Phase.CODEGEN, Phase.DONE}),
        # Inspect always follows codegen: also after a timeout or an interrupt the change must be known.
        Phase.CODEGEN: frozenset({Phase.INSPECT}),
        # Back to codegen: a repair round on top of the failed attempt.
        Phase.INSPECT: _REJECT | {Phase.GUARD, Phase.CODEGEN, Phase.VALIDATE},
        Phase.GUARD: _REJECT | {Phase.EFFECTS_BEFORE, Phase.CODEGEN},
        Phase.EFFECTS_BEFORE: _REJECT | {Phase.VALIDATE},
        Phase.VALIDATE: _REJECT | {Phase.EFFECTS_AFTER, Phase.CODEGEN},
        Phase.EFFECTS_AFTER: _REJECT | {Phase.ACCEPT},
        # The branch moved under us, or a user's path would be overwritten: rejected like any other.
        Phase.ACCEPT: _REJECT | {Phase.DONE},
        Phase.PRESERVE: frozenset({Phase.COMPENSATE, Phase.HOLD}),
        Phase.COMPENSATE: frozenset({Phase.RESTORE}),
        Phase.RESTORE: frozenset({Phase.VERIFY, Phase.HOLD}),
        # One retry at most; then a person is needed.
        Phase.VERIFY: frozenset({Phase.RESTORE, Phase.DONE, Phase.HOLD}),
        Phase.HOLD: frozenset({Phase.DONE}),
        Phase.DONE: frozenset(),
    }
)


@dataclass(frozen=True, slots=True)
class IterationState:
    """Everything `next_phase` needs; each phase's result is folded in with `but`."""

    mode: RollbackMode
    phase: Phase = Phase.BASELINE
    verdict: Verdict | None = None  # None: nobody has judged yet
    changed: bool = False  # something differs from the baseline, committable or not
    committable: bool = False
    promised: bool = False  # the agent said it is done: validators run even without a change
    interrupted: int | None = None  # the signal
    repairs_left: int = 0
    preserved: bool = True  # False: the attempt could not be kept aside; then nothing is destroyed
    restored: bool = True
    verified: bool | None = None  # None: not yet compared
    retried: bool = False
    effects_failed: bool = False  # a compensation failed: restored all the same, then a person
    survivors: bool = False  # a writer that cannot be killed: nothing is restored under it

    def but(self, **changes: object) -> IterationState:
        return replace(self, **changes)  # type: ignore[arg-type]  # checked by the dataclass's own fields at run time

    @property
    def failed(self) -> bool:
        return self.verdict is not None and not self.verdict.passed


def _reject(state: IterationState) -> Phase:
    if state.survivors or (state.mode is RollbackMode.NONE and state.changed):
        return Phase.HOLD
    return Phase.PRESERVE


def _repair_or_reject(state: IterationState) -> Phase:
    if state.repairs_left > 0 and state.interrupted is None and not state.survivors:
        return Phase.CODEGEN
    return _reject(state)


def next_phase(state: IterationState) -> Phase:
    """The phase that follows `state.phase`, given what is known. Total: every state has exactly one answer."""
    stop = state.interrupted is not None or state.survivors
    match state.phase:
        case Phase.BASELINE:
            return Phase.DONE if state.interrupted is not None else Phase.CODEGEN
        case Phase.CODEGEN:
            return Phase.INSPECT
        case Phase.INSPECT:
            if stop:
                return _reject(state)
            if state.failed:
                return _repair_or_reject(state)
            if state.committable:
                return Phase.GUARD
            return Phase.VALIDATE if state.promised else _reject(state)
        case Phase.GUARD:
            if stop:
                return _reject(state)
            return _repair_or_reject(state) if state.failed else Phase.EFFECTS_BEFORE
        case Phase.EFFECTS_BEFORE:
            return _reject(state) if stop or state.failed else Phase.VALIDATE
        case Phase.VALIDATE:
            if stop:
                return _reject(state)
            if state.failed:
                return _repair_or_reject(state)
            return Phase.EFFECTS_AFTER if state.committable else _reject(state)
        case Phase.EFFECTS_AFTER:
            return _reject(state) if stop or state.failed else Phase.ACCEPT
        case Phase.ACCEPT:
            return _reject(state) if state.failed else Phase.DONE
        case Phase.PRESERVE:
            return Phase.COMPENSATE if state.preserved else Phase.HOLD
        case Phase.COMPENSATE:
            return Phase.RESTORE
        case Phase.RESTORE:
            return Phase.VERIFY if state.restored else Phase.HOLD
        case Phase.VERIFY:
            if state.verified:
                return Phase.HOLD if state.effects_failed else Phase.DONE
            return Phase.HOLD if state.retried else Phase.RESTORE
        case Phase.HOLD | Phase.DONE:
            return Phase.DONE


def outcome(state: IterationState, *, accepted: bool) -> Outcome:
    """How an iteration that reached `DONE` ended, from its last state."""
    if accepted:
        return Outcome.ACCEPTED
    if state.survivors or not state.restored or not state.preserved or state.verified is False or state.effects_failed:
        return Outcome.ROLLBACK_FAILED
    if state.interrupted is not None and state.mode is not RollbackMode.NONE:
        return Outcome.INTERRUPTED
    if state.mode is RollbackMode.NONE and state.changed:
        return Outcome.HELD
    if state.interrupted is not None:
        return Outcome.INTERRUPTED
    if state.verdict is None or state.verdict.judgement is Judgement.PASS:
        return Outcome.NO_CHANGE
    return Outcome.ROLLED_BACK
