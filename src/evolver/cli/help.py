"""`evolver help [TOPIC]`: modes, resume, events, exit codes, loops."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from evolver.errors import UsageError


def _topics(incomplete: str) -> list[str]:
    from evolver.ui.topics import names

    return [name for name in names() if name.startswith(incomplete)]

EPILOG = """Examples:
  evolver help   what there is help on
  evolver help exit-codes
"""


def register(app: typer.Typer) -> None:
    app.command("help", epilog=EPILOG)(help_)


def help_(
    topic: Annotated[
        str | None, typer.Argument(help="What about; none lists them.", autocompletion=_topics, show_default=False)
    ] = None,
) -> None:
    """Explain a topic: modes, resume, events, exit-codes, loops."""
    from evolver.ui.topics import names, text

    if topic is None:
        print("evolver help TOPIC, with TOPIC one of: " + ", ".join(names()))
        print("evolver COMMAND --help tells about one command; evolver --help lists them.")
        return
    wanted = topic.lower().replace("_", "-").replace("exitcodes", "exit-codes")
    if wanted not in names():
        raise UsageError(f"no help on {topic!r}", f"There is help on {', '.join(names())}; commands have --help.")
    if not sys.stdout.isatty():
        from evolver.ui.plain_markdown import plain_markdown

        sys.stdout.write(plain_markdown(text(wanted)))
        return
    from rich.markdown import Markdown

    from evolver.ui.tables import console

    console().print(Markdown(text(wanted)))
