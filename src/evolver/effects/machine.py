"""The states of one effect in one iteration, and every edge between them. Pure.

queued -> approved -> running -> succeeded                       kept when the iteration is accepted
                                 succeeded -> rolling_back       the iteration was rejected later
                      running -> rolling_back -> rolled_back     it failed and was reverted at once
                                 rolling_back -> failed          it failed, had changed nothing, nothing was reverted
                                 rolling_back -> needs_person    the revert failed; there is no second attempt
                      running -> failed                          it failed and nothing can revert it
          approved -> failed                                     not run: what its revert needs could not be recorded
"""

from __future__ import annotations

from enum import StrEnum
from types import MappingProxyType


class EffectState(StrEnum):
    QUEUED = "queued"
    APPROVED = "approved"
    RUNNING = "running"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    ROLLING_BACK = "rolling_back"
    ROLLED_BACK = "rolled_back"
    NEEDS_PERSON = "needs_person"


TRANSITIONS = MappingProxyType(
    {
        EffectState.QUEUED: frozenset({EffectState.APPROVED}),
        EffectState.APPROVED: frozenset({EffectState.RUNNING, EffectState.FAILED}),
        EffectState.RUNNING: frozenset({EffectState.SUCCEEDED, EffectState.FAILED, EffectState.ROLLING_BACK}),
        EffectState.SUCCEEDED: frozenset({EffectState.ROLLING_BACK}),
        EffectState.ROLLING_BACK: frozenset({EffectState.ROLLED_BACK, EffectState.FAILED, EffectState.NEEDS_PERSON}),
        EffectState.FAILED: frozenset(),
        EffectState.ROLLED_BACK: frozenset(),
        EffectState.NEEDS_PERSON: frozenset(),
    }
)

# What a process that died leaves to be looked at, and what a rejection leaves: effects that may still change something.
UNSETTLED = frozenset({EffectState.RUNNING, EffectState.ROLLING_BACK})


class IllegalTransitionError(ValueError):
    """A bug: an edge that is not in `TRANSITIONS`."""


def move(old: EffectState, new: EffectState) -> EffectState:
    """`new`, when the table has the edge. Raise `IllegalTransitionError` otherwise."""
    if new not in TRANSITIONS[old]:
        raise IllegalTransitionError(f"an effect cannot go from {old} to {new}")
    return new
