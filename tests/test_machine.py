"""The state machine, exhaustively: every reachable state has one legal successor, and every path ends."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import fields

import pytest

from evolver.machine import TRANSITIONS, IterationState, Phase, next_phase, outcome
from evolver.model import Judgement, Outcome, RollbackMode, Verdict

VERDICTS = (
    None,
    Verdict(Judgement.PASS, "ok"),
    Verdict(Judgement.FAIL, "no"),
    Verdict(Judgement.INCONCLUSIVE, "?"),
)
BOOLS = (False, True)


ANSWERS: dict[str, tuple[object, ...]] = {
    "mode": tuple(RollbackMode),
    "verdict": VERDICTS,
    "changed": BOOLS,
    "committable": BOOLS,
    "promised": BOOLS,
    "interrupted": (None, 2),
    "repairs_left": (0, 1),
    "preserved": BOOLS,
    "restored": BOOLS,
    "verified": (None, False, True),
    "retried": BOOLS,
    "effects_failed": BOOLS,
    "survivors": BOOLS,
}


def every_state(phase: Phase) -> Iterator[IterationState]:
    """Every combination of what can be known in a phase; fails when the state has a field that is not listed above."""
    assert {f.name for f in fields(IterationState)} == {*ANSWERS, "phase"}
    blank = IterationState(RollbackMode.HARD, phase)
    for values in itertools.product(*ANSWERS.values()):
        yield blank.but(**dict(zip(ANSWERS, values, strict=True)))


@pytest.mark.parametrize("phase", [p for p in Phase if p is not Phase.DONE])
def test_every_state_has_a_legal_successor(phase: Phase) -> None:
    for state in every_state(phase):
        assert next_phase(state) in TRANSITIONS[phase], state


@pytest.mark.parametrize("phase", [p for p in Phase if p is not Phase.DONE])
def test_every_edge_of_the_table_is_taken(phase: Phase) -> None:
    taken = {next_phase(state) for state in every_state(phase)}
    assert taken == TRANSITIONS[phase]


def test_nothing_is_accepted_that_failed_or_was_interrupted_or_has_a_living_writer() -> None:
    for state in every_state(Phase.EFFECTS_AFTER):
        if next_phase(state) is Phase.ACCEPT:
            assert not state.failed
            assert state.interrupted is None
            assert not state.survivors


def test_nothing_is_restored_before_it_was_kept_or_under_a_living_writer() -> None:
    for state in every_state(Phase.PRESERVE):
        if not state.preserved:
            assert next_phase(state) is Phase.HOLD
    for phase in (Phase.INSPECT, Phase.GUARD, Phase.VALIDATE, Phase.EFFECTS_BEFORE, Phase.EFFECTS_AFTER):
        for state in every_state(phase):
            if state.survivors:
                assert next_phase(state) is Phase.HOLD


def test_mode_none_never_touches_a_changed_tree() -> None:
    for phase in (Phase.INSPECT, Phase.GUARD, Phase.VALIDATE, Phase.EFFECTS_BEFORE, Phase.EFFECTS_AFTER, Phase.ACCEPT):
        for state in every_state(phase):
            if state.mode is RollbackMode.NONE and state.changed:
                assert next_phase(state) is not Phase.PRESERVE


def test_restoring_is_retried_once_then_held() -> None:
    state = IterationState(RollbackMode.HARD, Phase.VERIFY, verified=False)
    assert next_phase(state) is Phase.RESTORE
    assert next_phase(state.but(retried=True)) is Phase.HOLD


@pytest.mark.parametrize("mode", list(RollbackMode))
def test_every_path_ends(mode: RollbackMode) -> None:
    """Phases are performed with every combination of answers; no path is longer than the phases there are, repairs included."""

    def walk(state: IterationState, depth: int) -> None:
        assert depth < 30
        if state.phase is Phase.DONE:
            return
        answers: list[IterationState] = []
        match state.phase:
            case Phase.CODEGEN:
                answers = [
                    state.but(verdict=v, repairs_left=max(0, state.repairs_left - (state.verdict is not None)))
                    for v in (None, VERDICTS[2])
                ]
            case Phase.INSPECT:
                answers = [state.but(changed=c or k, committable=k) for c in BOOLS for k in BOOLS]
            case Phase.VALIDATE | Phase.GUARD:
                answers = [state.but(verdict=v) for v in VERDICTS[1:3]]
            case Phase.VERIFY:
                answers = [state.but(verified=v) for v in BOOLS]
            case Phase.RESTORE:
                answers = [state.but(retried=state.verified is False, verified=None), state.but(restored=False)]
            case _:
                answers = [state]
        for answer in answers:
            walk(answer.but(phase=next_phase(answer)), depth + 1)

    walk(IterationState(mode, repairs_left=1), 0)


def test_outcomes() -> None:
    done = IterationState(RollbackMode.HARD, Phase.DONE)
    failed = done.but(verdict=VERDICTS[2], changed=True, verified=True)
    assert outcome(done, accepted=True) is Outcome.ACCEPTED
    assert outcome(done, accepted=False) is Outcome.NO_CHANGE
    assert outcome(failed, accepted=False) is Outcome.ROLLED_BACK
    assert outcome(failed.but(verified=False), accepted=False) is Outcome.ROLLBACK_FAILED
    assert outcome(failed.but(interrupted=15), accepted=False) is Outcome.INTERRUPTED
    assert outcome(failed.but(mode=RollbackMode.NONE), accepted=False) is Outcome.HELD
    assert outcome(failed.but(mode=RollbackMode.NONE, interrupted=2), accepted=False) is Outcome.HELD
    assert outcome(failed.but(effects_failed=True), accepted=False) is Outcome.ROLLBACK_FAILED
