"""A changes log inside a loop, in two stages around the loop's own restore.

    prepared = prepare(log_path, root, section, left_out=baseline.left_out)    # log and backups still exist
    ...the worktree is restored, which removes them...
    report = prepared.execute()                                                # before the tree is verified

git and the vault put back everything they hold, exactly. So of the log only the rest is undone: commands, and files and
artifacts in ignored folders that were beyond the baseline's budget. A backup is never written over a file of the baseline:
the log is an agent's, the baseline is the user's.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

from evolver.changes.apply import Undo
from evolver.changes.before import UNKNOWN, Before
from evolver.changes.check import check
from evolver.changes.files import Root
from evolver.changes.gitwork import Repository
from evolver.changes.kept import Keep
from evolver.changes.kept import backups as kept_backups
from evolver.changes.model import ChangesLog, Refused
from evolver.changes.parse import parse
from evolver.changes.paths import BadPathError, RelativePath, relative, shown
from evolver.changes.registry import How, match
from evolver.changes.report import Builder, ChangesReport
from evolver.changes.rollback import UNKNOWN_PHASE, Opened, inside_root, open_log, read_log
from evolver.changes.vault import Vault
from evolver.definition import ChangesSection


@dataclass
class PreparedRollback:
    """What of a log is left for us, held outside the worktree. `execute` once; then the vault is gone."""

    root: Path
    refused: tuple[str, ...] = ()  # why nothing of the log will be undone
    log: ChangesLog | None = None
    covered: Callable[[RelativePath], bool] = lambda path: True
    present: frozenset[str] = frozenset()  # fields of created files and artifacts that the attempt had left
    keep: Keep | None = None
    _undo: Undo | None = None
    _stack: ExitStack = field(default_factory=ExitStack)

    def execute(self) -> ChangesReport:
        """Undo it. Never raises for what a log can contain: the report says what went wrong."""
        with self._stack:
            if self._undo is None:
                return Builder(UNKNOWN_PHASE).refuse(*self.refused)
            # What the filesystem said before the restore is no longer what it says.
            errors = check(self._undo.root, self._undo.log, None)
            if errors:
                report = self._undo.report.refuse(*errors)
            else:
                self._tell_restored(self._undo)
                self._undo.run()
                report = self._undo.report.finish()
        if self.keep is not None:
            self.keep.forget()
        return report

    def _tell_restored(self, undo: Undo) -> None:
        """What the restore has undone of the log already; looked at, not believed."""
        assert self.log is not None
        for item in self.log.modified:
            if self.covered(item.path) and undo.exists(item.path):
                undo.report.did("files", f"Restored {item.path.shown} from the baseline")
        lists = (("created", "Deleted", self.log.created), ("artifacts", "Removed artifact", self.log.artifacts))
        for section, verb, entries in (*lists, ("artifacts", "Removed plan file", self.log.plan_files)):
            for entry in entries:
                if self.covered(entry.path) and entry.field in self.present and not undo.exists(entry.path):
                    undo.report.did(section, f"{verb} {entry.path.shown}")

    def close(self) -> None:
        """Without `execute`: let go of the vault."""
        self._stack.close()


def log_digest(log_path: Path) -> str | None:
    """SHA-256 of a log as it is now, to tell later whether an attempt wrote it. None: there is none that can be read."""
    data = read_log(log_path, None, None)
    return hashlib.sha256(data).hexdigest() if isinstance(data, bytes) else None


def prepare(
    log_path: Path,
    root: Path,
    section: ChangesSection | None = None,
    *,
    left_out: Sequence[str] = (),
    unchanged_since: str | None = None,
    began: int = UNKNOWN,
    keep: Keep | None = None,
) -> PreparedRollback | None:
    """Read the attempt's log and take its backups. None: the attempt wrote none. Starts no child; changes only `keep`.

    `left_out`: folders below `root` that the baseline does not hold, so that the restore leaves them alone. `unchanged_since`:
    `log_digest` at the baseline; a log that is still the same tells of an earlier iteration. `began`: when, as `before.marked`
    says; what is older was not made by the attempt and is neither deleted nor written over. `section`: `[changes]`. `keep`:
    where it survives us; what an earlier process kept there of the same baseline and did not finish is what is prepared.
    Raise `OSError` when it cannot be kept.
    """
    with ExitStack() as stack:
        try:
            folder = stack.enter_context(Root.open(root, _git_folders(root)))
        except OSError as error:
            return PreparedRollback(root, (f"{shown(str(root))}: {error.strerror}",))
        inside = inside_root(log_path, folder)
        index = keep.load() if keep is not None else None
        data = index.log if index is not None else read_log(log_path, folder, inside)
        if isinstance(data, Refused):
            missing = data.errors[0].startswith("Changes log not found")
            return None if missing else PreparedRollback(root, data.errors)
        if unchanged_since is not None and hashlib.sha256(data).hexdigest() == unchanged_since:
            return None
        log = parse(data)
        if isinstance(log, Refused):
            return PreparedRollback(root, log.errors)
        folders = _folders(left_out)
        covered = _covered_by(folders)
        ours = _left_to_us(log, covered)
        if errors := check(folder, ours, inside):
            return PreparedRollback(root, errors, log)
        if keep is not None and index is None:
            keep.begin()
        report = Builder(shown(log.phase))
        for line in log.warnings:
            report.warn("log", line)
        vault = stack.enter_context(Vault(keep.vault if keep is not None else None))
        undo = Undo(
            root=folder,
            log=ours,
            log_path=inside,
            repository=None,
            vault=vault,
            report=report,
            reverts=section.revert if section is not None else {},
            covered=covered,
            before=Before(began, frozenset(folder.names for folder in folders)),
        )
        if index is not None:
            undo.kept = kept_backups(index)
            present = frozenset(index.present)
        else:
            undo.read_backups()
            entries = (*log.created, *log.artifacts, *log.plan_files)
            present = frozenset(entry.field for entry in entries if undo.exists(entry.path))
            if keep is not None:
                vault.sync()
                keep.save(data, undo.kept, tuple(sorted(present)))
        return PreparedRollback(root, (), log, covered, present, keep, undo, stack.pop_all())


def discard_log(log_path: Path, root: Path) -> None:
    """The attempt was accepted: its log and the backups it names are of no more use. A log that is refused stays."""
    with open_log(log_path, root, phase=None, strict=False) as opened, Vault() as vault:
        if isinstance(opened, Opened):
            undo = Undo(
                root=opened.root,
                log=opened.log,
                log_path=opened.log_path,
                repository=None,
                vault=vault,
                report=Builder(shown(opened.log.phase)),
            )
            undo.remove_backups()
            undo.remove_log()


def _git_folders(root: Path) -> tuple[Path, ...]:
    repository = Repository.find(root)
    return (repository.layout.git_dir, repository.layout.common_dir) if repository is not None else ()


def _folders(left_out: Sequence[str]) -> tuple[RelativePath, ...]:
    folders = []
    for text in left_out:
        with suppress(BadPathError):
            folders.append(relative(text))
    return tuple(folders)


def _covered_by(folders: Sequence[RelativePath]) -> Callable[[RelativePath], bool]:
    return lambda path: not any(folder.holds(path) for folder in folders)


def _left_to_us(log: ChangesLog, covered: Callable[[RelativePath], bool]) -> ChangesLog:
    """Without what the restore puts back: covered paths, the index, commits."""
    hows = {command: found.revert.how for command in log.commands if (found := match(command)) is not None}
    return replace(
        log,
        modified=tuple(item for item in log.modified if not covered(item.path)),
        created=tuple(entry for entry in log.created if not covered(entry.path)),
        commands=tuple(c for c in log.commands if hows.get(c) not in (How.UNSTAGE, How.COMMITS)),
        commits=(),
        artifacts=tuple(entry for entry in log.artifacts if not covered(entry.path)),
        plan_files=tuple(entry for entry in log.plan_files if not covered(entry.path)),
        recording=None,
        created_dirs=tuple(path for path in log.created_dirs if not covered(path)),
    )
