"""Where a loop's changes log lies (`[rollback] changes_log`), and what it was before the attempt."""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from evolver.changes.before import mark, marked
from evolver.changes.exclude import exclude
from evolver.changes.kept import Keep
from evolver.changes.prepare import PreparedRollback, discard_log, log_digest, prepare
from evolver.definition import LoopDefinition
from evolver.layout import Layout, locate
from evolver.worktree.values import Baseline


@dataclass(frozen=True, slots=True)
class ChangesLogAt:
    """A loop's changes log, seen from one iteration."""

    path: Path
    root: Path
    definition: LoopDefinition
    before: str | None  # digest of the log the user already had: it tells of nothing this attempt did

    @classmethod
    def of(
        cls, definition: LoopDefinition, root: Path, before: str | None = None, *, look: bool = False
    ) -> ChangesLogAt | None:
        """None when the loop has none. `look`: the attempt has not begun, so what lies there now is the user's."""
        if definition.rollback.changes_log is None:
            return None
        path = root / definition.rollback.changes_log
        found = cls(path, root, definition, log_digest(path) if look else before)
        if look:
            found._keep("").forget()  # of an iteration that is over
            with suppress(OSError):  # then nobody can tell what is older, and all of it stays
                mark(found._began)
        return found

    @property
    def name(self) -> bytes:
        """As the loop file calls it."""
        return os.fsencode(self.definition.rollback.changes_log or "")

    @property
    def _began(self) -> Path:
        return locate(self.root).state / "changes-began"

    def _keep(self, fingerprint: str) -> Keep:
        return Keep(locate(self.root).state / "changes", fingerprint)

    def retire(self) -> None:
        """The attempt was accepted: the log it wrote, and its backups, have served. A log that was the user's stays."""
        now = log_digest(self.path)
        if now is not None and now != self.before:
            discard_log(self.path, self.root)

    def prepare(self, baseline: Baseline) -> PreparedRollback | None:
        """Read log and backups while they exist; None when the attempt wrote no log."""
        return prepare(
            self.path,
            self.root,
            self.definition.changes,
            left_out=baseline.left_out,
            unchanged_since=self.before,
            began=marked(self._began),
            keep=self._keep(baseline.fingerprint),
        )


def hide_changes_log(definition: LoopDefinition, layout: Layout) -> None:
    """Have git ignore log and backups, before the first baseline: no attempt may commit them, nor write `info/exclude` itself."""
    if definition.rollback.changes_log is not None:
        exclude(layout, layout.root / definition.rollback.changes_log)
