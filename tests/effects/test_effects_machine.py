"""Shows: the whole transition table is one literal; every edge is tried and every one not in it refused."""

from __future__ import annotations

from itertools import product

import pytest

from evolver.effects.machine import TRANSITIONS, EffectState, IllegalTransitionError, move

EDGES = {
    ("queued", "approved"),
    ("approved", "running"),
    ("approved", "failed"),
    ("running", "succeeded"),
    ("running", "failed"),
    ("running", "rolling_back"),
    ("succeeded", "rolling_back"),
    ("rolling_back", "rolled_back"),
    ("rolling_back", "failed"),
    ("rolling_back", "needs_person"),
}


def test_the_states_are_the_documents_eight() -> None:
    named = "queued approved running succeeded failed rolling_back rolled_back needs_person"
    assert {str(state) for state in EffectState} == set(named.split())
    assert set(TRANSITIONS) == set(EffectState)


@pytest.mark.parametrize(("old", "new"), list(product(EffectState, EffectState)))
def test_every_edge_is_allowed_or_refused_as_the_table_says(old: EffectState, new: EffectState) -> None:
    if (str(old), str(new)) in EDGES:
        assert move(old, new) is new
    else:
        with pytest.raises(IllegalTransitionError, match=f"from {old} to {new}"):
            move(old, new)


def test_what_has_ended_stays_ended() -> None:
    for state in (EffectState.FAILED, EffectState.ROLLED_BACK, EffectState.NEEDS_PERSON):
        assert not TRANSITIONS[state]


def test_every_state_is_reached_from_queued() -> None:
    reached, pending = {EffectState.QUEUED}, [EffectState.QUEUED]
    while pending:
        for state in TRANSITIONS[pending.pop()] - reached:
            reached.add(state)
            pending.append(state)
    assert reached == set(EffectState)
