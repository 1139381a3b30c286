"""What kind of project a folder holds, and how it is checked. Files are looked at, nothing is run."""

from __future__ import annotations

import json
import re
import shutil
import tomllib
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


def _pytest(root: Path) -> Found | None:
    try:
        project = tomllib.loads(_text(root / "pyproject.toml"))
    except tomllib.TOMLDecodeError:
        project = {}
    tool = project.get("tool")
    configured = (
        (isinstance(tool, dict) and "pytest" in tool)
        or (root / "pytest.ini").is_file()
        or (root / "conftest.py").is_file()
        or re.search(r"^\[(tool:)?pytest\]", _text(root / "setup.cfg") + _text(root / "tox.ini"), re.M)
    )
    written = any(
        True for folder in (root, root / "tests", root / "test") if folder.is_dir() for _ in folder.glob("test_*.py")
    ) or any((root / "tests").glob("*/test_*.py"))
    if not (configured or written):
        return None
    ignore = ("__pycache__/", ".pytest_cache/", ".venv/")
    return Found("pytest", f"{python_of(root)} -m pytest -q -x", ignore)


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


DETECTORS: tuple[Callable[[Path], Found | None], ...] = (_pytest, _npm, _cargo, _go, _make)


def validators(root: Path) -> tuple[Found, ...]:
    """The project's own ways to check itself, cheapest first. A `make check` that stands beside another is left out."""
    found = [kind for detect in DETECTORS if (kind := detect(root)) is not None]
    return tuple(kind for kind in found if not (kind.name.startswith("make") and len(found) > 1))
