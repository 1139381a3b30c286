"""Writes a changes log while a worker works, so that it is right whenever the worker is killed.

    with ChangesRecorder(root, phase="bug-fixing") as changes:
        changes.modified("src/app.ts")      # before it is changed: the backup is taken now
        changes.created("src/new.ts")
        changes.command(["pnpm", "install"])

Every call is announced before the act it names: first the backup is complete and synced, then the log that mentions it takes
the place of the one before in one step, and only then does the worker change anything.
"""

from __future__ import annotations

import hashlib
import os
import re
import secrets
import shlex
import stat
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import TracebackType

from evolver.changes.before import holds_older
from evolver.changes.document import CLOCK_SLACK_S, Document
from evolver.changes.exclude import exclude
from evolver.changes.files import Root, read_chunks
from evolver.changes.gitwork import Repository
from evolver.changes.model import BACKUPS, MAX_BACKUP_BYTES, Refused
from evolver.changes.paths import BadPathError, RelativePath, relative, shown
from evolver.changes.rollback import hold_root, read_log
from evolver.errors import UsageError
from evolver.process import RUN_ID

_PHASE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
_HEX = re.compile(r"[0-9a-fA-F]{4,64}")
AnyPath = str | os.PathLike[str]


def default_log(phase: str) -> str:
    """`.{phase}-changes.json`. Raise `UsageError` when the phase is no plain name."""
    if _PHASE.fullmatch(phase) is None:
        raise UsageError(f"phase {shown(phase)!r} makes no file name", "Name the log with --log.")
    return f".{phase}-changes.json"


