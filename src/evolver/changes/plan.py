"""What a rollback of an opened log would do, in words; for `--dry-run`. Looks, and changes nothing."""

from __future__ import annotations

import shlex
from collections.abc import Iterator

from evolver.changes.files import Root
from evolver.changes.leftovers import leftovers
from evolver.changes.paths import RelativePath, shown
from evolver.changes.registry import How, match
from evolver.changes.reverts import Reverts
from evolver.changes.rollback import Opened


def steps(opened: Opened, reverts: Reverts) -> Iterator[str]:
    """One line an item, in the order of the report."""
    log, root = opened.log, opened.root
    for item in log.modified:
        there = _exists(root, item.backup)
        yield f"would restore {item.path.shown} from {item.backup.shown}" + ("" if there else " (backup not found)")
    for entry in log.created:
        yield f"would delete {entry.path.shown}" + ("" if _exists(root, entry.path) else " (not there)")
    for command in log.commands:
        found = match(command, reverts)
        if found is None or (found.revert.how is How.COMMITS and not log.commits):
            yield f"cannot revert: {shown(command)}"
        elif found.paths:
            yield f"would unstage {', '.join(path.shown for path in found.paths)}"
        elif found.revert.how is not How.COMMITS:
            yield f"would run {shown(shlex.join(found.revert.argv))} to revert {shown(command)}"
    for commit in reversed(log.commits):
        yield f"would revert commit {commit}"
    for entry, _, named in leftovers(log, opened.repository):
        there = _exists(root, entry.path)
        if named or there:
            yield f"would remove {entry.path.shown}" + ("" if there else " (not there)")


def _exists(root: Root, path: RelativePath) -> bool:
    try:
        return root.status(path) is not None
    except OSError:
        return False
