"""Artifacts and plan files of a log, and the plan file that goes unasked."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

from evolver.changes.gitwork import Repository
from evolver.changes.model import ChangesLog, Entry
from evolver.changes.paths import RelativePath, relative

_PLAIN_PHASE = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,99}")


def leftovers(
    log: ChangesLog, repository: Repository | None, covered: Callable[[RelativePath], bool] = lambda path: False
) -> Iterator[tuple[Entry, str, bool]]:
    """Entry, what it is called, and whether the log names it."""
    yield from ((entry, "artifact", True) for entry in log.artifacts)
    yield from ((entry, "plan file", True) for entry in log.plan_files)
    # The document removes `.{workflow}-plan.json` unasked. Only where the phase is a plain name: it is an agent's text.
    if _PLAIN_PHASE.fullmatch(log.phase):
        path = relative(f".{log.phase}-plan.json")
        if not covered(path) and not (repository is not None and repository.tracks(path)):
            yield Entry(path, "phase"), "plan file", False