class ChangesRecorder:
    """One log in one root. Every method raises `UsageError` for what cannot be recorded; then the log is as before.

    Safe to use from several processes at once: each call locks the root, reads the log and writes it anew.
    """

    def __init__(self, root: AnyPath, *, phase: str = "", log: str | None = None) -> None:
        """`log`: a file name in the root (default `.{phase}-changes.json`). Nothing is written before `start`."""
        self.root = Path(os.path.realpath(root))
        self.phase = phase
        self.log = log if log is not None else default_log(phase)
        try:
            self._log = relative(self.log)
        except BadPathError as error:
            raise UsageError(f"log {shown(self.log)!r} {error}", "Name a file in the root.") from error
        if len(self._log.names) > 1:
            raise UsageError(
                f"log {shown(self.log)!r} is not in the root itself", "Name a file in the root; paths are relative to it."
            )

    # ------------------------------------------------------------ a recording

    def start(self) -> bool:
        """Begin a log. False: git could not be told to ignore it (inside a run, or no git). Raise when there is one."""
        with self._held() as root:
            if root.status(self._log) is not None:
                raise UsageError(
                    f"{self.root / self.log} exists already",
                    "Roll it back (`evolver changes rollback --clean`), or forget it (`evolver changes record finish --discard`).",
                )
            repository = Repository.find(self.root)
            # Before anything that git could see; not inside a run, whose control files an attempt must leave alone.
            ignored = repository is not None and not os.environ.get(RUN_ID) and exclude(repository.layout, self.root / self.log)
            document = Document.new(self.phase, secrets.token_hex(8))
            root.make_folder(document.folder, 0o700)
            self._save(root, document)
            return ignored

    def finish(self, *, discard: bool = False) -> None:
        """The phase ended. `discard`: it went well, so log and backups go; otherwise they stay, for a rollback."""
        with self._held() as root:
            document = self._load(root)
            if not discard:
                self._save(root, document.finish())
                return
            root.unlink(self._log)
            root.remove_tree(document.folder)
            root.remove_empty(relative(BACKUPS))

    # ------------------------------------------------------------ what is recorded

    def modified(self, path: AnyPath) -> None:
        """`path` is about to be changed or deleted: keep its bytes. Recorded once; the first backup is the original."""
        with self._held() as root:
            document, target = self._load(root), self._relative(path)
            if document.knows(target):
                return
            status = root.status(target)
            if status is None:
                raise UsageError(f"{target.shown}: no such file", "Record a new file with `created`.")
            if not stat.S_ISREG(status.st_mode):
                raise UsageError(
                    f"{target.shown} is no regular file", "Record the file itself; a symlink has no bytes to keep."
                )
            if status.st_nlink > 1:
                raise UsageError(
                    f"{target.shown} has other hard links", "Replace it by a copy first: changing it changes them all."
                )
            backup = document.backup_for(target)
            digest = self._copy(root, target, backup, document.folder)
            self._save(root, document.with_modified(target, backup, digest, stat.S_IMODE(status.st_mode) & 0o777))

    def created(self, path: AnyPath) -> None:
        """`path` (a file or a folder) is about to be made, or was made since the recording began."""
        with self._held() as root:
            document, target = self._load(root), self._relative(path)
            if document.knows(target):
                return
            status = root.status(target)
            if status is not None:
                self._check_new(root, target, status, document)
            self._save(root, document.with_created(target, tuple(_missing_above(root, target))))

    def command(self, argv: Sequence[str] | str) -> None:
        """A command that is about to run, as words or as one line."""
        line = argv if isinstance(argv, str) else shlex.join(argv)
        if not line.strip():
            raise UsageError("the command is empty", "Give it after `--`.")
        with self._held() as root:
            self._save(root, self._load(root).with_item("commands_executed", line))

    def commit(self, commit: str = "HEAD") -> None:
        """A commit that was made: any name of it; its full id is recorded."""
        repository = Repository.find(self.root)
        if repository is not None:
            done = repository.git.run("rev-parse", "-q", "--verify", "--end-of-options", f"{commit}^{{commit}}", check=False)
            if not done.ok:
                raise UsageError(f"commit {shown(commit)} not found", "Give a commit of this repository.")
            commit = done.text
        elif _HEX.fullmatch(commit) is None:
            raise UsageError(f"{shown(commit)!r} is no commit id, and there is no git repository to ask", "Give the full id.")
        with self._held() as root:
            self._save(root, self._load(root).with_item("git_commits", commit))

    def artifact(self, path: AnyPath) -> None:
        """A temporary file that a rollback removes."""
        with self._held() as root:
            self._save(root, self._load(root).with_item("artifacts", self._relative(path).text))

    # ------------------------------------------------------------ as a context manager

    def __enter__(self) -> ChangesRecorder:
        self.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        """The log stays, also after an exception: whoever decides that the phase failed rolls it back."""
        self.finish()

    # ------------------------------------------------------------ the parts

    @contextmanager
    def _held(self) -> Iterator[Root]:
        repository = Repository.find(self.root)
        forbidden = (repository.layout.git_dir, repository.layout.common_dir) if repository is not None else ()
        with ExitStack() as stack:
            try:
                root = stack.enter_context(Root.open(self.root, forbidden))
            except OSError as error:
                raise UsageError(f"{self.root}: {error.strerror}", "Give an existing folder.") from error
            stack.enter_context(hold_root(root, wait=True))
            try:
                yield root
            except OSError as error:
                raise UsageError(
                    f"nothing was recorded: {error.strerror}", f"Look at {self.root} and its {BACKUPS} folder."
                ) from error

    def _load(self, root: Root) -> Document:
        data = read_log(self.root / self.log, root, self._log)
        if isinstance(data, Refused):
            raise UsageError(data.errors[0], "Begin with `evolver changes record start`.")
        return Document.parse(data, self.log)

    def _save(self, root: Root, document: Document) -> None:
        root.write(self._log, [document.to_bytes()], None, fallback=0o644, scratch=document.folder)

    def _relative(self, path: AnyPath) -> RelativePath:
        """As seen from the root. Links in the folders above are resolved, so that the log names the real place."""
        given = self.root / path
        try:
            real = (
                Path(os.path.realpath(given.parent)) / given.name
                if given.name not in ("", "..")
                else Path(os.path.realpath(given))
            )
            found = relative(os.fspath(real.relative_to(self.root)))
        except (ValueError, OSError) as error:
            reason = str(error) if isinstance(error, BadPathError) else "is not below the root"
            raise UsageError(f"{shown(os.fspath(path))!r} {reason}", f"The root is {self.root}.") from error
        if relative(BACKUPS).holds(found) or found.names == self._log.names:
            raise UsageError(f"{found.shown} belongs to the recorder", "Record only what the work itself changes.")
        return found

    def _copy(self, root: Root, target: RelativePath, backup: RelativePath, folder: RelativePath) -> str:
        digest = hashlib.sha256()

        def hashed(fd: int) -> Iterator[bytes]:
            for chunk in read_chunks(fd):
                digest.update(chunk)
                yield chunk

        with root.open_regular(target) as fd:
            before = os.fstat(fd)
            if before.st_size > MAX_BACKUP_BYTES:
                raise UsageError(f"{target.shown} is larger than {MAX_BACKUP_BYTES} bytes", "Keep a copy of it by hand.")
            root.write(backup, hashed(fd), stat.S_IMODE(before.st_mode), scratch=folder)
            after = os.fstat(fd)
            if (before.st_size, before.st_mtime_ns) != (after.st_size, after.st_mtime_ns):
                raise UsageError(f"{target.shown} was changed while it was copied", "Record a file before anything changes it.")
        return digest.hexdigest()

    def _check_new(self, root: Root, target: RelativePath, status: os.stat_result, document: Document) -> None:
        """A rollback deletes what is recorded as created, so what was there before may not be."""
        repository = Repository.find(self.root)
        tracked = repository is not None and repository.in_head(target)
        # A change time cannot be set back: older than the recording means older than what it may have created.
        since = round((document.started - CLOCK_SLACK_S) * 1e9)
        if tracked or holds_older(root, target, status, since):
            raise UsageError(f"{target.shown} was there before", "Record it with `modified`, before changing it.")


def _missing_above(root: Root, path: RelativePath) -> Iterator[RelativePath]:
    for depth in range(1, len(path.names)):
        above = RelativePath(os.fsdecode(b"/".join(path.names[:depth])), path.names[:depth])
        if root.status(above) is None:
            yield above


def find_recording(start: Path) -> ChangesRecorder:
    """The one unfinished recording of `start` or the nearest folder above it. Raise `UsageError`."""
    for folder in (start, *start.parents):
        found = []
        for path in sorted(folder.glob(".*-changes.json")):
            data = read_log(path, None, None)
            try:
                if isinstance(data, bytes) and not Document.parse(data, path.name).finished:
                    found.append(path.name)
            except UsageError:
                continue  # somebody else's
        if len(found) > 1:
            raise UsageError(f"several recordings in {folder}: {', '.join(found)}", "Name one with --log.")
        if found:
            return ChangesRecorder(folder, log=found[0])
        if (folder / ".git").exists():
            break
    raise UsageError(
        f"no recording in {start}", "Begin with `evolver changes record start --phase NAME`, or give --root and --log."
    )
