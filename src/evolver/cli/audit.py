"""`evolver audit verify` and `evolver audit keygen`."""

from __future__ import annotations

import contextlib
import os
import sys
from pathlib import Path
from typing import Annotated, NamedTuple

import msgspec
import typer

from evolver.cli.stream import Stream, find_stream, quiet_pipe
from evolver.errors import EvolverError, ExitStatus, PreflightError
from evolver.events import files as log_files
from evolver.events import paths
from evolver.events.verify import Anchor, Report, combine, head_anchors, other_stream, verify
from evolver.layout import Layout

VERIFY_EPILOG = """Examples:
  evolver audit verify              this worktree's stream
  evolver audit verify copy.jsonl   a copy that was forwarded elsewhere
"""
KEYGEN_EPILOG = """Examples:
  evolver audit keygen
  evolver audit keygen ~/keys/audit
"""


def register(app: typer.Typer) -> None:
    group = typer.Typer(no_args_is_help=True, help="Check the event stream, and sign it.")
    group.command("verify", epilog=VERIFY_EPILOG)(verify_command)
    group.command("keygen", epilog=KEYGEN_EPILOG)(keygen)
    app.add_typer(group, name="audit")


def verify_command(
    files: Annotated[
        list[Path] | None,
        typer.Argument(metavar="FILE", help="Logs or closed segments; none: this worktree's.", show_default=False),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object.")] = False,
    directory: Annotated[Path, typer.Option("-C", help="Look at this folder's worktree.", show_default=False)] = Path(),
) -> None:
    """Check every byte of the stream. Exit 0 intact, 8 broken, 9 cannot tell."""
    report = check(directory, files)
    with contextlib.suppress(typer.Exit), quiet_pipe():  # who does not read the words still gets the verdict
        sys.stdout.write((msgspec.json.encode(report).decode() if as_json else "\n".join(tell(report))) + "\n")
    status = {"intact": ExitStatus.ACCEPTED, "broken": ExitStatus.LOG_BROKEN, "unknown": ExitStatus.CANNOT_TELL}[report.status]
    raise typer.Exit(int(status))


def check(directory: Path, files: list[Path] | None = None) -> Report:
    """Verify the named files, or the worktree's whole log. What looks broken is looked at again when it was written to meanwhile:
    where a busy writer never lets us have its lock, the segments may have been listed in the middle of a rotation."""
    jobs = _jobs(files or [], directory)
    report = combine([_checked(job) for job in jobs])
    for _ in range(LOOKS - 1):
        again = _jobs(files or [], directory)
        if report.status == "intact" or again == jobs:
            break
        jobs, report = again, combine([_checked(job) for job in again])
    return report


LOOKS = 5


class Job(NamedTuple):
    """What to check as one chain."""

    segments: list[Path]
    anchors: list[Anchor] = []  # noqa: RUF012 - never changed
    whole: bool = True  # it must begin with the stream's first line
    size: int | None = None  # bytes of the last file
    remarks: list[str] = []  # noqa: RUF012


def _jobs(files: list[Path], directory: Path) -> list[Job]:
    if not files:
        try:
            return [_known(find_stream(directory))]
        except PreflightError:
            return [Job([])]
    jobs: list[Job] = []
    loose: dict[Path, list[tuple[int, Path]]] = {}
    for file in files:
        log = paths.log_of_closed(file)
        if log is None:
            stream = _stream_of(file, directory)
            jobs.append(_known(stream) if stream is not None else _whole(file, None, []))
        elif log[0] not in files:
            loose.setdefault(log[0], []).append((log[1], file))
    for parts in loose.values():
        in_order = sorted(parts)
        jobs.append(Job([file for _, file in in_order], whole=in_order[0][0] == 1))
    return jobs


def _stream_of(file: Path, directory: Path) -> Stream | None:
    """The worktree whose log the file is (the one we look at, or the one it lies in): more than its own head anchors it."""
    for place in (directory, *file.absolute().parents[2:3]):
        with contextlib.suppress(EvolverError, OSError):
            stream = find_stream(place)
            if stream.path.samefile(file):
                return stream
    return None


def _known(stream: Stream) -> Job:
    refs = _ref_anchor(stream.layout, stream.path) if stream.layout is not None else []
    return _whole(stream.path, stream.lifeboat, refs)


def _whole(path: Path, lifeboat: Path | None, refs: list[Anchor]) -> Job:
    """A log with all its segments. Its size and heads are taken together, so that a live writer is no damage."""
    if path.is_dir():
        return Job([path])
    with log_files.glimpse(path):
        segments = paths.segments(path) or [path]
        size = path.stat().st_size if path.is_file() else None
        anchors, remarks = head_anchors(path, lifeboat), other_stream(path, lifeboat)
    return Job(segments, [*anchors, *refs], True, size if segments and segments[-1] == path else None, remarks)


def _checked(job: Job) -> Report:
    """Verify; the same bytes once more under their new name, when the open segment was closed meanwhile."""
    segments, anchors, whole, size, remarks = job
    report = verify(segments, anchors, whole=whole, size=size, remarks=remarks)
    if size is None or report.status == "intact":
        return report
    before = paths.log_of_closed(segments[-2]) if len(segments) > 1 else None
    closed = paths.closed_path(segments[-1], before[1] + 1 if before is not None else 1)
    again = [*segments[:-1], closed]
    return verify(again, anchors, whole=whole, size=size, remarks=remarks) if closed.is_file() else report


def _ref_anchor(layout: Layout, path: Path) -> list[Anchor]:
    """What `refs/evolver/audit/…` remembers; nothing when there is no git, no ref, or no sense in it."""
    from evolver.audit import read_anchor_ref

    try:
        return read_anchor_ref(layout, path)
    except EvolverError:
        return []


def tell(report: Report) -> list[str]:
    """The report in plain sentences."""
    words = {"intact": "intact", "broken": "BROKEN", "unknown": "cannot tell"}
    bad = report.first_bad
    if report.status == "unknown" and bad is not None and bad.kind.startswith("unreadable"):  # nothing the notes could be about
        return [f"{words[report.status]}: {bad.file}: {bad.kind}"]
    segments = "1 segment" if report.segments == 1 else f"{report.segments} segments"
    out = [f"{words[report.status]}: {report.events} events in {segments}, anchors {report.anchors}"]
    if bad is not None:
        where = f"{bad.file}:{bad.line}" if bad.line else bad.file or "the event stream"
        expected = f" (sequence {bad.sequence})" if bad.sequence is not None else ""
        out.append(f"first bad: {where}{expected}: {bad.kind}")
    if report.torn_tail:
        out.append("torn tail: the last line is unfinished")
    return out + [f"note: {caveat}" for caveat in report.caveats]


def keygen(
    path: Annotated[
        Path | None,
        typer.Argument(
            help="Where to put the key; the public half gets .pub. Default: ~/.config/evolver/audit-key.", show_default=False
        ),
    ] = None,
) -> None:
    """Make a key that signs checkpoints of the stream. It is an SSH Ed25519 key, for [audit] sign_key."""
    from evolver.audit import make_key

    if path is None:
        path = Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config") / "evolver" / "audit-key"
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    public = make_key(path)
    print(f'{path} (0600) and {path}.pub were made. Put into the loop file:\n\n[audit]\nsign_key = "{path.absolute()}"\n')
    print("Give auditors this line for their allowed_signers file, and keep a copy where the agent cannot write:\n")
    print(f'evolver namespaces="evolver-audit" {public}')
