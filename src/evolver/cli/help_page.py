"""How `--help` is laid out: what a value is, not its type; usage as manual pages write it; examples as they were written."""

from __future__ import annotations

import inspect
from typing import Any

from typer.core import TyperCommand, TyperGroup

# What the value of an option is called, where neither its `metavar` nor its own name says so.
VALUES = {
    "-C": "DIR",
    "--agent": "NAME",
    "--after": "CURSOR",
    "--budget": "USD",
    "--codegen": "COMMAND",
    "--goal": "TEXT",
    "--log": "FILE",
    "--max-iters": "N",
    "--max-time": "TIME",
    "--note": "TEXT",
    "--prompt": "FILE",
    "--root": "DIR",
    "--run": "RUN_ID",
    "--since": "TIME",
    "--type": "GLOB",
    "--validate": "COMMAND",
}


def value_name(parameter: Any) -> str:
    """`MODE`, `DIR`, `ITERATION`."""
    if parameter.metavar:
        return str(parameter.metavar)
    longest = max(parameter.opts, key=len)
    return VALUES.get(longest) or longest.lstrip("-").replace("-", "_").upper()


def _is_argument(parameter: Any) -> bool:
    return bool(parameter.param_type_name == "argument")


def _usage(parameter: Any) -> str:
    name = value_name(parameter)
    shown = name if parameter.required else f"[{name}]"
    return f"{shown}..." if parameter.nargs == -1 and not name.endswith("...") else shown


def _row(parameter: Any) -> tuple[str, str]:
    """What is typed, and what it means."""
    about = [parameter.help or ""]
    if _is_argument(parameter):
        if parameter.show_default and isinstance(parameter.default, str):
            about.append(f"[default: {parameter.default}]")
        return value_name(parameter), "  ".join(about)
    typed = ", ".join(sorted(parameter.opts, key=len))
    if parameter.secondary_opts:
        typed += f" / {', '.join(parameter.secondary_opts)}"
        about = [f"{about[0].rstrip('.')} (default)." if parameter.default else about[0]]
    elif not parameter.is_flag:
        typed += f" {value_name(parameter)}"
    if parameter.required:
        about.append("[required]")
    return typed, "  ".join(about)


def _write_epilog(epilog: str | None, formatter: Any) -> None:
    """Line for line: a command that is broken at the margin cannot be copied."""
    for block in inspect.cleandoc(epilog).split("\n\n") if epilog else ():
        heading, *lines = block.splitlines()
        if any(line.lstrip().startswith("evolver ") for line in lines):
            formatter.write(f"\n{heading}\n" + "".join(f"  {line.strip()}\n" for line in lines))
        else:
            formatter.write("\n")
            formatter.write_text(block)


class Command(TyperCommand):
    """A command whose help page is ours."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        for parameter in filter(_is_argument, self.params):  # so that errors call it what the usage does
            parameter.metavar = value_name(parameter)

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        return ["[OPTIONS]", *(_usage(parameter) for parameter in self.get_params(ctx) if _is_argument(parameter))]

    def format_options(self, ctx: Any, formatter: Any) -> None:
        shown = [parameter for parameter in self.get_params(ctx) if not getattr(parameter, "hidden", False)]
        arguments = [_row(parameter) for parameter in shown if _is_argument(parameter)]
        options = [_row(parameter) for parameter in shown if not _is_argument(parameter)]
        for heading, rows in (("Arguments", arguments), ("Options", options)):
            if rows:
                with formatter.section(heading):
                    formatter.write_dl(rows)

    def format_epilog(self, ctx: Any, formatter: Any) -> None:
        _write_epilog(self.epilog, formatter)


class Group(TyperGroup):
    """A group of commands, likewise."""

    def format_epilog(self, ctx: Any, formatter: Any) -> None:
        _write_epilog(self.epilog, formatter)
