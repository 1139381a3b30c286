"""The rollback modes: a literal registry, one file a mode."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from evolver.model import RollbackMode
from evolver.rollback.base import Keeping, RollbackStrategy
from evolver.rollback.hard import Hard
from evolver.rollback.none import Leave
from evolver.rollback.stash import Stash

STRATEGIES: Mapping[RollbackMode, RollbackStrategy] = MappingProxyType(
    {RollbackMode.HARD: Hard(), RollbackMode.STASH: Stash(), RollbackMode.NONE: Leave()}
)

__all__ = ["STRATEGIES", "Keeping", "RollbackStrategy"]
