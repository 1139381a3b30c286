"""`evolver events`: print, filter and follow the stream. Registers `audit` and `explain` as well: they read the same file."""

from __future__ import annotations

import re
import select
import sys
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Annotated, Literal

import typer

from evolver.cli.stream import find_stream, quiet_pipe
from evolver.durations import Duration
from evolver.errors import UsageError
from evolver.events.reader import Cursor, Filter, Record, records

EPILOG = """Examples:
  evolver events -f                               as it happens
  evolver events --run last                       the last run only
  evolver events --type 'rollback.*' --since 8h   every rollback of the night
  evolver events --status alert -o json           what a person must see
"""


def register(app: typer.Typer) -> None:
    from evolver.cli import audit, explain

    app.command("events", epilog=EPILOG)(events)
    audit.register(app)
    explain.register(app)


def when(text: str | None, option: str) -> str | None:
    """`2h` (ago), a date, or a date and time (local unless it says otherwise), as the stream writes times."""
    if not text:
        return None
    try:
        moment = (
            datetime.now(UTC) - timedelta(milliseconds=Duration.parse(text))
            if re.fullmatch(r"(\d+(ms|s|m|h|d))+", text)
            else None
        )
        if moment is None:
            moment = datetime.fromisoformat(text).astimezone(UTC)
    except (ValueError, OverflowError) as error:
        raise UsageError(
            f"{option} {text}: no time", "Give a duration such as 2h, or a date and time such as 2030-01-31T08:00."
        ) from error
    return moment.strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def events(
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on printing what comes.")] = False,
    run: Annotated[
        str | None, typer.Option("--run", help="Only this run: its id, the start of it, or `last`.", show_default=False)
    ] = None,
    types: Annotated[
        list[str] | None, typer.Option("--type", help="Only types that match, such as 'rollback.*'.", show_default=False)
    ] = None,
    since: Annotated[
        str | None, typer.Option("--since", help="From then on: 2h, or a date and time.", show_default=False)
    ] = None,
    until: Annotated[str | None, typer.Option("--until", metavar="TIME", help="Up to then.", show_default=False)] = None,
    status: Annotated[
        str | None, typer.Option("--status", metavar="WORD", help="Where a transition leads, a judgement, or a severity.", show_default=False)
    ] = None,
    after: Annotated[
        str | None, typer.Option("--after", help="From this cursor on; prints the next one to stderr.", show_default=False)
    ] = None,
    output: Annotated[
        str | None, typer.Option("-o", "--output", metavar="json|text", help="How it is written; text on a terminal, else json.", show_default=False)
    ] = None,
    directory: Annotated[Path, typer.Option("-C", help="Look at this folder's worktree.", show_default=False)] = Path(),
) -> None:
    """Print the event stream of all runs."""
    if output not in (None, "json", "text"):
        raise UsageError(f"-o {output}: no format", "Give json or text.")
    shape: Literal["json", "text"] = "text" if output == "text" or (output is None and sys.stdout.isatty()) else "json"
    cursor = Cursor.parse(after) if after is not None else None
    stream = find_stream(directory)
    wanted = Filter(
        run=_full_run_id(stream.path, run, to_come=follow),
        types=tuple(types or ()),
        since=when(since, "--since"),
        until=when(until, "--until"),
        status=status,
    )
    if not follow and not stream.path.exists():
        print("no event stream yet; `evolver run` starts a loop, `evolver init` sets one up", file=sys.stderr)
        return
    if types or status or (since and until):
        from evolver.cli.filters import check

        check(stream.path, wanted)
    printer = _Printer(shape, cursor)
    try:
        with quiet_pipe():
            if follow:
                _follow(stream.path, wanted, cursor, printer)
            else:
                for record in records(stream.path, wanted, after=cursor, skipped=_skipped):
                    printer.show(record)
    finally:
        if cursor is not None:
            print(f"cursor: {printer.cursor}", file=sys.stderr)


def _full_run_id(path: Path, run: str | None, *, to_come: bool) -> str | None:
    """The id that `run` stands for. Raise `UsageError` when there is none: printing nothing would say that it did nothing."""
    if run is None or (to_come and len(run) == 36):
        return run
    from evolver.events.reader import read_backwards

    for envelope in read_backwards(path):
        if run and envelope.runid and (run == "last" or envelope.runid.startswith(run)):
            return envelope.runid
    raise UsageError(f"--run {run}: no such run in {path}", "See `evolver log`, or leave the option out.")


def _skipped(file: Path, line: int) -> None:
    print(f"evolver: {file}:{line} is no event and was passed over; `evolver audit verify` tells more", file=sys.stderr)


def _follow(path: Path, wanted: Filter, cursor: Cursor | None, printer: _Printer) -> None:
    from evolver.events.follow import follow

    for record in follow(
        path, wanted, stop=_reader_gone(), after=cursor, note=lambda text: print(f"evolver: {text}", file=sys.stderr)
    ):
        printer.show(record)
        sys.stdout.flush()


def _reader_gone() -> Callable[[], bool]:
    """Whether the other end of the pipe was closed: `events -f | head -3` must end even when nothing comes any more."""
    poll = select.poll()
    try:
        poll.register(sys.stdout.fileno(), select.POLLERR)
    except (OSError, ValueError):  # no file behind it
        return lambda: False
    return lambda: any(event & (select.POLLERR | select.POLLNVAL) for _, event in poll.poll(0))


class _Printer:
    def __init__(self, shape: Literal["json", "text"], cursor: Cursor | None) -> None:
        self._shape = shape
        self.cursor = cursor

    def show(self, record: Record) -> None:
        if self._shape == "json":
            sys.stdout.buffer.write(record.line + b"\n")  # as it stands: fields of a newer version pass through
        else:
            sys.stdout.write(_text(record) + "\n")
        self.cursor = Cursor.of(record.envelope)


_TOLD = (
    "from",
    "iteration_id",
    "duration_ms",
    "pre_ref",
    "post_ref",
    "rollback_mode",
    "log",
    "log_bytes",
    "round",
)  # not in one line


def _text(record: Record) -> str:
    """One line for a person: when, which iteration, what, and what matters of the data."""
    from evolver.ui.lines import describe
    from evolver.ui.words import clock, one_line

    envelope = record.envelope
    told = describe(envelope)
    if not told:
        pairs = (
            (key, value)
            for key, value in envelope.decoded().items()
            if key not in _TOLD and value not in (None, "", [], {}, 0, False)
        )
        told = (f"[{envelope.iteration}] " if envelope.iteration is not None else "") + " ".join(f"{k}={v}" for k, v in pairs)
    mark = {"warning": " !", "error": " !!", "alert": " !!!"}.get(envelope.severity, "")
    return f"{clock(envelope.time, date=True)} {envelope.sequence:>6} {envelope.name}{mark}  {one_line(told, 200)}"
