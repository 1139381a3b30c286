"""From bytes to a `ChangesLog`, or to the reasons why not. Nothing here touches the filesystem, the schema apart."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from evolver.changes.model import BACKUPS, MAX_DEPTH, MAX_DIGITS, MAX_ENTRIES, Backup, ChangesLog, Entry, Refused
from evolver.changes.paths import BadPathError, RelativePath, relative, shown

if TYPE_CHECKING:
    from jsonschema.exceptions import ValidationError
    from jsonschema.protocols import Validator

SCHEMA = "changes-log.schema.json"
MAX_ERRORS = 20  # told; a hostile log can have one an entry
_COMMIT = re.compile(r"[0-9a-fA-F]{4,64}")
# A list of the log, and what its entries are called in a message.
LISTS = ("files_modified", "files_created", "commands_executed", "git_commits", "artifacts", "plan_files")
KNOWN = frozenset({"phase", "timestamp", "metadata", *LISTS})
KNOWN_IN_FILE = frozenset({"path", "backup", "sha256", "mode"})

Json = object


class _NotJsonError(ValueError):
    """Why the text is not the JSON a changes log is written in."""


def schema_path() -> Path:
    """The JSON Schema: inside the installed package, or in `docs/` of a source checkout."""
    inside = Path(__file__).parents[1] / "schema" / SCHEMA
    return inside if inside.is_file() else Path(__file__).parents[3] / "docs" / "schema" / SCHEMA


@cache
def _validator() -> Validator:
    from jsonschema import Draft202012Validator  # slow to import

    return Draft202012Validator(json.loads(schema_path().read_text(encoding="utf-8")))


def parse(data: bytes, *, strict: bool = False) -> ChangesLog | Refused:
    """The log in `data`. `strict` refuses unknown fields; otherwise they are in `warnings`."""
    try:
        value = _decode(data)
    except _NotJsonError as error:
        return Refused((f"Invalid JSON in changes log: {error}",))
    if not isinstance(value, dict):
        return Refused((f"Invalid changes log: expected an object, got {_kind(value)}",))
    entries = sum(len(items) for name in LISTS if isinstance(items := value.get(name), list))
    if entries > MAX_ENTRIES:
        return Refused((f"Invalid changes log: {entries} entries, more than {MAX_ENTRIES}",))
    errors: list[str] = []
    for problem in _validator().iter_errors(value):
        errors.extend(_explain(problem))
        if len(errors) >= MAX_ERRORS:
            break
    if errors:
        return Refused(tuple(dict.fromkeys(errors))[:MAX_ERRORS])
    unknown = list(_unknown(value))
    if strict and unknown:
        return Refused(tuple(f"Unknown field in changes log: {name}" for name in unknown[:MAX_ERRORS]))
    warnings = tuple(f"Unknown field in changes log: {name} (ignored)" for name in unknown[:MAX_ERRORS])
    return _Reader(value).read(warnings)


# ---------------------------------------------------------------- JSON, strictly


def _decode(data: bytes) -> Json:
    """Raise `_NotJsonError`. Python's own parser takes duplicate keys, NaN and any depth; a log has no use for them."""
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise _NotJsonError(f"not UTF-8 at byte {error.start}") from None
    if text.startswith("\ufeff"):
        raise _NotJsonError("begins with a byte order mark")
    _check_depth(text)
    try:
        return json.loads(text, object_pairs_hook=_unique, parse_constant=_no_constant, parse_int=_integer, parse_float=_number)
    except json.JSONDecodeError as error:
        raise _NotJsonError(f"{error.msg} at line {error.lineno} column {error.colno}") from None


_STRING_OR_BRACKET = re.compile(r'"(?:[^"\\]|\\.)*+"|[\[\]{}]', re.DOTALL)


def _check_depth(text: str) -> None:
    """Count brackets outside strings: the parser recurses, and so would whoever prints the value."""
    depth = 0
    for match in _STRING_OR_BRACKET.finditer(text):
        if match[0] in "[{":
            depth += 1
            if depth > MAX_DEPTH:
                raise _NotJsonError(f"nested deeper than {MAX_DEPTH}")
        elif match[0] in "]}":
            depth -= 1


def _unique(pairs: list[tuple[str, Json]]) -> dict[str, Json]:
    found: dict[str, Json] = {}
    for key, value in pairs:
        if key in found:
            raise _NotJsonError(f"duplicate key {shown(key)[:80]!r}")
        found[key] = value
    return found


def _no_constant(name: str) -> Json:
    raise _NotJsonError(f"{name} is no JSON")


def _integer(text: str) -> int:
    if len(text) > MAX_DIGITS:
        raise _NotJsonError(f"a number of {len(text)} digits")
    return int(text)


def _number(text: str) -> float:
    if len(text) > MAX_DIGITS:
        raise _NotJsonError(f"a number of {len(text)} digits")
    return float(text)


# ---------------------------------------------------------------- messages


def _kind(value: Json) -> str:
    names = {dict: "an object", list: "an array", str: "a string", bool: "a boolean", int: "a number", float: "a number"}
    return names.get(type(value), "null")


