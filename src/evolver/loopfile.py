"""Finds, reads and checks loop files. What is wrong is told with file, key and what was expected."""

from __future__ import annotations

import difflib
import hashlib
import re
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec
import msgspec.inspect

from evolver.definition import CodegenSection, LoadedLoop, LoopDefinition, ValidatorSection
from evolver.durations import Duration, Size
from evolver.errors import UsageError
from evolver.patterns import why_wrong
from evolver.settings import Override, Settings, check_text

Table = dict[str, object]
GOAL = re.compile(r"accepted|promise|score|score\s*(>=|<=|>|<)\s*-?\d+(\.\d+)?")


def builtin_loops() -> Path:
    """The folder of the loops that ship with evolver: inside the package, or at the top of a source checkout."""
    inside = Path(__file__).parent / "loops"
    return inside if inside.is_dir() else Path(__file__).parents[2] / "loops"


def candidates(folder: Path) -> dict[str, Path]:
    """Loop name to file in one `loops/` folder: NAME.toml or NAME/loop.toml."""
    found = {p.parent.name: p for p in sorted(folder.glob("*/loop.toml"))}
    return found | {p.stem: p for p in sorted(folder.glob("*.toml"))}


def find(name: str | None, root: Path) -> tuple[str, Path]:
    """The loop called `name` (or a path to a file), or the worktree's own default. Raise `UsageError` that lists what there is."""
    own, shipped = candidates(root / "loops"), candidates(builtin_loops())
    if name is None:
        if "default" in own:
            return "default", own["default"]
        if len(own) == 1:
            return next(iter(own.items()))
        have = ", ".join(own) or "none"
        raise UsageError(
            f"no loop named, and {root / 'loops'} has no default (there: {have})",
            f"Name one, write one with `evolver init`, give --codegen and --validate, or run a built-in one: {', '.join(shipped)}.",
        )
    if name.endswith(".toml") or "/" in name:
        path = Path(name) if Path(name).is_absolute() else root / name
        path = path / "loop.toml" if path.is_dir() else path
        if not path.is_file():
            raise UsageError(f"loop file {path} does not exist", "Give a path below the worktree, or a loop's name.")
        return (path.parent.name if path.name == "loop.toml" else path.stem), path
    for place in (own, shipped):
        if name in place:
            return name, place[name]
    raise UsageError(
        f"no loop called {name!r}",
        f"In {root / 'loops'}: {', '.join(own) or 'none'}. Built in: {', '.join(shipped)}.",
    )


def _decode(kind: type, value: object) -> object:
    if kind in (Duration, Size):
        if not isinstance(value, str):
            raise ValueError(f"expected a string such as {'90s' if kind is Duration else '64MiB'!r}, got {value!r}")
        return kind.parse(value)
    raise NotImplementedError(kind)


def _encode(value: object) -> object:
    if isinstance(value, (Duration, Size)):
        return int(value)
    raise NotImplementedError(type(value))


def read_table(path: Path) -> Table:
    """A loop file as a raw table; syntax errors name file and line."""
    try:
        if path.exists() and not path.is_file():  # reading a pipe waits for ever
            raise UsageError(f"{path} is no regular file", "It must be a UTF-8 text file.")
        return tomllib.loads(path.read_text(encoding="utf-8-sig"))
    except RecursionError as error:
        raise UsageError(f"{path}: nested too deeply", "A loop file is TOML: `evolver help loops` shows a short one.") from error
    except tomllib.TOMLDecodeError as error:
        raise UsageError(f"{path}: {error}", "A loop file is TOML: `evolver help loops` shows a short one.") from error
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{path} cannot be read: {error}", "It must be a UTF-8 text file.") from error


def _set(table: Table, dotted: str, value: object) -> None:
    *parents, last = dotted.split(".")
    for name in parents:
        inner = table.setdefault(name, {})
        if not isinstance(inner, dict):
            return  # the file's own mistake is reported by the conversion
        table = inner
    table[last] = value


# A codegen given from outside replaces the file's, whatever kind that was.
_CODEGEN_KINDS = ("command", "callable", "agent")


def _apply(table: Table, overrides: Iterable[Override]) -> None:
    for override in overrides:
        section, _, key = override.key.partition(".")
        if section == "codegen" and key in _CODEGEN_KINDS:
            codegen = table.setdefault("codegen", {})
            if isinstance(codegen, dict):
                other = codegen.get(key) != override.value
                for kind in (*_CODEGEN_KINDS, *(("args", "fallback") if other else ())):  # another agent's arguments
                    codegen.pop(kind, None)
        _set(table, override.key, override.value)


