"""Imports go only downward through the table of docs/architecture.md, and every module has its place in it."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src/evolver"
ROW = re.compile(r"^\| (`.+?`(?:, `.+?`)*) \|", re.M)
EXEMPT = {"__init__", "_version", "__main__"}  # the public face, which loads the API only when it is asked for


def layers() -> dict[str, int]:
    """Top-level module or package (`git`, `events`) to its row, from 0 at the top of the table."""
    text = (ROOT / "docs/architecture.md").read_text(encoding="utf-8")
    return {
        name.strip("`").removesuffix(".py").removesuffix("/"): row
        for row, cells in enumerate(ROW.findall(text))
        for name in cells.split(", ")
    }


def top(path: Path) -> str:
    return path.relative_to(SOURCE).parts[0].removesuffix(".py")


def modules() -> list[Path]:
    return sorted(path for path in SOURCE.rglob("*.py") if top(path) not in EXEMPT and "loops" not in path.parts)


def imported(path: Path, *, members: bool = False) -> Iterator[tuple[int, str]]:
    """Line and full name of every evolver module a file imports, inside functions too.

    With `members` also each name with its module's before it: `from evolver.worktree import values` names a module, too.
    """
    package = ("evolver", *path.relative_to(SOURCE).parts[:-1])
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names if alias.name.split(".")[0] == "evolver")
        elif isinstance(node, ast.ImportFrom):
            base = ".".join(package[: len(package) - node.level + 1]) if node.level else ""
            name = ".".join(filter(None, (base, node.module)))
            if name == "evolver":
                yield from ((node.lineno, f"evolver.{alias.name}") for alias in node.names)
            elif name.startswith("evolver."):
                yield node.lineno, name
                if members:
                    yield from ((node.lineno, f"{name}.{alias.name}") for alias in node.names)


def test_every_module_is_in_the_table_and_every_name_of_it_exists() -> None:
    found = {top(path) for path in modules()}
    assert found == set(layers())


@pytest.mark.parametrize("path", modules(), ids=lambda path: str(path.relative_to(SOURCE)))
def test_imports_go_downward(path: Path) -> None:
    table, here = layers(), top(path)
    wrong = []
    for line, name in imported(path):
        target = name.split(".")[1]
        if target in EXEMPT or target == "__version__" or target == here:
            continue
        if table.get(target, 0) > table.get(here, 0):  # a missing name is another test's failure
            wrong.append(f"{path.relative_to(ROOT)}:{line} imports {name}, which stands below it in docs/architecture.md")
    assert not wrong


def test_no_cycles_between_modules() -> None:
    names = {".".join(("evolver", *path.relative_to(SOURCE).with_suffix("").parts)): path for path in modules()}
    names = {name.removesuffix(".__init__"): path for name, path in names.items()}
    edges = {name: {target for _, target in imported(path, members=True)} for name, path in names.items()}
    done: set[str] = set()

    def visit(name: str, trail: tuple[str, ...]) -> None:
        assert name not in trail, " -> ".join((*trail[trail.index(name) :], name))
        if name not in done:
            for target in sorted(edges.get(name, set()) & names.keys() - {name}):
                visit(target, (*trail, name))
            done.add(name)

    for name in names:
        visit(name, ())


STARTS = {
    "subprocess": {"run", "Popen", "call", "check_call", "check_output", "getoutput", "getstatusoutput"},
    "os": {
        "system",
        "popen",
        "fork",
        "forkpty",
        "posix_spawn",
        "posix_spawnp",
        "execv",
        "execve",
        "execvp",
        "execvpe",
        "spawnv",
    },
}


def test_only_the_gateways_import_git_and_start_children() -> None:
    """One gateway to git, one to child processes."""
    wrong = []
    for path in modules():
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            roots: set[str] = set()
            if isinstance(node, ast.Import):
                roots = {alias.name.split(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and not node.level:
                roots = {(node.module or "").split(".")[0]}
            if "git" in roots and top(path) != "git":
                wrong.append(f"{path}: {ast.unparse(node)}")
            started = (
                isinstance(node, ast.Attribute)
                and isinstance(node.value, ast.Name)
                and node.attr in STARTS.get(node.value.id, ())
            )
            if started and top(path) not in ("process", "git"):
                wrong.append(f"{path}: {ast.unparse(node)}")
    assert not wrong


def test_only_ui_and_cli_print() -> None:
    for path in modules():
        if top(path) in ("ui", "cli", "mutate"):  # the mutator is a program of its own
            continue
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
                assert node.func.id != "print", f"{path}:{node.lineno}"
