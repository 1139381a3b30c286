"""`rollback_changes`: one changes log, undone as far as it can be, and a report of it.

Reading, checking and asking change nothing; whatever is wrong with a log is found before the first act. Two rollbacks, or a
rollback and a recorder, never work in the same root at once, and in a worktree the run lock is held.
"""

from __future__ import annotations

import fcntl
import os
import stat
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from evolver.changes.apply import Undo
from evolver.changes.check import check
from evolver.changes.commands import COMMAND_TIMEOUT_MS, NO_GIT
from evolver.changes.files import Root, read_chunks
from evolver.changes.gitwork import Repository
from evolver.changes.model import MAX_LOG_BYTES, ChangesLog, Refused
from evolver.changes.parse import parse
from evolver.changes.paths import BadPathError, RelativePath, is_git_name, relative, shown
from evolver.changes.report import Builder, ChangesReport
from evolver.changes.stream import announce, refuse_unfinished
from evolver.changes.trees import UnsafePathError
from evolver.changes.vault import Vault
from evolver.errors import BusyError
from evolver.lock import run_lock
from evolver.process import RUN_ID

UNKNOWN_PHASE = "unknown"
Confirm = Callable[[str], bool]


def confirmation(log: ChangesLog) -> str:
    """The question, in the document's words."""
    files, created, commands, commits = (len(x) for x in (log.modified, log.created, log.commands, log.commits))
    return f"""Rollback changes from phase "{shown(log.phase)}"?

Changes to revert:
- Files modified: {files}
- Files created: {created}
- Commands executed: {commands}
- Git commits: {commits}

This action will:
1. Restore {files} files from backups
2. Delete {created} created files
3. Revert {commands} commands
4. Revert {commits} git commits

Proceed with rollback? (yes/no)"""


@dataclass(frozen=True)
class Opened:
    """A log that may be rolled back, in its root."""

    root: Root
    log: ChangesLog
    log_path: RelativePath | None
    repository: Repository | None
    data: bytes  # the log as read
    no_git: str  # why `repository` is None


def rollback_changes(
    log_path: str | os.PathLike[str],
    *,
    confirm: Confirm | None,
    phase: str | None = None,
    root: Path | None = None,
    strict: bool = False,
    clean: bool = False,
    dry_run: bool = False,
    reverts: Mapping[str, tuple[str, ...]] | None = None,
    timeout_ms: int = COMMAND_TIMEOUT_MS,
    tell: Callable[[ChangesReport], None] = lambda report: None,
) -> ChangesReport:
    """Undo what the log lists; the paths in it are relative to `root` (default: the log's own folder).

    `confirm` gets the question and answers it; None goes ahead without asking. `phase`: the log must be of this one.
    `strict` refuses unknown fields, `clean` removes the log after full success, `dry_run` stops before asking. `reverts`
    adds to the registry (`[changes.revert]`). `timeout_ms`: for each command that is run. `tell` gets the report of what
    was done before the event stream does (`changes.rolled_back`, where the worktree has a stream). Raise `BusyError` when
    another rollback, recorder or run is at work here, `HeldError` when a run is held or died here, `LogError` when the
    stream cannot be written, after everything was done; all else is in the report.
    """
    builder = Builder(shown(phase) if phase is not None else UNKNOWN_PHASE)

    def told(report: ChangesReport) -> ChangesReport:
        tell(report)
        return report

    refuse_unfinished(Path(root if root is not None else Path(log_path).parent))
    with ExitStack() as stack:
        opened = stack.enter_context(open_log(Path(log_path), root, phase=phase, strict=strict))
        if isinstance(opened, Refused):
            return told(builder.refuse(*opened.errors))
        builder.phase = shown(opened.log.phase)
        for line in opened.log.warnings:
            builder.warn("log", line)
        if dry_run:
            return told(builder.finish())
        if confirm is not None and not confirm(confirmation(opened.log)):
            return told(builder.declined())
        stack.enter_context(_alone(opened))
        if read_log(Path(log_path), opened.root, opened.log_path) != opened.data:
            return told(builder.refuse(f"Changes log at {shown(str(log_path))} was changed meanwhile; nothing was done"))
        undo = Undo(
            root=opened.root,
            log=opened.log,
            log_path=opened.log_path,
            repository=opened.repository,
            no_git=opened.no_git,
            vault=stack.enter_context(Vault()),
            report=builder,
            reverts=reverts or {},
            timeout_ms=timeout_ms,
        )
        undo.read_backups()
        undo.run()
        if builder.spotless:
            undo.remove_backups()
            if clean:
                undo.remove_log()
        report = told(builder.finish())
        if opened.repository is not None:
            announce(opened.repository.layout, Path(log_path), report)
        return report


