"""Every action an effect may name. A literal: what is not here does not exist."""

from __future__ import annotations

from types import MappingProxyType

from evolver.effects import alembic, apt, command, git_worktree, ostree, rpm_ostree
from evolver.effects.spec import ActionSpec
from evolver.errors import UsageError

REGISTRY: MappingProxyType[str, ActionSpec] = MappingProxyType(
    {
        "command": command.ACTION,
        "git-worktree": git_worktree.ACTION,
        "alembic": alembic.ACTION,
        "ostree": ostree.ACTION,
        **{action.name: action for action in rpm_ostree.ACTIONS},
        **{action.name: action for action in apt.ACTIONS},
    }
)


def find(name: str) -> ActionSpec:
    """Raise `UsageError` that lists what there is."""
    if name not in REGISTRY:
        raise UsageError(f"unknown action {name!r}", f"There are: {', '.join(REGISTRY)}. See `evolver effects list`.")
    return REGISTRY[name]