_REFERENCE = "The keys, their types and defaults are in docs/reference/loop-file.md of evolver."


def _explain(error: msgspec.ValidationError, source: str, overrides: Mapping[str, str]) -> UsageError:
    text, _, where = str(error).partition(" - at `$")
    key = where.rstrip("`").lstrip(".")
    origin = overrides.get(key, source)
    key_part = f"{key}: " if key else ""
    return UsageError(f"{origin}: {key_part}{text}", f"{_what_fits(key, text)}{_REFERENCE}")


def _what_fits(key: str, text: str) -> str:
    """What may stand there instead: the nearest key, the words of an enum, an array of tables. "" when there is no telling."""
    if text == "Expected `array`, got `object`":
        return f"A table of which there may be several has two brackets: [[{key}]]. "
    place: Any = msgspec.inspect.type_info(LoopDefinition)
    for part in re.findall(r"\[[^]]*\]|[^.[]+", key):
        place = next(_inside(place, part), None)
    for kind in _alternatives(place):
        if isinstance(kind, msgspec.inspect.EnumType):
            return f"It may be {', '.join(str(member.value) for member in kind.cls)}. "
        if isinstance(kind, msgspec.inspect.LiteralType):
            return f"It may be {', '.join(str(value) for value in kind.values)}. "
        if isinstance(kind, msgspec.inspect.StructType) and (unknown := re.search(r"unknown field `(.*)`", text)):
            names = [item.encode_name for item in kind.fields]
            near = difflib.get_close_matches(unknown[1], names, 1)
            return f"Did you mean `{near[0]}`? " if near else f"There are {', '.join(names)}. "
    return ""


def _inside(place: Any, part: str) -> Iterator[Any]:
    for kind in _alternatives(place):
        if isinstance(kind, msgspec.inspect.StructType):
            yield from (item.type for item in kind.fields if item.encode_name == part)
        elif isinstance(kind, msgspec.inspect.VarTupleType):
            yield kind.item_type
        elif isinstance(kind, msgspec.inspect.DictType):
            yield kind.value_type


def _alternatives(place: Any) -> tuple[Any, ...]:
    return tuple(place.types) if isinstance(place, msgspec.inspect.UnionType) else (place,)


def check(definition: LoopDefinition, source: str) -> None:
    """What types cannot say. Raise `UsageError` with the key."""

    def wrong(key: str, expected: str) -> UsageError:
        return UsageError(f"{source}: {key}: {expected}", _REFERENCE)

    codegen = definition.codegen
    given = [k for k in _CODEGEN_KINDS if getattr(codegen, k) is not None]
    if len(given) != 1:
        raise wrong("codegen", f"exactly one of command, callable or agent is needed, got {', '.join(given) or 'none'}")
    if codegen.command is not None and not codegen.command:
        raise wrong("codegen.command", "expected a command, got an empty one")
    _check_times_and_variables(definition, wrong)
    names: set[str] = set()
    for number, validator in enumerate(definition.validator):
        key = f"validator[{number}]"
        if (validator.command is None) == (validator.callable is None):
            raise wrong(key, "exactly one of command or callable is needed")
        if validator.command is not None and not validator.command:
            raise wrong(f"{key}.command", "expected a command, got an empty one")
        if not re.fullmatch(r"[\w.@+ -]{1,80}", validator.name) or validator.name in names:
            raise wrong(
                f"{key}.name", f"expected a unique name of letters, digits, spaces and . _ + @ -, got {validator.name!r}"
            )
        names.add(validator.name)
    for key, patterns in (
        ("guard.protected", definition.guard.protected),
        ("rollback.leave", definition.rollback.leave),
        *((f"validator[{n}].when", validator.when) for n, validator in enumerate(definition.validator)),
    ):
        if why := why_wrong(patterns):
            raise wrong(key, why)
    until = definition.loop.until.strip()
    if until and not GOAL.fullmatch(until):
        raise wrong("loop.until", f"expected accepted, score, `score >= X` or promise, got {definition.loop.until!r}")
    if until.startswith("score") and definition.score is None:
        raise wrong("loop.until", "a score goal needs a [score] section")
    if until == "promise" and not definition.loop.promise:
        raise wrong("loop.promise", "expected a regular expression, since until is promise")
    if definition.score is not None:
        if definition.score.validator not in names:
            raise wrong("score.validator", f"expected the name of a validator, got {definition.score.validator!r}")
        if sum(map(bool, (definition.score.pattern, definition.score.json, definition.score.file))) != 1:
            raise wrong("score", "exactly one of pattern, json or file is needed")
    for key, pattern in (
        ("loop.promise", definition.loop.promise),
        *(("score.pattern", s.pattern) for s in [definition.score] if s is not None),
        *((f"guard.secrets[{i}]", p) for i, p in enumerate(definition.guard.secrets)),
        *((f"redact.patterns[{i}]", p) for i, p in enumerate(definition.redact.patterns)),
    ):
        try:
            re.compile(pattern)
        except re.error as error:
            raise wrong(key, f"expected a regular expression: {error}") from error
    for key, path in (("loop.promise_file", definition.loop.promise_file), ("loop.scope", definition.loop.scope)):
        if "\0" in path:
            raise wrong(key, f"expected a path, got {path!r}")
    if Path(definition.loop.scope).is_absolute() or ".." in Path(definition.loop.scope).parts:
        raise wrong("loop.scope", f"expected a folder inside the worktree, got {definition.loop.scope!r}")
    log = definition.rollback.changes_log
    if log is not None and (Path(log).is_absolute() or not Path(log).name or {"..", ".git"} & {p.casefold() for p in Path(log).parts}):
        raise wrong("rollback.changes_log", f"expected a file inside the worktree, got {log!r}")


