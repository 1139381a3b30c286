"""The report of a rollback, in exactly the fields of its document and in the document's order."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass, field
from datetime import UTC, datetime

import msgspec

Section = str
LINES_IN_EVENT = 100
# The document's order, whatever order things were done in.
SECTIONS: tuple[Section, ...] = ("log", "files", "created", "commands", "commits", "artifacts", "backups")


class ChangesReport(msgspec.Struct, frozen=True, kw_only=True):
    """What a rollback did. `success`: the log was rolled back, as far as it could be (see `Builder.finish`)."""

    success: bool
    phase: str
    user_declined: bool = False
    actions_taken: tuple[str, ...] = ()
    files_restored: int = 0
    files_deleted: int = 0
    commands_reverted: int = 0
    git_commits_reverted: int = 0
    artifacts_cleaned: int = 0
    errors: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    timestamp: str = ""  # UTC, seconds
    duration_ms: int = 0

    def to_dict(self) -> dict[str, object]:
        """The document's fields; `user_declined` only when somebody did."""
        fields = {name: getattr(self, name) for name in self.__struct_fields__}
        if not self.user_declined:
            del fields["user_declined"]
        return {name: list(value) if isinstance(value, tuple) else value for name, value in fields.items()}

    def to_event(self) -> dict[str, object]:
        """`to_dict` for an event, whose lines must not grow with what a log lists: of each list the first hundred."""
        fields = self.to_dict()
        for name in ("actions_taken", "errors", "warnings"):
            lines = getattr(self, name)
            if len(lines) > LINES_IN_EVENT:
                fields[name] = [*lines[:LINES_IN_EVENT], f"and {len(lines) - LINES_IN_EVENT} more"]
        return fields

    def to_json(self) -> str:
        """ASCII: it is printed wherever standard output leads."""
        return json.dumps(self.to_dict(), indent=2)


@dataclass
class Builder:
    """Collects what was done, a line an item, and sorts it into the document's order."""

    phase: str
    started: float = field(default_factory=time.monotonic)
    _actions: dict[Section, list[str]] = field(default_factory=lambda: {s: [] for s in SECTIONS})
    _errors: dict[Section, list[str]] = field(default_factory=lambda: {s: [] for s in SECTIONS})
    _warnings: dict[Section, list[str]] = field(default_factory=lambda: {s: [] for s in SECTIONS})

    def did(self, section: Section, line: str) -> None:
        self._actions[section].append(line)

    def error(self, section: Section, line: str) -> None:
        self._errors[section].append(line)

    def warn(self, section: Section, line: str) -> None:
        self._warnings[section].append(line)

    def sort(self, section: Section, order: dict[str, int]) -> None:
        """Put a section's actions into the log's own order (they may have been done newest first)."""
        self._actions[section].sort(key=lambda line: order.get(line, len(order)))

    @property
    def spotless(self) -> bool:
        """Nothing went wrong and nothing is left for a person: backups may go."""
        return not any(self._errors.values()) and not any(self._warnings.values())

    def refuse(self, *errors: str) -> ChangesReport:
        """Nothing was done, and nothing will be."""
        for line in errors:
            self.error("log", line)
        return self._report(success=False)

    def declined(self) -> ChangesReport:
        return msgspec.structs.replace(self._report(success=False), user_declined=True, warnings=(), duration_ms=0)

    def finish(self) -> ChangesReport:
        """A partial rollback is a success with errors or warnings beside it; one that met errors and did nothing is none."""
        return self._report(success=not any(self._errors.values()) or any(self._actions.values()))

    def _report(self, *, success: bool) -> ChangesReport:
        return ChangesReport(
            success=success,
            phase=self.phase,
            actions_taken=_flat(self._actions),
            files_restored=len(self._actions["files"]),
            files_deleted=len(self._actions["created"]),
            commands_reverted=len(self._actions["commands"]),
            git_commits_reverted=len(self._actions["commits"]),
            artifacts_cleaned=len(self._actions["artifacts"]),
            errors=_flat(self._errors),
            warnings=_flat(self._warnings),
            timestamp=datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
            duration_ms=round((time.monotonic() - self.started) * 1000),
        )


def _flat(lines: dict[Section, list[str]]) -> tuple[str, ...]:
    return tuple(line for section in SECTIONS for line in lines[section])
