"""What judges an attempt, found once, on the baseline: the validators' scripts, the loop's own files.

So an agent that edits its own judge is rejected for the edit, and one that puts another in front of it as well.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

import msgspec

from evolver.definition import LoadedLoop
from evolver.scripts import Scripts, package_scripts, scripts_of


def _escape(path: str) -> str:
    return "/" + re.sub(r"([*?\[\]\\!# ])", r"\\\1", path.encode("utf-8", "backslashreplace").decode())


def _inside(root: Path, path: Path) -> Iterable[str]:
    """`path` as named and as it really is, relative to `root`, with every link on the way; nothing when it lies outside."""
    named = Path(os.path.normpath(path))
    for candidate in (named, Path(os.path.realpath(path)), *(folder for folder in named.parents if folder.is_symlink())):
        if candidate.is_relative_to(root) and candidate != root:
            yield str(candidate.relative_to(root))


def protected_globs(loaded: LoadedLoop, root: Path, prefix: str = "") -> tuple[str, ...]:
    """What `[guard] protected` says, and always: the loop's own files, `.env`, the scripts its validators run.

    `prefix`: the folder steps run in, where a loop has no scope.
    """
    found: dict[str, None] = {"/.env": None}
    if loaded.source is not None:
        for path in _inside(root, loaded.source):
            own_folder = loaded.source.name == "loop.toml" and "/" in path
            found[_escape(str(Path(path).parent) + "/") if own_folder else _escape(path)] = None
        if loaded.definition.codegen.prompt:
            for path in _inside(root, loaded.directory / loaded.definition.codegen.prompt):
                found[_escape(path)] = None
    for scripts, bases in _named(loaded, root, prefix):
        for base in bases:
            there = {name for name in scripts.files if _is_file(base / name)}
            # Beside a `Makefile`, a new `GNUmakefile` would be read in its stead; beside `judge.py`, a package `judge`.
            there |= {name for rivals in scripts.rivals if there & {*rivals} for name in rivals}
            # Unless it is the tool's own repository: a `pytest.py` would be run for pytest.
            there |= {name for name in scripts.impostors if not any((base / other).exists() for other in scripts.impostors)}
            for name in (*scripts.files, *scripts.impostors):
                if name in there:
                    found |= dict.fromkeys(_escape(path) for path in _inside(root, base / name))
    return (*found, *loaded.definition.guard.protected)


def _named(loaded: LoadedLoop, root: Path, prefix: str) -> Iterator[tuple[Scripts, tuple[Path, ...]]]:
    """For each validator what its command names, and the folders that may be relative to."""
    for validator in loaded.definition.validator:
        scripts = scripts_of(validator.command, validator.callable)
        bases = dict.fromkeys((root, root / prefix, root / loaded.definition.loop.scope, loaded.directory))
        bases |= dict.fromkeys(base / folder for base in tuple(bases) for folder in scripts.folders)
        yield scripts, tuple(bases)


def judges(loaded: LoadedLoop, root: Path, prefix: str = "") -> tuple[tuple[Path, ...], ...]:
    """For each validator the files that are its scripts."""
    return tuple(
        tuple(base / name for base in bases for name in scripts.files if _is_file(base / name))
        for scripts, bases in _named(loaded, root, prefix)
    )


def package_judges(loaded: LoadedLoop, root: Path, prefix: str = "") -> tuple[tuple[Path, str], ...]:
    """Each package.json whose scripts a validator runs, and what they say now."""
    asked = [bases for scripts, bases in _named(loaded, root, prefix) if scripts.packages]
    paths = dict.fromkeys(base / "package.json" for bases in asked for base in bases)
    return tuple((path, said) for path in paths if (said := package_scripts(path)) is not None)


def judge_hashes(loaded: LoadedLoop, root: Path, prefix: str = "") -> tuple[str, ...]:
    """SHA-256 of each validator: its command, and what its scripts say now."""
    hashes = []
    for validator, scripts in zip(loaded.definition.validator, judges(loaded, root, prefix), strict=True):
        digest = hashlib.sha256(msgspec.json.encode(validator.command if validator.command is not None else validator.callable))
        for script in dict.fromkeys(os.path.realpath(script) for script in scripts):
            try:
                with open(script, "rb") as file:
                    digest.update(b"\0" + hashlib.file_digest(file, "sha256").digest())
            except OSError:
                digest.update(b"\0unreadable")
        hashes.append(digest.hexdigest())
    return tuple(hashes)


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except (OSError, ValueError):  # too long for a path, or a NUL in it
        return False