@contextmanager
def open_log(log_path: Path, root: Path | None, *, phase: str | None, strict: bool) -> Iterator[Opened | Refused]:
    """Read, parse and check. Changes nothing."""
    with ExitStack() as stack:
        try:
            base = Path(os.path.realpath(root if root is not None else log_path.parent))
            if any(is_git_name(os.fsencode(part)) for part in base.parts) or _is_bare(base):
                yield Refused((f"Refused root: is a git folder, or inside one: {shown(str(base))!r}",))
                return
            if root is not None and not base.is_dir():
                yield Refused((f"Root {shown(str(root))} is no folder",))
                return
            repository = Repository.find(base) if base.is_dir() else None
            forbidden = (repository.layout.git_dir, repository.layout.common_dir) if repository is not None else ()
            no_git = NO_GIT if repository is None else repository.problem()
            folder = stack.enter_context(Root.open(base, forbidden))
        except (OSError, ValueError):  # ValueError: a NUL in the path
            yield Refused((f"Changes log not found at {shown(str(log_path))}",))
            return
        inside = inside_root(log_path, folder)
        data = read_log(log_path, folder, inside)
        parsed = parse(data, strict=strict) if isinstance(data, bytes) else data
        if isinstance(parsed, ChangesLog):
            if phase is not None and phase != parsed.phase:
                told = f'Phase mismatch: the changes log is from phase "{shown(parsed.phase)}", not "{shown(phase)}"'
                parsed = Refused((told,))
            elif errors := check(folder, parsed, inside):
                parsed = Refused(errors)
        if isinstance(parsed, ChangesLog) and isinstance(data, bytes):
            yield Opened(folder, parsed, inside, None if no_git else repository, data, no_git)
        elif isinstance(parsed, Refused):
            yield parsed


def _is_bare(folder: Path) -> bool:
    return (folder / "HEAD").is_file() and (folder / "objects").is_dir() and (folder / "refs").is_dir()


def inside_root(path: Path, root: Root) -> RelativePath | None:
    """`path` as seen from the root, links in its folders resolved; None when it lies elsewhere."""
    try:
        real = Path(os.path.realpath(path.parent)) / path.name
        return relative(os.fspath(real.relative_to(root.path)))
    except (ValueError, BadPathError):
        return None


def read_log(log_path: Path, root: Root | None, inside: RelativePath | None) -> bytes | Refused:
    """The log's bytes: a regular file, no link, of bounded size."""
    told = shown(str(log_path))
    try:
        with ExitStack() as stack:
            if root is not None and inside is not None:
                fd = stack.enter_context(root.open_regular(inside))
            else:
                fd = os.open(log_path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
                stack.callback(os.close, fd)
                if not stat.S_ISREG(os.fstat(fd).st_mode):
                    raise UnsafePathError("is no regular file")
            data = bytearray()
            for chunk in read_chunks(fd):
                data += chunk
                if len(data) > MAX_LOG_BYTES:
                    return Refused((f"Changes log at {told} is larger than {MAX_LOG_BYTES} bytes",))
            return bytes(data)
    except (FileNotFoundError, NotADirectoryError):
        return Refused((f"Changes log not found at {told}",))
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        return Refused((f"Changes log at {told} cannot be read: {reason}",))


@contextmanager
def _alone(opened: Opened) -> Iterator[None]:
    """Nobody else rolls back or records here. Inside a run its own agent may: the run holds the lock for it already."""
    with ExitStack() as stack:
        if opened.repository is not None and not os.environ.get(RUN_ID):
            stack.enter_context(run_lock(opened.repository.layout, "changes rollback"))
        stack.enter_context(hold_root(opened.root, wait=False))
        yield


@contextmanager
def hold_root(root: Root, *, wait: bool) -> Iterator[None]:
    """Lock the root folder itself, so that no lock file is left behind. Raise `BusyError` when taken and not to wait."""
    try:
        fcntl.flock(root.fd, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        raise BusyError(f"a changes log is being recorded or rolled back in {root.path}", "Wait until that is done.") from error
    try:
        yield
    finally:
        fcntl.flock(root.fd, fcntl.LOCK_UN)
