"""Writes docs/reference/*.md from the code. `python docs/generate.py`; a test compares the result with what is committed."""

from __future__ import annotations

import ast
import inspect
import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import typer
from typer.core import TyperCommand, TyperGroup

from evolver import definition, errors, settings
from evolver.events import types

HERE = Path(__file__).parent / "reference"
NOTE = "<!-- Written by docs/generate.py from the code; edit the code. -->\n"


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ").strip()


def _table(head: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> str:
    lines = ["| " + " | ".join(head) + " |", "|" + " --- |" * len(head)]
    lines += ["| " + " | ".join(map(_cell, row)) + " |" for row in rows]
    return "\n".join(lines) + "\n"


class _Source:
    """The classes of a module as written: fields with annotation, default and the comment behind them."""

    def __init__(self, module: object) -> None:
        self.text = inspect.getsource(module)  # type: ignore[arg-type]  # a module
        self.lines = self.text.splitlines()
        self.classes = {node.name: node for node in ast.parse(self.text).body if isinstance(node, ast.ClassDef)}

    def fields(self, name: str) -> Iterator[tuple[str, str, str, str]]:
        """Name, type, default, comment; inherited fields first."""
        node = self.classes[name]
        for base in node.bases:
            if isinstance(base, ast.Name) and base.id in self.classes:
                yield from self.fields(base.id)
        for item in node.body:
            if isinstance(item, ast.AnnAssign) and isinstance(item.target, ast.Name):
                kind = ast.unparse(item.annotation)
                if kind.startswith("ClassVar"):
                    continue
                default = ast.unparse(item.value) if item.value is not None else ""
                comment = self.lines[(item.end_lineno or item.lineno) - 1].partition("  # ")[2]
                renamed = re.fullmatch(r"field\(name=['\"](\w+)['\"]\)", default)
                yield (renamed[1], kind, "", comment) if renamed else (item.target.id, kind, default, comment)


_KINDS = {
    "Count": "whole number",
    "int": "whole number",
    "str": "text",
    "str | None": "text",
    "bool": "true, false",
    "Duration": "duration",
    "Duration | None": "duration",
    "Size": "size",
    "Command | None": "text or list",
    "tuple[str, ...]": "list of text",
    "Decimal": "decimal in quotes",
    "dict[str, str]": "table of text",
    "dict[str, tuple[str, ...]]": "table of lists",
    "DirtyPolicy": "`refuse`, `keep`",
    "RollbackMode": "`hard`, `stash`, `none`",
}


def _kind(text: str) -> str:
    literal = re.match(r"Literal\[(.*?)\]", text)
    if literal:
        return ", ".join(f"`{word.strip().strip(chr(39)) or '(empty)'}`" for word in literal[1].split(","))
    if text.startswith("Annotated[int"):
        return "whole number"
    return _KINDS.get(text, f"`{text}`")


def _default(text: str) -> str:
    called = re.fullmatch(r"(?:Duration|Size)\.parse\('(.*)'\)", text)
    if called:
        return f"`{called[1]}`"
    enum = re.fullmatch(r"(?:DirtyPolicy|RollbackMode)\.(\w+)", text)
    if enum:
        return f"`{enum[1].lower()}`"
    if text == "":
        return "required"
    if text in ("None", "''", "()", "field(default_factory=dict)"):
        return ""
    if re.fullmatch(r"[\d_]+", text):
        return f"`{text.replace('_', '')}`"
    return f"`{text.lower() if text in ('True', 'False') else text.strip(chr(39))}`"


def loop_file() -> str:
    source = _Source(definition)
    out = [
        "# Loop files\n",
        NOTE,
        "A loop is `loops/NAME.toml` or `loops/NAME/loop.toml`. Unknown keys and wrong types are errors (exit 2).",
        "Durations are written `90s`, `8h`, `1h30m`; sizes `64MiB`, `2GiB`; a command is text (run by `sh -c`)",
        "or a list (an argv, in which `{python}` stands for the Python that runs evolver).\n",
    ]
    sections = {name: kind for name, kind, _, _ in source.fields("LoopDefinition")}
    for key, kind in sections.items():
        name = re.search(r"\w*Section|\bLoop\b", kind)
        if name is None:
            continue
        title = f"[[{key}]]" if kind.startswith("tuple") else f"[{key}.NAME]" if kind.startswith("dict") else f"[{key}]"
        about = ast.get_docstring(source.classes[name[0]]) or ""
        out += [
            f"## `{title}`\n",
            re.sub(r"^`\[+[\w.]+\]+`: ", "", about)[:1].upper() + re.sub(r"^`\[+[\w.]+\]+`: ", "", about)[1:] + "\n",
        ]
        out.append(
            _table(
                ("key", "type", "default", "meaning"),
                [(f"`{n}`", _kind(k), _default(d), c) for n, k, d, c in source.fields(name[0])],
            )
        )
    return "\n".join(out)


def environment() -> str:
    rows = [
        (f"`{v.name}`", f"`{v.default}`" if v.default else "", f"`{v.key}`" if v.key else "", v.meaning)
        for v in settings.VARIABLES
    ]
    steps = [(f"`{name}`", meaning) for name, meaning in settings.STEP_VARIABLES.items()]
    return "\n".join(
        [
            "# Environment\n",
            NOTE,
            "Precedence: flag, environment, `.env` at the top of the worktree, loop file, default. An empty value",
            "counts as not set; a wrong one is exit 2 and names its source.\n",
            _table(("variable", "default", "loop-file key", "meaning"), rows),
            "## What every step is given\n",
            _table(("variable", "meaning"), steps),
            "## What a `[[sink]]` command is given\n",
            _table(("variable", "meaning"), [(f"`{name}`", meaning) for name, meaning in settings.SINK_VARIABLES.items()]),
        ]
    )


def events() -> str:
    source = _Source(types)
    out = [
        "# Events\n",
        NOTE,
        "One line, one CloudEvents 1.0 envelope: `specversion, id, source, type, subject, time, datacontenttype, sequence,",
        "runid, iteration, severity, data, chainversion, prevhash, hash`. `type` is `dev.evolver.` and one of the names below.",
        "Durations are integers that end in `_ms`; scores and money are strings. New types may be added, none is renamed.\n",
    ]
    for wire, cls in types.all_types().items():
        about = ast.get_docstring(source.classes[cls.__name__]) or ""
        out += [f"## `{wire}`\n", f"Severity `{cls.SEVERITY}`. {about}".strip() + "\n"]
        out.append(
            _table(
                ("field", "type", "meaning"),
                [(f"`{n}`", f"`{k}`", c) for n, k, _, c in source.fields(cls.__name__)],
            )
        )
    return "\n".join(out)


EXIT_MEANINGS = {
    "ACCEPTED": "at least one iteration accepted, or the goal reached, whatever stopped the run",
    "NOTHING_ACCEPTED": "finished, nothing accepted; or a check found something (`doctor`, `changes rollback` not successful)",
    "USAGE": "usage or definition error",
    "HELD": "held: a person must run `evolver resume`",
    "NOT_RESTORED": "the tree could not be restored and verified: a person is needed",
    "PREFLIGHT": "preflight refused; nothing changed",
    "BUSY": "another run is active in this worktree",
    "LOG_BROKEN": "the event stream is broken or cannot be written",
    "CANNOT_TELL": "`audit verify`: cannot tell (missing, unreadable, not ours)",
    "BUG": "a bug in evolver; a crash report is written",
    "HANGUP": "interrupted by SIGHUP, after rolling back (in `none`: after writing the lock)",
    "INTERRUPTED": "interrupted by SIGINT, likewise",
    "TERMINATED": "interrupted by SIGTERM, likewise",
}


def exit_codes() -> str:
    rows = [(f"`{int(status)}`", EXIT_MEANINGS[status.name]) for status in errors.ExitStatus]
    return "\n".join(
        [
            "# Exit codes\n",
            NOTE,
            _table(("exit", "meaning"), rows),
            "When several apply: 2, 6, 3, 5 before a run, in this order; 4, 8, 3, 129, 130, 143 outrank 0 and 1.\n",
        ]
    )


def _command(command: TyperGroup | TyperCommand, path: str) -> Iterator[str]:
    context = typer.Context(command, info_name=path, terminal_width=100, max_content_width=100)
    if isinstance(command, TyperGroup):
        for name in sorted(command.list_commands(context)):
            child = command.get_command(context, name)
            if isinstance(child, TyperGroup | TyperCommand) and not child.hidden:
                yield from _command(child, f"{path} {name}")
        return
    yield f"## `{path}`\n"
    yield f"```text\n{command.get_help(context).rstrip()}\n```\n"


def cli() -> str:
    from evolver.cli.app import build

    command = typer.main.get_command(build())
    assert isinstance(command, TyperGroup)
    made_with = f"<!-- Laid out by typer {typer.__version__}. -->\n"
    return "\n".join(["# Command line\n", NOTE, made_with, *_command(command, "evolver")])


PAGES = {
    "cli.md": cli,
    "environment.md": environment,
    "events.md": events,
    "exit-codes.md": exit_codes,
    "loop-file.md": loop_file,
}


def main() -> int:
    HERE.mkdir(exist_ok=True)
    for name, page in PAGES.items():
        (HERE / name).write_text(page(), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
