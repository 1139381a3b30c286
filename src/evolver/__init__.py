"""evolver: lets a coding agent work alone in a git repository. Importing it does nothing; its names load when first used."""

from __future__ import annotations

from typing import TYPE_CHECKING

from evolver._version import __version__

if TYPE_CHECKING:
    from evolver.api import Loop, Result, Resumed, read_events, resume, run

__all__ = ["Loop", "Result", "Resumed", "__version__", "read_events", "resume", "run"]


def __getattr__(name: str) -> object:
    if name in __all__:
        from evolver import api

        return getattr(api, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
