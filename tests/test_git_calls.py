"""Every call of git that takes revisions says where they end: a file of the same name would else make git refuse the word."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

SOURCE = Path(__file__).parents[1] / "src/evolver"
TAKES_REVISIONS = frozenset({"diff", "diff-index", "diff-tree", "log", "reset", "rev-list", "show", "checkout"})
CALLS = frozenset({"run", "text", "start", "_run", "_git", "_pieces"})


def words(call: ast.Call) -> list[str]:
    return [arg.value for arg in call.args if isinstance(arg, ast.Constant) and isinstance(arg.value, str)]


def calls(path: Path) -> Iterator[tuple[int, list[str]]]:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Call):
            name = node.func.attr if isinstance(node.func, ast.Attribute) else node.func.id if isinstance(node.func, ast.Name) else ""
            found = words(node)
            if name in CALLS and found and found[0] in TAKES_REVISIONS:
                yield node.lineno, found


def test_revisions_are_told_from_paths() -> None:
    found = [(path, line, said) for path in sorted(SOURCE.rglob("*.py")) for line, said in calls(path)]
    assert len(found) > 25  # the scan finds them
    open_ended = [f"{path.relative_to(SOURCE)}:{line}: {' '.join(said)}" for path, line, said in found if not {"--", "--stdin"} & {*said}]
    assert open_ended == []
