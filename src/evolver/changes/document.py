"""The recorder's log as a value: each change is a new document, and nothing reaches the disk before it is saved."""

from __future__ import annotations

import copy
import hashlib
import json
import re
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from evolver.changes.model import BACKUPS, MAX_ENTRIES, MAX_LOG_BYTES, ChangesLog
from evolver.changes.parse import LISTS, parse
from evolver.changes.paths import RelativePath, relative
from evolver.errors import UsageError

CLOCK_SLACK_S = 2.0  # between a filesystem's clock and ours
_UNFIT = re.compile(r"[^A-Za-z0-9._-]+")


@dataclass(frozen=True, slots=True)
class Document:
    """A log that `record start` began."""

    value: dict[str, Any]  # JSON as in the schema; never altered in place

    @classmethod
    def new(cls, phase: str, recording: str) -> Document:
        started = datetime.now(UTC)
        own = {"recording": recording, "started": started.isoformat(), "finished": False, "created_dirs": []}
        return cls(
            {
                "phase": phase,
                "timestamp": started.strftime("%Y-%m-%dT%H:%M:%SZ"),
                **{name: [] for name in LISTS[:-1]},
                "metadata": {"evolver": own},
            }
        )

    @classmethod
    def parse(cls, data: bytes, name: str) -> Document:
        """Raise `UsageError` for a log that is broken, or that the recorder did not begin."""
        log = parse(data)
        if not isinstance(log, ChangesLog):
            raise UsageError(f"{name}: {log.errors[0]}", "Begin a new recording.")
        if log.recording is None:
            raise UsageError(f"{name} was not begun by `evolver changes record start`", "Begin a recording of its own.")
        return cls(json.loads(data))

    # ------------------------------------------------------------ questions

    @property
    def _own(self) -> dict[str, Any]:
        own: dict[str, Any] = self.value["metadata"]["evolver"]
        return own

    @property
    def folder(self) -> RelativePath:
        """Where its backups are."""
        return relative(f"{BACKUPS}/{self._own['recording']}")

    @property
    def finished(self) -> bool:
        return bool(self._own.get("finished"))

    @property
    def started(self) -> float:
        """Seconds since the epoch; 0 when unknown."""
        try:
            return datetime.fromisoformat(str(self._own.get("started"))).timestamp()
        except ValueError:
            return 0.0

    def knows(self, path: RelativePath) -> bool:
        """Is it recorded already: its bytes are kept, or it (or a folder above it) is to be deleted?"""
        if any(relative(item["path"]).names == path.names for item in self.value["files_modified"]):
            return True
        return any(relative(text).holds(path) for text in self.value["files_created"])

    def backup_for(self, path: RelativePath) -> RelativePath:
        """The path spelled flat, and a digest, as `a-b` and `a/b` are spelled the same."""
        flat = _UNFIT.sub("-", path.raw.decode("utf-8", "replace"))[-100:]
        return relative(f"{self.folder.text}/{flat}-{hashlib.sha256(path.raw).hexdigest()[:12]}.backup")

    # ------------------------------------------------------------ changes

    def with_modified(self, path: RelativePath, backup: RelativePath, sha256: str, mode: int) -> Document:
        item = {"path": path.text, "backup": backup.text, "sha256": sha256, "mode": f"{mode:03o}"}
        return self._with("files_modified", item)

    def with_created(self, path: RelativePath, missing: tuple[RelativePath, ...]) -> Document:
        changed = self._with("files_created", path.text)
        known = changed._own.setdefault("created_dirs", [])
        known.extend(folder.text for folder in missing if folder.text not in known)
        return changed

    def with_item(self, name: str, text: str) -> Document:
        return self._with(name, text)

    def finish(self) -> Document:
        changed = Document(copy.deepcopy(self.value))
        changed._own["finished"] = True
        return changed

    def _with(self, name: str, item: object) -> Document:
        changed = Document(copy.deepcopy(self.value))
        if name not in ("commands_executed",) and item in changed.value.setdefault(name, []):
            return changed
        changed.value.setdefault(name, []).append(item)
        if sum(len(changed.value.get(n, [])) for n in LISTS) > MAX_ENTRIES:
            raise UsageError(f"more than {MAX_ENTRIES} entries", "Record a folder instead of its files.")
        return changed

    def to_bytes(self) -> bytes:
        """ASCII: bytes of a name that are no UTF-8 are lone surrogates, which only escapes can hold."""
        data = json.dumps(self.value, indent=2).encode("ascii") + b"\n"
        if len(data) > MAX_LOG_BYTES:
            raise UsageError(f"the log would be larger than {MAX_LOG_BYTES} bytes", "Record folders instead of files.")
        if not isinstance(log := parse(data), ChangesLog):
            raise UsageError(f"that cannot be recorded: {log.errors[0]}", "Shorten it.")
        return data
