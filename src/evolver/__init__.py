"""evolver: lets a coding agent work alone in a git repository. Importing it does nothing."""

from evolver._version import __version__

__all__ = ["__version__"]
