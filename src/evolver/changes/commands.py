"""Undoing the commands of a log, each by the argv its registry entry names."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from evolver.changes.before import Before
from evolver.changes.check import Keep
from evolver.changes.files import Root
from evolver.changes.gitwork import Repository
from evolver.changes.paths import RelativePath, relative, shown
from evolver.changes.registry import How, Match, match
from evolver.changes.report import Builder
from evolver.process import run_simple

COMMAND_TIMEOUT_MS = 10 * 60 * 1000
NO_GIT = "no git repository here"
DIST = relative("dist")


@dataclass
class Commands:
    """The commands of one log, in its order. Equal reverts run once."""

    commands: tuple[str, ...]
    has_commits: bool
    root: Root
    repository: Repository | None
    keep: Keep
    report: Builder
    reverts: Mapping[str, tuple[str, ...]]
    covered: Callable[[RelativePath], bool]
    timeout_ms: int = COMMAND_TIMEOUT_MS
    no_git: str = NO_GIT
    before: Before | None = None
    _matches: tuple[Match | None, ...] = ()
    _lines: dict[int, str] = field(default_factory=dict)  # by position in the log

    def __post_init__(self) -> None:
        self._matches = tuple(match(command, self.reverts) for command in self.commands)

    def unstage(self) -> None:
        """Undo the log's `git add`s; the first thing a rollback does, as an index with changes stops every revert."""
        done: set[bytes | None] = set()
        for number, found in enumerate(self._matches):
            if found is None or found.revert.how is not How.UNSTAGE:
                continue
            if self.repository is None:
                self._failed(found.command, self.no_git)
                continue
            problems = []
            for path in found.paths or (None,):
                spec = path.raw if path is not None else None
                if spec not in done:
                    done.add(spec)
                    problems.append(self.repository.unstage(path))
            if any(problems):
                self._failed(found.command, next(filter(None, problems)))
            else:
                self._lines[number] = found.done

    def revert(self) -> None:
        """Everything else, and the lines of all."""
        done: set[tuple[str, ...]] = set()
        for number, (command, found) in enumerate(zip(self.commands, self._matches, strict=True)):
            if found is None or (found.revert.how is How.COMMITS and not self.has_commits):
                self.report.warn("commands", f"Cannot auto-revert: {shown(command)} (manual intervention required)")
            elif found.revert.how in (How.RUN, How.REMOVE) and found.revert.argv not in done:
                done.add(found.revert.argv)
                if self._run(found) if found.revert.how is How.RUN else self._remove_dist(command):
                    self._lines[number] = found.done
        for _, line in sorted(self._lines.items()):
            self.report.did("commands", line)

    def _failed(self, command: str, reason: str) -> bool:
        self.report.error("commands", f"Failed to revert command {shown(command)}: {reason}")
        return False

    def _run(self, found: Match) -> bool:
        # A folder named relatively in PATH would be looked up in the worktree, where an agent may have put anything.
        search = os.pathsep.join(p for p in os.environ.get("PATH", os.defpath).split(os.pathsep) if p.startswith("/"))
        env = {k: v for k, v in os.environ.items() if not k.startswith("GIT_")} | {"PATH": search}
        result = run_simple(found.revert.argv, timeout_ms=self.timeout_ms, cwd=self.root.path, env=env)
        if result.ok:
            return True
        output = (result.stderr or result.stdout).decode(errors="backslashreplace")
        last = [line for line in output.splitlines() if line.strip()]
        return self._failed(found.command, result.describe() + (f": {shown(last[-1][:300])}" if last else ""))

    def _remove_dist(self, command: str) -> bool:
        """`rm -rf dist/`, by our own hands: no link is followed out of it."""
        if self.covered(DIST):
            return True
        if (self.repository is not None and self.repository.tracks(DIST)) or self.keep.covers(DIST):
            reason = "git tracks files in dist/, or the log restores some; manual intervention required"
            self.report.warn("commands", f"Cannot auto-revert: {shown(command)} ({reason})")
            return False
        try:
            status = self.root.status(DIST)
            if status is not None and self.before is not None and self.before.had(self.root, DIST, status):
                reason = "dist/ was there before the attempt; manual intervention required"
                self.report.warn("commands", f"Cannot auto-revert: {shown(command)} ({reason})")
                return False
            if status is not None and stat.S_ISDIR(status.st_mode):
                self.root.remove_tree(DIST)
            elif status is not None:
                self.root.unlink(DIST)
        except OSError as error:
            return self._failed(command, f"dist/: {error.strerror}")
        return True