def _where(problem: ValidationError) -> str:
    parts = (f"[{part}]" if isinstance(part, int) else f".{shown(str(part))}" for part in problem.absolute_path)
    return "".join(parts).lstrip(".")


def _explain(problem: ValidationError) -> Iterator[str]:
    """Own words: the library's quote the whole instance, which an agent may make as large and as odd as it likes."""
    where, wanted, instance = _where(problem), problem.validator_value, problem.instance
    match problem.validator:
        case "required" if isinstance(instance, dict) and isinstance(wanted, list):
            prefix = f"{where}." if where else ""
            yield from (f"Changes log missing required field: {prefix}{name}" for name in wanted if name not in instance)
        case "type":
            yield f"Invalid changes log: {where}: expected {wanted}, got {_kind(instance)}"
        case "pattern":
            yield f"Invalid changes log: {where}: {shown(str(instance)[:80])!r} is not of the form {wanted}"
        case "minLength" | "minItems":
            yield f"Invalid changes log: {where}: is empty"
        case "maxLength" | "maxItems":
            yield f"Invalid changes log: {where}: more than {wanted}"
        case _:
            yield f"Invalid changes log: {where}: {problem.validator}"


def _unknown(value: dict[str, Json]) -> Iterator[str]:
    yield from (shown(name)[:80] for name in value if name not in KNOWN)
    files = value["files_modified"]
    assert isinstance(files, list)
    for number, item in enumerate(files):
        yield from (f"files_modified[{number}].{shown(name)[:80]}" for name in item if name not in KNOWN_IN_FILE)


# ---------------------------------------------------------------- the value


class _Reader:
    """Takes a value the schema has passed into typed form, and collects what is wrong with its paths."""

    def __init__(self, value: dict[str, Json]) -> None:
        self.value = value
        self.errors: list[str] = []

    def read(self, warnings: tuple[str, ...]) -> ChangesLog | Refused:
        recorder = self._recorder()
        log = ChangesLog(
            phase=str(self.value["phase"]),
            timestamp=str(self.value["timestamp"]),
            modified=tuple(self._backups()),
            created=tuple(self._entries("files_created")),
            commands=tuple(self._strings("commands_executed")),
            commits=tuple(self._commits()),
            artifacts=tuple(self._entries("artifacts")),
            plan_files=tuple(self._entries("plan_files")),
            recording=self._recording(recorder),
            created_dirs=tuple(self._dirs(recorder)),
            warnings=warnings,
        )
        return Refused(tuple(self.errors[:MAX_ERRORS])) if self.errors else log

    def _list(self, name: str) -> list[Json]:
        items = self.value.get(name, [])
        assert isinstance(items, list)
        return items

    def _strings(self, name: str) -> Iterator[str]:
        for item in self._list(name):
            assert isinstance(item, str)
            yield item

    def _path(self, text: str, where: str) -> RelativePath | None:
        try:
            return relative(text)
        except BadPathError as error:
            self.errors.append(refusal(where, text, str(error)))
            return None

    def _entries(self, name: str) -> Iterator[Entry]:
        for number, text in enumerate(self._strings(name)):
            where = f"{name}[{number}]"
            path = self._path(text, where)
            if path is not None:
                yield Entry(path, where)

    def _backups(self) -> Iterator[Backup]:
        for number, item in enumerate(self._list("files_modified")):
            assert isinstance(item, dict)
            where = f"files_modified[{number}]"
            path = self._path(item["path"], f"{where}.path")
            backup = self._path(item["backup"], f"{where}.backup")
            if path is None or backup is None:
                continue
            if path.names == backup.names:
                self.errors.append(refusal(f"{where}.backup", backup.text, "is the file itself"))
            digest, mode = item.get("sha256"), item.get("mode")
            yield Backup(path, backup, where, digest.strip().lower() if digest else None, int(mode, 8) if mode else None)

    def _commits(self) -> Iterator[str]:
        for number, text in enumerate(self._strings("git_commits")):
            if _COMMIT.fullmatch(text) is None:  # the schema's `$` lets a newline pass
                self.errors.append(refusal(f"git_commits[{number}]", text, "is no commit id"))
            yield text

    def _recorder(self) -> dict[str, Json]:
        metadata = self.value.get("metadata")
        recorder = metadata.get("evolver") if isinstance(metadata, dict) else None
        return recorder if isinstance(recorder, dict) else {}

    def _recording(self, recorder: dict[str, Json]) -> RelativePath | None:
        name = recorder.get("recording")
        return relative(f"{BACKUPS}/{name}") if isinstance(name, str) else None

    def _dirs(self, recorder: dict[str, Json]) -> Iterator[RelativePath]:
        items = recorder.get("created_dirs", [])
        assert isinstance(items, list)
        for number, text in enumerate(items):
            path = self._path(str(text), f"metadata.evolver.created_dirs[{number}]")
            if path is not None:
                yield path


def refusal(where: str, text: str, reason: str) -> str:
    """The one form in which a path of a log is refused: field, reason, path."""
    return f"Refused {where}: {reason}: {shown(text[:200])!r}"
