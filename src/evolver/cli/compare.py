"""`evolver compare N M`: two iterations side by side."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from evolver.cli import complete

EPILOG = """Examples:
  evolver compare 3 7
  evolver compare 7 last
"""


def register(app: typer.Typer) -> None:
    app.command("compare", epilog=EPILOG)(compare)


def compare(
    first: Annotated[str, typer.Argument(help="RUN_ID/N, N of the last run, or last.", autocompletion=complete.iterations)],
    second: Annotated[str, typer.Argument(help="The other one.", autocompletion=complete.iterations)],
    directory: Annotated[Path, typer.Option("-C", help="Look at this folder's worktree.", show_default=False)] = Path("."),
) -> None:
    """Compare two iterations. Outcome, time, score, cost, files, and the difference between what they made."""
    from evolver.cli import pick
    from evolver.cli.stream import find_stream
    from evolver.ui.compare import rows
    from evolver.ui.objects import Objects
    from evolver.ui.patch import print_patch
    from evolver.ui.tables import console
    from evolver.ui.words import columns

    stream = find_stream(directory)
    pair = (pick.iteration(stream.path, first), pick.iteration(stream.path, second))
    out = console()
    for line in columns(rows(*pair)):
        out.print(line, soft_wrap=True)
    if stream.layout is None:
        return
    objects = Objects.of(stream.layout)
    made = [objects.result(iteration) for _, iteration in pair]
    out.print()
    if made[0] is None or made[1] is None:
        missing = " and ".join(name for name, result in zip((first, second), made, strict=True) if result is None)
        out.print(f"no diff between them: what {missing} made was not kept", soft_wrap=True)
    else:
        print_patch(objects.diff(made[0], made[1]) or b"the same tree\n", out)
