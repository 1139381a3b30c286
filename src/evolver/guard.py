"""What an attempt may not do, whatever the validators say: named predicates over one attempt.

Each returns the reason of a failed verdict, or None. What is protected is found once, on the baseline (`judges.py`).
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from evolver.definition import GuardSection
from evolver.scripts import package_scripts
from evolver.worktree.values import Attempt, Change, ChangeKind

SECRETS = (
    r"-----BEGIN [A-Z ]*PRIVATE KEY-----",
    r"\bAKIA[0-9A-Z]{16}\b",
    r"\bgh[pousr]_[A-Za-z0-9]{36,}\b",
    r"\bgithub_pat_[A-Za-z0-9_]{60,}\b",
    r"\bglpat-[A-Za-z0-9_-]{20,}\b",
    r"\bsk-ant-[A-Za-z0-9_-]{20,}",
    r"\bsk-(proj-)?[A-Za-z0-9_-]{40,}",
    r"\bxox[abprs]-[A-Za-z0-9-]{10,}",
    r"\bAIza[0-9A-Za-z_-]{35}\b",
)


@dataclass(frozen=True)
class Evidence:
    """What the predicates look at. `diff` gives the unified diff in pieces, and is asked only by those that need the text."""

    attempt: Attempt
    section: GuardSection
    protected: tuple[str, ...]
    scope: str  # "." or a folder the attempt must stay in
    diff: Callable[[], Iterable[str]]
    history: Callable[[], tuple[str, Iterable[str]]] | None = None  # where the agent's own commits are kept: messages, diffs
    packages: tuple[tuple[Path, str], ...] = ()  # `judges.package_judges`, from the baseline

    @property
    def committable(self) -> tuple[Change, ...]:
        return tuple(c for c in self.attempt.changes if not c.ignored)


def _name(path: bytes) -> str:
    return os.fsdecode(path).encode("utf-8", "backslashreplace").decode()


def oversized(evidence: Evidence) -> str | None:
    reason = evidence.attempt.oversized
    return f"guard: {reason}" if reason else None


def mounted(evidence: Evidence) -> str | None:
    told = evidence.attempt.mounts
    return f"guard: {told[0]}" if told else None


def control_files(evidence: Evidence) -> str | None:
    changed = evidence.attempt.control.changed
    if not changed or evidence.section.allow_config:
        return None
    return f"guard: control files changed: {', '.join(changed[:5])}"


def protected_matcher(globs: tuple[str, ...]) -> Callable[[bytes], bool]:
    """Whether a path, relative to the worktree, is protected. `globs` as in a `.gitignore`."""
    import pathspec

    spec = pathspec.GitIgnoreSpec.from_lines(globs)

    def matches(path: bytes) -> bool:
        name = _name(path)
        # `tests/` is a folder's pattern; a link or file put in its place is meant as well.
        return bool(spec.match_file(name) or spec.match_file(name + "/"))

    return matches


def protected_paths(evidence: Evidence) -> str | None:
    if not evidence.protected:
        return None
    matches = protected_matcher(evidence.protected)
    hit = [_name(c.path) for c in evidence.attempt.changes if matches(c.path)]
    return f"guard: protected path: {', '.join(hit[:5])}" if hit else None


def package_json(evidence: Evidence) -> str | None:
    """`npm test` is what package.json says it is."""
    hit = [path for path, before in evidence.packages if package_scripts(path) != before]
    return f"guard: protected path: {hit[0].name} (its scripts are what a validator runs)" if hit else None


def inside_scope(evidence: Evidence) -> str | None:
    if evidence.scope in ("", "."):
        return None
    prefix = os.fsencode(evidence.scope.rstrip("/")) + b"/"
    hit = [_name(c.path) for c in evidence.committable if not c.path.startswith(prefix)]
    return f"guard: outside scope {evidence.scope}: {', '.join(hit[:5])}" if hit else None


def max_files(evidence: Evidence) -> str | None:
    count, limit = len(evidence.committable), evidence.section.max_files
    return f"guard: {count} files changed, at most {limit} allowed" if limit and count > limit else None


def max_lines(evidence: Evidence) -> str | None:
    count, limit = evidence.attempt.insertions + evidence.attempt.deletions, evidence.section.max_lines
    return f"guard: {count} lines changed, at most {limit} allowed" if limit and count > limit else None


def deletes(evidence: Evidence) -> str | None:
    hit = [_name(c.path) for c in evidence.committable if c.kind is ChangeKind.DELETED]
    return f"guard: deleted: {', '.join(hit[:5])}" if hit and evidence.section.forbid_deletes else None


def binary(evidence: Evidence) -> str | None:
    if evidence.section.allow_binary:
        return None
    found = (re.match(r"Binary files .* and (.*) differ$", line) for line in evidence.diff() if line.startswith("Binary"))
    hit = [match[1].removeprefix("b/") for match in found if match]
    return f"guard: binary files changed: {', '.join(hit[:5])}" if hit else None


def secrets(evidence: Evidence) -> str | None:
    """The reason names file and pattern, never the secret."""
    patterns = [re.compile(p) for p in (*SECRETS, *evidence.section.secrets)]
    for path, line in _said_or_added(evidence):
        for pattern in patterns:
            if pattern.search(line):
                return f"guard: what looks like a secret was added to {path} (pattern {pattern.pattern[:40]})"
    return None


def _said_or_added(evidence: Evidence) -> Iterator[tuple[str, str]]:
    """Everything that an accepted commit, and those kept below it, would publish: where it stands, and a line of it."""
    yield from added_lines(evidence.diff())
    yield from (("a commit's message", subject) for subject in evidence.attempt.commit_subjects)
    if evidence.history is not None and evidence.attempt.commits:
        messages, pieces = evidence.history()
        yield from (("a commit's message", line) for line in messages.splitlines())
        yield from added_lines(pieces)


_HUNK = re.compile(r"@@ -\d+(?:,(\d+))? \+\d+(?:,(\d+))? @@")


_OVERLAP = 512  # characters of a long line's earlier piece that are looked at again with the next: longer than any key


def added_lines(pieces: Iterable[str]) -> Iterator[tuple[str, str]]:
    """File and text of each added line, or of a piece of it. Hunks are counted: an added `++ x` looks like a file's header."""
    path, old, new, kind, before = "", 0, 0, "", ""
    for piece in pieces:
        line = piece.removesuffix("\n")
        if before:  # the line goes on
            if kind == "+":
                yield path, before[-_OVERLAP:] + line
        elif old > 0 or new > 0:
            kind = line[:1]
            if kind == "+":
                yield path, line[1:]
            old -= kind in ("-", " ", "")
            new -= kind in ("+", " ", "")
        elif line.startswith("+++ "):
            path = line[4:].rstrip("\t").removeprefix("b/")
        elif hunk := _HUNK.match(line):
            old, new, kind = int(hunk[1] or 1), int(hunk[2] or 1), ""
        before = "" if piece.endswith("\n") else line


PREDICATES: tuple[Callable[[Evidence], str | None], ...] = (
    oversized,
    mounted,
    control_files,
    protected_paths,
    package_json,
    inside_scope,
    max_files,
    max_lines,
    deletes,
    binary,
    secrets,
)


def check(evidence: Evidence) -> str | None:
    """The first broken guard's reason."""
    return next((reason for predicate in PREDICATES if (reason := predicate(evidence)) is not None), None)
