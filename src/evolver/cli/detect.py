"""What kind of project a folder holds, and how it is checked. Files are looked at, nothing is run."""

from __future__ import annotations

import json
import re
import shlex
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Found:
    """A way to validate, and what its tools leave behind that git should ignore."""

    name: str
    command: str
    ignore: tuple[str, ...] = ()


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return ""


def python_of(root: Path) -> str:
    """How the project's Python is called: its environment's, else whatever `python` is."""
    for manager, lock in (("uv", "uv.lock"), ("poetry", "poetry.lock"), ("pdm", "pdm.lock")):
        if (root / lock).is_file() and shutil.which(manager):
            return f"{manager} run python"
    for folder in (".venv", "venv"):
        if (root / folder / "bin/python").exists():
            return f"{folder}/bin/python"
    return "python" if shutil.which("python") else "python3"


_PYTEST_STYLE = re.compile(r"^\s*(import|from) pytest\b|^(async )?def test_|^class Test\w*(\(\))?:", re.M)
_UNITTEST = re.compile(r"^\s*(import|from) unittest\b", re.M)
_REQUIREMENTS = ("pyproject.toml", "setup.cfg", "setup.py", "tox.ini", "noxfile.py", "Pipfile", "uv.lock", "poetry.lock")
_IGNORED = ("__pycache__/", ".venv/")
_READ = 200  # test files that are looked into


def _python(root: Path) -> Found | None:
    """pytest where anything speaks of it, or nothing of unittest; a project with test cases only is run by unittest."""
    tests = _test_files(root)
    asked_for = (
        any((root / name).is_file() for name in ("pytest.ini", ".pytest.ini", "conftest.py", "tests/conftest.py"))
        or any(re.search(r"(?<![\w-])pytest\b", _text(root / name)) for name in _REQUIREMENTS)
        or any(re.search(r"^pytest\b", _text(path), re.M) for path in root.glob("*requirements*.txt"))
        or any(re.search(r"^pytest\b", _text(path), re.M) for path in root.glob("requirements/*.txt"))
    )
    texts = [_text(path) for path in tests[:_READ]]
    cases = any(map(_UNITTEST.search, texts)) and not any(map(_PYTEST_STYLE.search, texts))
    if cases and not asked_for:
        return Found("unittest", _unittest(root, tests), _IGNORED)
    if not (asked_for or any(path.name.startswith("test_") for path in tests)):
        return None
    return Found("pytest", f"{python_of(root)} -m pytest -q -x", (*_IGNORED, ".pytest_cache/"))


def _test_files(root: Path) -> list[Path]:
    folders = (root, root / "tests", root / "test")
    return [p for f in folders for p in sorted(f.glob("test*.py"))] + [
        p for f in folders[1:] for p in sorted(f.glob("*/test*.py"))
    ]


def _unittest(root: Path, tests: list[Path]) -> str:
    """Discovery enters packages only, so every folder of tests that no package leads to is a start of its own."""
    starts: dict[Path, None] = {}
    for path in tests:
        start = path.parent
        while start != root and (start / "__init__.py").is_file():
            start = start.parent
        starts[start] = None
    python = python_of(root)
    return " && ".join(
        f"{python} -m unittest discover -q -s {shlex.quote(str(start.relative_to(root)))}"
        if start != root
        else f"{python} -m unittest -q"
        for start in starts
    )


def _npm(root: Path) -> Found | None:
    try:
        package = json.loads(_text(root / "package.json") or "{}")
    except ValueError:
        return None
    scripts = package.get("scripts") if isinstance(package, dict) else None
    test = scripts.get("test") if isinstance(scripts, dict) else None
    if not isinstance(test, str) or "no test specified" in test:
        return None
    locks = (("pnpm-lock.yaml", "pnpm"), ("yarn.lock", "yarn"), ("bun.lock", "bun run"), ("bun.lockb", "bun run"))
    manager = next((manager for lock, manager in locks if (root / lock).is_file()), "npm")
    return Found("npm test", f"{manager} test", ("node_modules/",))


def _cargo(root: Path) -> Found | None:
    return Found("cargo test", "cargo test --quiet", ("target/",)) if (root / "Cargo.toml").is_file() else None


def _go(root: Path) -> Found | None:
    return Found("go test", "go test ./...") if (root / "go.mod").is_file() else None


def _make(root: Path) -> Found | None:
    makefile = next((_text(root / name) for name in ("GNUmakefile", "makefile", "Makefile") if (root / name).is_file()), "")
    for target in ("check", "test"):
        if re.search(rf"^{target}\s*:(?!=)", makefile, re.M):
            return Found(f"make {target}", f"make {target}")
    return None


DETECTORS: tuple[Callable[[Path], Found | None], ...] = (_python, _npm, _cargo, _go, _make)


def validators(root: Path) -> tuple[Found, ...]:
    """The project's own ways to check itself, cheapest first. A `make check` that stands beside another is left out."""
    found = [kind for detect in DETECTORS if (kind := detect(root)) is not None]
    return tuple(kind for kind in found if not (kind.name.startswith("make") and len(found) > 1))
