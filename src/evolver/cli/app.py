"""The command line's table of contents: one module a topic, each registers its commands."""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from types import MappingProxyType
from typing import Annotated

import typer

from evolver.cli.help_page import Command, Group

# Command to the module that registers it. Only the one that was asked for is imported: start-up time is a feature.
COMMANDS = MappingProxyType(
    {
        "run": "run",
        "resume": "resume",
        "status": "status",
        "events": "events",
        "explain": "explain",
        "audit": "audit",
        "log": "log",
        "show": "show",
        "diff": "diff",
        "compare": "compare",
        "attempts": "attempts",
        "changes": "changes",
        "effects": "effects",
        "revert": "revert",
        "land": "land",
        "pause": "control",
        "stop": "control",
        "prompt": "prompt",
        "report": "report",
        "init": "init",
        "doctor": "doctor",
        "demo": "demo",
        "help": "help",
    }
)

EPILOG = """Examples:
  evolver demo            see it work, without a model
  evolver init            set a loop up in your project
  evolver doctor          what would stop a run here
  evolver run             start the loop
  evolver help            what else there is to read about
"""


def _version(value: bool) -> None:
    if value:
        from evolver._version import __version__

        typer.echo(f"evolver {__version__}")
        raise typer.Exit


def build(command: str | None = None) -> typer.Typer:
    """The application: with `command` alone when that is one of ours, else whole."""
    app = typer.Typer(
        name="evolver",
        cls=Group,
        no_args_is_help=True,
        add_completion=True,
        pretty_exceptions_enable=False,
        rich_markup_mode=None,
        help="Let a coding agent work alone in a git repository: every attempt is committed, or undone exactly and provably.",
        epilog=EPILOG,
        context_settings={"help_option_names": ["-h", "--help"]},
    )

    @app.callback()
    def root(
        version: Annotated[
            bool, typer.Option("--version", "-V", callback=_version, is_eager=True, help="Print the version.")
        ] = False,
    ) -> None:
        pass

    topics = [COMMANDS[command]] if command is not None and command in COMMANDS else list(dict.fromkeys(COMMANDS.values()))
    for topic in topics:
        name = f"evolver.cli.{topic}"
        if find_spec(name) is not None:
            import_module(name).register(app)
    _lay_out(app)
    return app


def _lay_out(app: typer.Typer) -> None:
    """Help pages of our own for every command below."""
    for command in app.registered_commands:
        command.cls = Command
    for group in app.registered_groups:
        if group.typer_instance is not None:
            group.cls = Group
            _lay_out(group.typer_instance)
