"""`evolver report`: a run as one HTML page, or as Markdown for a pull request."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from evolver.cli import complete

EPILOG = """Examples:
  evolver report -o report.html                 one page, for a browser
  evolver report --md                           for a pull request
  evolver report --md | gh pr comment 12 -F -
"""


def register(app: typer.Typer) -> None:
    app.command("report", epilog=EPILOG)(report)


def report(
    output: Annotated[
        Path | None,
        typer.Option("-o", "--output", metavar="FILE", help="Where to (evolver-report.html); - is standard output.", show_default=False),
    ] = None,
    markdown: Annotated[bool, typer.Option("--md", help="Markdown for a pull request, to standard output.")] = False,
    run: Annotated[
        str | None, typer.Option("--run", help="A run's id, or its beginning; else the last one.", autocompletion=complete.runs)
    ] = None,
    directory: Annotated[Path, typer.Option("-C", help="Look at this folder's worktree.", show_default=False)] = Path("."),
) -> None:
    """Write a page about a run, or Markdown for a pull request. Outcomes, scores, cost, failures by cause, commits, the chain."""
    from datetime import datetime

    from evolver import clone
    from evolver._version import __version__
    from evolver.cli import pick
    from evolver.cli.audit import check
    from evolver.cli.stream import find_stream
    from evolver.keeping import stored_definition
    from evolver.ui.objects import Objects, output_tail
    from evolver.ui.report import model, render
    from evolver.ui.views import IterationView
    from evolver.ui.words import plural

    stream = find_stream(directory)
    found = pick.run(stream.path, run)
    layout = stream.layout
    objects = Objects.of(layout) if layout is not None else None

    # An isolated run keeps its definition where it works.
    places = [place for place in (layout, clone.find(layout) if layout is not None else None) if place is not None]

    def failing_output(iteration: IterationView) -> str:
        step = iteration.failing_step
        return output_tail(step.log) if step is not None else ""

    verified = check(directory)
    words = {"intact": "intact", "broken": "BROKEN", "unknown": "cannot be told"}
    bad = f", first bad line {verified.first_bad.line}: {verified.first_bad.kind}" if verified.first_bad is not None else ""
    chain = model.Chain(verified.status == "intact", f"{words[verified.status]}, {verified.events:,} events{bad}")
    made = model.build(
        found,
        next((known for place in places if (known := stored_definition(place, found.definition_hash)) is not None), None),
        chain,
        show=objects.show if objects is not None else lambda name: None,
        output_of=failing_output,
        version=__version__,
        made_at=datetime.now().astimezone().strftime("%Y-%m-%d %H:%M:%S %z"),
    )
    text = render.markdown(made) if markdown else render.html(made)
    if str(output) == "-" or (markdown and output is None):
        sys.stdout.write(text)
        return
    target = output or Path("evolver-report.html")
    target.write_text(text, encoding="utf-8")
    typer.echo(f"{target}: {len(text.encode()):,} bytes, {plural(len(found.iterations), 'iteration')}")