def _check_times_and_variables(definition: LoopDefinition, wrong: Callable[[str, str], UsageError]) -> None:
    """A step with no time at all would fail each time, and so would one whose variables no process can have."""
    steps: list[tuple[str, CodegenSection | ValidatorSection]] = [("codegen", definition.codegen)]
    steps += [(f"validator[{n}]", validator) for n, validator in enumerate(definition.validator)]
    for key, limit in [("loop.max_time", definition.loop.max_time), *((f"{key}.timeout", step.timeout) for key, step in steps)]:
        if limit == 0:
            raise wrong(key, "expected more than 0")
    for key, step in steps:
        for name, value in step.env.items():
            if not name or "=" in name or "\0" in name + value:
                raise wrong(f"{key}.env", f"{name!r} cannot be the name of a variable, or holds a NUL byte")


def digest(definition: LoopDefinition) -> str:
    """SHA-256 of the definition as used, whatever file or flag each value came from."""
    return hashlib.sha256(msgspec.json.encode(definition, enc_hook=_encode, order="sorted")).hexdigest()


def to_json(definition: LoopDefinition) -> bytes:
    return msgspec.json.encode(definition, enc_hook=_encode, order="sorted")


def from_json(data: bytes) -> LoopDefinition:
    """The inverse of `to_json`. Raise `msgspec.MsgspecError`."""

    def decode(kind: type, value: object) -> object:
        if kind in (Duration, Size) and isinstance(value, int):
            return kind(value)
        raise NotImplementedError(kind)

    return msgspec.json.decode(data, type=LoopDefinition, dec_hook=decode)


def build(table: Table, name: str, source: Path | None, directory: Path, overrides: Iterable[Override] = ()) -> LoadedLoop:
    """A checked definition from a raw table and what overrides it."""
    applied = list(overrides)
    for override in applied:
        if isinstance(override.value, str):
            check_text(override.value, override.source)
    _apply(table, applied)
    origin = str(source) if source is not None else "command line"
    try:
        definition = msgspec.convert(table, LoopDefinition, dec_hook=_decode)
    except msgspec.ValidationError as error:
        raise _explain(error, origin, {o.key: o.source for o in applied}) from error
    check(definition, origin)
    return LoadedLoop(name=name, definition=definition, source=source, directory=directory, digest=digest(definition))


def load(
    name: str | None,
    root: Path,
    settings: Settings,
    flags: Iterable[Override] = (),
    validators: tuple[str, ...] = (),
    *,
    file: bool = True,
) -> LoadedLoop:
    """The loop to run: file (unless `file` is False), variables and flags taken together."""
    if file:
        name, source = find(name or settings.text("EVOLVER_LOOP") or None, root)
        table, directory = read_table(source), source.parent
    else:
        name, source, table, directory = "command-line", None, {}, root
    check_text(name, str(source))
    for command in validators:
        check_text(command, "--validate")
    if validators:
        table["validator"] = [
            {"name": "validate" if len(validators) == 1 else f"validate-{n}", "command": command}
            for n, command in enumerate(validators, 1)
        ]
    return build(table, name, source, directory, [*settings.overrides(), *flags])
