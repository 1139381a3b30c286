"""Reverting the commits of a log, newest first, after making room for it."""

from __future__ import annotations

from collections.abc import Callable, Container
from dataclasses import dataclass

from evolver.changes.gitwork import Repository
from evolver.changes.model import ChangesLog
from evolver.changes.paths import shown
from evolver.changes.report import Builder
from evolver.errors import GitError


@dataclass(frozen=True)
class CommitReverts:
    """The commits of one log. `before`: called once, when everything is as it is when the first commit is reverted."""

    repository: Repository | None
    no_git: str  # why `repository` is None
    log: ChangesLog
    report: Builder
    before: Callable[[], None]

    def run(self, *, backed_up: Container[str]) -> None:
        """`backed_up`: the entries of `files_modified` whose bytes are at hand, by field."""
        wanted = list(dict.fromkeys(text.lower() for text in self.log.commits))
        if not wanted:
            self.before()
            return
        obstacle = self.no_git if self.repository is None else self.repository.obstacle()
        if self.repository is None or obstacle:
            for text in reversed(wanted):
                self.report.error("commits", f"Failed to revert commit {text}: {obstacle}")
            self.before()
            return
        try:
            self._revert(self.repository, wanted, backed_up)
        except GitError as error:
            self.report.error("commits", f"Git operations stopped: {shown(error.message)}")

    def _revert(self, repository: Repository, wanted: list[str], backed_up: Container[str]) -> None:
        resolved: dict[str, str] = {}  # full id to the log's spelling
        for text in wanted:
            commit, problem = repository.resolve(text)
            problem = problem or repository.cut_off(commit)
            if problem:
                self.report.error("commits", f"Failed to revert commit {text}: {problem}")
            else:
                resolved.setdefault(commit, text)
        added: set[bytes] = set().union(*(repository.added_by(commit) for commit in resolved))
        # Only what can be brought back is put back: files with a backup at hand, and files the log's own commits made.
        mine = [item.path for item in self.log.modified if item.field in backed_up]
        mine += [entry.path for entry in self.log.created if repository.full(entry.path) in added]
        if resolved and (problem := repository.put_back(mine)):
            self.report.error("commits", f"Failed to put edited files back to HEAD: {problem}")
        self.before()
        for commit, text in reversed(resolved.items()):
            result = repository.revert(commit)
            if not result.reason:
                self.report.did("commits", f"Reverted git commit {text}")
            elif result.empty:
                self.report.warn("commits", f"Already reverted: commit {text}")
            else:
                self.report.error("commits", f"Failed to revert commit {text}: {result.reason}")
                if result.conflicts:
                    self.report.warn("commits", f"Manual resolution required for commit {text}")
