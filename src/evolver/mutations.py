"""Every small change that can be made to a Python source: one operator, constant or condition each, as a textual edit. Pure."""

from __future__ import annotations

import ast
import bisect
import io
import re
import tokenize
from dataclasses import dataclass

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
