"""The steps of a rollback, each item on its own: one that fails is told and the rest goes on.

The order of acts is not the document's order of lines. `git revert` refuses where files it touches have edits, so what the log
staged is unstaged first, its edited files are put back to HEAD, its commits are reverted, and only then files get their
earlier bytes. The report is in the document's order all the same.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

from evolver.changes.before import Before
from evolver.changes.check import Keep
from evolver.changes.commands import COMMAND_TIMEOUT_MS, NO_GIT, Commands
from evolver.changes.commits import CommitReverts
from evolver.changes.files import Root
from evolver.changes.gitwork import Repository
from evolver.changes.leftovers import leftovers
from evolver.changes.model import BACKUPS, ChangesLog, Entry
from evolver.changes.paths import RelativePath, relative
from evolver.changes.report import Builder
from evolver.changes.trees import UnsafePathError
from evolver.changes.vault import Kept, Vault
from evolver.crash import crash_point

_TOP = relative(BACKUPS)


@dataclass
class Undo:
    """One log on its way back. `repository` None: there is no git here."""

    root: Root
    log: ChangesLog
    log_path: RelativePath | None  # None: the log lies outside the root
    repository: Repository | None
    vault: Vault
    report: Builder
    no_git: str = NO_GIT  # why not
    reverts: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    timeout_ms: int = COMMAND_TIMEOUT_MS
    # Does somebody else put this path back (a loop's restore)? Then it is none of ours.
    covered: Callable[[RelativePath], bool] = lambda path: False
    before: Before | None = None  # None: nobody knows when the log's phase began
    kept: dict[str, Kept] = field(default_factory=dict)  # good backups, by the entry's field
    _before: set[tuple[bytes, ...]] = field(default_factory=set)  # what was there before commits were reverted
    _keep: Keep = field(init=False)

    def __post_init__(self) -> None:
        self._keep = Keep.of(self.log, self.log_path)

    # ------------------------------------------------------------ before anything is changed

    def read_backups(self) -> None:
        """Into the vault, each checked. A file whose backup is missing is never touched."""
        read: dict[tuple[bytes, ...], Kept] = {}
        for item in self.log.modified:
            try:
                kept = read.get(item.backup.names)
                if kept is None:
                    with self.root.open_regular(item.backup) as fd:
                        if os.fstat(fd).st_nlink > 1:  # linked since the check: it may be a file of anywhere
                            raise UnsafePathError("has other hard links")
                        kept = read[item.backup.names] = self.vault.keep(fd)
            except FileNotFoundError:
                self.report.warn("files", f"Backup not found: {item.backup.shown} (file not restored)")
            except OSError as error:
                self.report.error("files", f"Failed to restore {item.path.shown}: backup {item.backup.shown}: {error.strerror}")
            else:
                if item.sha256 not in (None, kept.sha256):
                    self.report.error(
                        "files", f"Failed to restore {item.path.shown}: backup {item.backup.shown} does not match its sha256"
                    )
                else:
                    self.kept[item.field] = kept

    # ------------------------------------------------------------ everything, in order

    def run(self) -> None:
        """Needs `read_backups`."""
        commands = Commands(
            commands=self.log.commands,
            has_commits=bool(self.log.commits),
            root=self.root,
            repository=self.repository,
            no_git=self.no_git,
            keep=self._keep,
            report=self.report,
            reverts=self.reverts,
            covered=self.covered,
            before=self.before,
            timeout_ms=self.timeout_ms,
        )
        steps = (commands.unstage, self._revert_commits, self._restore, self._delete, commands.revert, self._clean)
        for step in steps:
            step()
            crash_point("changes.step")

    # ------------------------------------------------------------ git

    def _revert_commits(self) -> None:
        done = CommitReverts(self.repository, self.no_git, self.log, self.report, self._note_present)
        done.run(backed_up=self.kept.keys())

    def _note_present(self) -> None:
        """A created file that a revert removes was deleted by us; one that was gone before deserves a warning."""
        for entry in (*self.log.created, *self.log.artifacts, *self.log.plan_files):
            if self.exists(entry.path):
                self._before.add(entry.path.names)

    def exists(self, path: RelativePath) -> bool:
        """Is anything there? What cannot be looked at counts as not there."""
        try:
            return self.root.status(path) is not None
        except OSError:
            return False

    # ------------------------------------------------------------ files

    def _restore(self) -> None:
        """Newest first: where a file was recorded twice, its first backup is the original and has the last word."""
        lines: list[str] = []
        for item in reversed(self.log.modified):
            kept = self.kept.get(item.field)
            if kept is None:
                continue
            try:
                if self._untouched(item.path):
                    self.report.warn("files", f"Not restored: {item.path.shown} (nothing has changed it since the attempt began)")
                    continue
                self.root.write(item.path, self.vault.chunks(kept), item.mode, fallback=kept.mode, scratch=_TOP, sync=False)
            except OSError as error:
                self.report.error("files", f"Failed to restore {item.path.shown}: {error.strerror}")
            else:
                lines.append(f"Restored {item.path.shown} from {item.backup.shown}")
        for line in reversed(lines):
            self.report.did("files", line)

    def _untouched(self, path: RelativePath) -> bool:
        """Where a loop knows, a backup of an agent's making is not written over what the agent left alone."""
        status = self.root.status(path) if self.before is not None else None
        return status is not None and self.before is not None and self.before.had(self.root, path, status)

    def _delete(self) -> None:
        """Deepest first, so that a folder's own entries are not missing when their turn comes."""
        edited = self._edited()
        done: dict[tuple[bytes, ...], str] = {}
        entries: dict[tuple[bytes, ...], Entry] = {}
        for entry in self.log.created:
            entries.setdefault(entry.path.names, entry)
        for entry in sorted(entries.values(), key=lambda e: -len(e.path.names)):
            path = entry.path
            try:
                status = self.root.status(path)
                if status is None:
                    if path.names in self._before:
                        done[path.names] = f"Deleted {path.shown}"
                    else:
                        self.report.warn("created", f"File not found (already deleted?): {path.shown}")
                elif problem := self._reason_to_keep(path, status, edited):
                    self.report.warn("created", f"Not deleted: {path.shown} ({problem})")
                else:
                    self._remove(path, status, tree=True)
                    done[path.names] = f"Deleted {path.shown}"
            except OSError as error:
                self.report.error("created", f"Failed to delete {path.shown}: {error.strerror}")
        for names in entries:
            if names in done:
                self.report.did("created", done[names])
        for path in sorted(self.log.created_dirs, key=lambda p: -len(p.names)):
            self.root.remove_empty(path)

    def _edited(self) -> frozenset[bytes] | None:
        """Every path that has, or holds, uncommitted edits of a tracked file. None: git cannot tell."""
        edited = self.repository.edited() if self.repository is not None else frozenset()
        if edited is None:
            return None
        return frozenset(name[:at] for name in edited for at in (*_slashes(name), len(name)))

    def _reason_to_keep(self, path: RelativePath, status: os.stat_result, edited: frozenset[bytes] | None) -> str:
        """A log can call anything "created". What it restores, what it needs, and work that no commit has are never deleted."""
        if self._keep.covers(path):
            return "it is, or holds, the log, a backup or a restored file"
        if edited is None:
            return "git could not say whether it has uncommitted edits"
        if self.repository is not None and self.repository.full(path) in edited:
            return "git tracks it and it has uncommitted edits"
        if self.before is not None and self.before.had(self.root, path, status):
            return "it was there before the attempt"
        return ""

    def _remove(self, path: RelativePath, status: os.stat_result, *, tree: bool) -> None:
        if stat.S_ISDIR(status.st_mode):
            if not tree:
                raise IsADirectoryError(0, "is a folder")
            self.root.remove_tree(path)
        else:
            self.root.unlink(path)

    # ------------------------------------------------------------ artifacts

    def _clean(self) -> None:
        seen: set[tuple[bytes, ...]] = set()
        edited = self._edited()
        for entry, what, named in leftovers(self.log, self.repository, self.covered):
            path = entry.path
            if path.names in seen:
                continue
            seen.add(path.names)
            try:
                status = self.root.status(path)
                if status is None:
                    if path.names in self._before:
                        self.report.did("artifacts", f"Removed {what} {path.shown}")
                    continue
                if problem := self._reason_to_keep(path, status, edited):
                    if named:
                        self.report.warn("artifacts", f"Not removed: {path.shown} ({problem})")
                    continue
                self._remove(path, status, tree=False)
                self.report.did("artifacts", f"Removed {what} {path.shown}")
            except OSError as error:
                self.report.error("artifacts", f"Failed to remove {what} {path.shown}: {error.strerror}")

    # ------------------------------------------------------------ afterwards

    def remove_backups(self) -> None:
        """Only this log's own: other phases keep theirs in the same folder. Backups elsewhere stay where they are."""
        folders: set[RelativePath] = set()
        if self.log.modified:
            os.sync()  # once for all: a backup goes only after what was restored from it is on disk
        for item in self.log.modified:
            if not _TOP.holds(item.backup):
                continue
            self._quietly(self.root.unlink, item.backup)
            crash_point("changes.step")
            folders.update(_parents(item.backup))
        if self.log.recording is not None and self.exists(self.log.recording):
            self._quietly(self.root.remove_tree, self.log.recording)
        self.root.remove_temporaries(_TOP)
        for folder in sorted(folders | {_TOP}, key=lambda p: -len(p.names)):
            self.root.remove_empty(folder)

    def remove_log(self) -> None:
        if self.log_path is not None:
            self._quietly(self.root.unlink, self.log_path)

    def _quietly(self, act: Callable[[RelativePath], None], path: RelativePath) -> None:
        try:
            act(path)
        except FileNotFoundError:
            return
        except OSError as error:
            self.report.warn("backups", f"Not removed: {path.shown} ({error.strerror})")


def _slashes(name: bytes) -> Iterator[int]:
    at = name.find(b"/")
    while at >= 0:
        yield at
        at = name.find(b"/", at + 1)


def _parents(path: RelativePath) -> Iterator[RelativePath]:
    for depth in range(1, len(path.names)):
        yield RelativePath(os.fsdecode(b"/".join(path.names[:depth])), path.names[:depth])
