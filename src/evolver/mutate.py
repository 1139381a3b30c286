"""A codegen step that needs no model: change one operator, constant or condition of a Python source tree.

    python -m evolver.mutate [--seed N] [--list] [PATH ...]

Which edit is made depends only on the seed, `EVOLVER_ITERATION` and the sources, so a run can be repeated. The edit is
textual and as small as the change itself: nothing else of the file is touched, whatever its encoding or line ends.
Standard library only: this runs once an iteration, and its start is most of what it costs.
"""

from __future__ import annotations

import argparse
import ast
import bisect
import io
import os
import random
import re
import sys
import tokenize
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

# One replacement each, so that every candidate is one edit and `--list` can show it.
COMPARISONS = {
    "<": "<=", "<=": "<", ">": ">=", ">=": ">", "==": "!=", "!=": "==",
    "is": "is not", "is not": "is", "in": "not in", "not in": "in",
}  # fmt: skip
ARITHMETIC = {
    "+": "-", "-": "+", "*": "//", "//": "*", "/": "*", "%": "*", "**": "*",
    "<<": ">>", ">>": "<<", "&": "|", "|": "&", "^": "&",
}  # fmt: skip
LOGIC = {"and": "or", "or": "and"}
KINDS = ("operator", "constant", "condition")

_OPERATORS: dict[type[ast.AST], str] = {
    ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">=", ast.Eq: "==", ast.NotEq: "!=",
    ast.Is: "is", ast.IsNot: "is not", ast.In: "in", ast.NotIn: "not in",
    ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.FloorDiv: "//", ast.Div: "/", ast.Mod: "%", ast.Pow: "**",
    ast.LShift: "<<", ast.RShift: ">>", ast.BitAnd: "&", ast.BitOr: "|", ast.BitXor: "^",
    ast.And: "and", ast.Or: "or",
}  # fmt: skip

_SKIPPED_FOLDERS = frozenset({"__pycache__", "node_modules", "build", "dist", "site-packages", "docs", "doc"})
_TEST_FOLDERS = frozenset({"test", "tests", "testing"})
_SKIPPED_FILES = frozenset({"setup.py", "conftest.py", "noxfile.py", "conf.py", "_version.py"})
_LINE_END = re.compile(r"\r\n|\r|\n")  # what Python counts as a line; `str.splitlines` also splits at form feeds


@dataclass(frozen=True, slots=True, order=True)
class Mutation:
    """Replace the characters `start` to `end` of a decoded source by `new`."""

    start: int
    end: int
    new: str
    kind: str  # one of KINDS
    line: int

    def apply(self, text: str) -> str:
        return text[: self.start] + self.new + text[self.end :]


@dataclass(frozen=True, slots=True)
class Source:
    """A decoded source file. `text` keeps the line ends, so that encoding it gives the file's bytes again."""

    path: Path
    text: str
    encoding: str

    @classmethod
    def read(cls, path: Path) -> Source | None:
        """None for a file that is no valid Python in its own encoding, or would not come back byte for byte."""
        try:
            raw = path.read_bytes()
            encoding, _ = tokenize.detect_encoding(io.BytesIO(raw).readline)
            text = raw.decode(encoding)
        except (OSError, SyntaxError, UnicodeDecodeError, LookupError):
            return None
        return cls(path, text, encoding) if text.encode(encoding) == raw else None

    def write(self, text: str) -> None:
        """Overwrite in place: mode and hard links stay as they are."""
        self.path.write_bytes(text.encode(self.encoding))


class _Finder(ast.NodeVisitor):
    """Collects the mutations of one module."""

    def __init__(self, text: str) -> None:
        self.found: list[Mutation] = []
        self._text = text
        self._starts = [0, *(match.end() for match in _LINE_END.finditer(text))]
        self._tokens = [
            (self._starts[token.start[0] - 1] + token.start[1], self._starts[token.end[0] - 1] + token.end[1], token.string)
            for token in tokenize.generate_tokens(io.StringIO(text, newline="").readline)
            if token.type in (tokenize.OP, tokenize.NAME)
        ]
        self._token_starts = [token[0] for token in self._tokens]

    def _between(self, low: int, high: int) -> list[tuple[int, int, str]]:
        """The tokens between two offsets, brackets left out."""
        first, last = bisect.bisect_left(self._token_starts, low), bisect.bisect_left(self._token_starts, high)
        return [token for token in self._tokens[first:last] if token[2] not in "()"]

    def _offset(self, line: int, utf8_column: int) -> int:
        start = self._starts[line - 1]
        end = self._starts[line] if line < len(self._starts) else len(self._text)
        return start + len(self._text[start:end].encode("utf-8", "surrogatepass")[:utf8_column].decode("utf-8", "ignore"))

    def _span(self, node: ast.expr) -> tuple[int, int]:
        assert node.end_lineno is not None and node.end_col_offset is not None  # always set by the parser
        return self._offset(node.lineno, node.col_offset), self._offset(node.end_lineno, node.end_col_offset)

    def _add(self, start: int, end: int, new: str, kind: str) -> None:
        self.found.append(Mutation(start, end, new, kind, bisect.bisect_right(self._starts, start)))

    def _operator(self, operator: ast.AST, left: ast.expr, right: ast.expr, table: dict[str, str]) -> None:
        """The operator's tokens stand between its operands; brackets, comments and line ends may stand there too."""
        old = _OPERATORS.get(type(operator))
        if old is None or old not in table:
            return
        low, high = self._span(left)[1], self._span(right)[0]
        words = self._between(low, high)
        if [word[2] for word in words] == old.split():
            self._add(words[0][0], words[-1][1], table[old], "operator")

    def visit_BinOp(self, node: ast.BinOp) -> None:
        self._operator(node.op, node.left, node.right, ARITHMETIC)
        self.generic_visit(node)

    def visit_BoolOp(self, node: ast.BoolOp) -> None:
        for left, right in zip(node.values, node.values[1:], strict=False):
            self._operator(node.op, left, right, LOGIC)
        self.generic_visit(node)

    def visit_Compare(self, node: ast.Compare) -> None:
        for left, operator, right in zip((node.left, *node.comparators), node.ops, node.comparators, strict=False):
            self._operator(operator, left, right, COMPARISONS)
        self.generic_visit(node)

    def visit_AugAssign(self, node: ast.AugAssign) -> None:
        old = _OPERATORS.get(type(node.op), "")
        low, high = self._span(node.target)[1], self._span(node.value)[0]
        for start, end, word in self._between(low, high):
            if word == f"{old}=" and old in ARITHMETIC:
                self._add(start, end, f"{ARITHMETIC[old]}=", "operator")
        self.generic_visit(node)

    def visit_Constant(self, node: ast.Constant) -> None:
        start, end = self._span(node)
        if isinstance(node.value, bool):
            self._add(start, end, str(not node.value), "constant")
        elif isinstance(node.value, int | float) and self._text[start:end].replace("_", "").replace(".", "").isdigit():
            for value in {node.value + 1, abs(node.value - 1), node.value * 2}:
                if repr(value) != repr(node.value):
                    self._add(start, end, repr(value), "constant")

    def _condition(self, test: ast.expr) -> None:
        start, end = self._span(test)
        words = self._text[start:end]
        if "__name__" not in words and "TYPE_CHECKING" not in words:
            self._add(start, end, f"not ({words})", "condition")

    def visit_If(self, node: ast.If) -> None:
        self._condition(node.test)
        self.generic_visit(node)

    def visit_IfExp(self, node: ast.IfExp) -> None:
        self._condition(node.test)
        self.generic_visit(node)

    def visit_JoinedStr(self, node: ast.JoinedStr) -> None:
        """Left alone: before Python 3.12 the positions inside an f-string are wrong."""

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        if node.value is not None:  # the annotation is left alone: no test can see it
            self.visit(node.value)

    def visit_arg(self, node: ast.arg) -> None:
        """An annotation."""

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        self._function(node)

    def visit_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> None:
        self._function(node)

    def _function(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        for child in (*node.decorator_list, node.args, *node.body):  # all but what it returns by annotation
            self.visit(child)


def mutations(text: str) -> list[Mutation]:
    """Every valid mutation of a source, in order of place; empty when it is no valid Python."""
    try:
        tree = ast.parse(text)
        finder = _Finder(text)
        finder.visit(tree)
    except (SyntaxError, ValueError, IndentationError, tokenize.TokenError, RecursionError):
        return []
    return sorted(set(finder.found))


def is_valid(text: str) -> bool:
    """Whether a source parses; `x is not ...` and the like can still go wrong in odd places."""
    try:
        ast.parse(text)
    except (SyntaxError, ValueError):
        return False
    return True


def python_files(root: Path) -> Iterator[Path]:
    """The sources below a folder, sorted: no tests, no packaging, no environments, nothing hidden, no symlinks."""
    if root.is_file():
        yield root
        return
    for folder, folders, names in os.walk(root):
        here = Path(folder)
        folders[:] = sorted(
            name
            for name in folders
            if not name.startswith(".")
            and name not in _SKIPPED_FOLDERS | _TEST_FOLDERS
            and not (here / name / "pyvenv.cfg").exists()
            and not (here / name / ".git").exists()
        )
        for name in sorted(names):
            path = here / name
            if not name.endswith(".py") or name in _SKIPPED_FILES or name.startswith("test_") or name.endswith("_test.py"):
                continue
            if path.is_file() and not path.is_symlink():
                yield path


def mutate(paths: list[Path], seed: str, kinds: tuple[str, ...] = KINDS) -> tuple[Source, Mutation] | None:
    """Write one mutation, chosen by `seed`. None, and nothing written, when there is nothing to change.

    Files are drawn by their size, then a place in the file: about every place in the tree is equally likely, and a large
    tree costs one parse.
    """
    rng = random.Random(seed)
    files = dict.fromkeys(found for root in paths for found in python_files(root))
    for path in sorted(files, key=lambda path: rng.random() ** (1 / (path.stat().st_size + 1)), reverse=True):
        source = Source.read(path)
        changes = [change for change in mutations(source.text) if change.kind in kinds] if source else []
        rng.shuffle(changes)
        for change in changes:
            if source and is_valid(text := change.apply(source.text)):
                source.write(text)
                return source, change
    return None


def describe(source: Source, change: Mutation) -> str:
    old = " ".join(source.text[change.start : change.end].split())
    return f"{source.path}:{change.line}: {change.kind} `{old}` -> `{' '.join(change.new.split())}`"


def main(argv: list[str] | None = None) -> int:
    """Exit 0 when a file was changed (or listed), 1 when there is nothing to change."""
    parser = argparse.ArgumentParser(prog="python -m evolver.mutate", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("paths", nargs="*", type=Path, metavar="PATH", help="files or folders (default: the current folder)")
    parser.add_argument("--seed", default="0", help="any text; the iteration's number is mixed into it")
    parser.add_argument("--kind", action="append", choices=KINDS, help="only this kind; may be repeated")
    parser.add_argument("--list", action="store_true", help="print every possible change, make none")
    options = parser.parse_args(argv)
    paths: list[Path] = options.paths or [Path()]
    missing = [path for path in paths if not path.exists()]
    if missing:
        print(f"mutate: {missing[0]}: no such file or folder", file=sys.stderr)
        return 1
    kinds = tuple(options.kind or KINDS)
    if options.list:
        for path in dict.fromkeys(found for root in paths for found in python_files(root)):
            source = Source.read(path)
            for change in mutations(source.text) if source else []:
                if source and change.kind in kinds:
                    print(describe(source, change))
        return 0
    done = mutate(paths, f"{options.seed}:{os.environ.get('EVOLVER_ITERATION', '0')}", kinds)
    if done is None:
        print(f"mutate: nothing to change in {', '.join(map(str, paths))}", file=sys.stderr)
        return 1
    print(describe(*done))
    return 0


if __name__ == "__main__":
    sys.exit(main())
