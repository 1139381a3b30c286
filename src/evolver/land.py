"""Bringing an isolated run's commits to the branch it started from: by fast-forward alone, never by force.

The person's checkout is touched only where git itself finds the way clear; everything else is refused with a reason, and the
commits stay in the clone (and, once tried, under refs/evolver/unlanded/ in the person's repository).
"""

from __future__ import annotations

import os
from dataclasses import dataclass

from evolver.clone import Unlanded, forget
from evolver.cloning import git_of, is_ancestor
from evolver.events.types import Emitter, RunLanded
from evolver.git import Git
from evolver.layout import Layout

_LANDING = "refs/evolver/landing"
# What says that git is in the middle of something; the branch it works on must not move meanwhile.
_IN_PROGRESS = ("MERGE_HEAD", "CHERRY_PICK_HEAD", "REVERT_HEAD", "BISECT_LOG", "rebase-merge", "rebase-apply", "sequencer", "index.lock")


@dataclass(frozen=True, slots=True)
class Landed:
    """A branch moved forward."""

    branch: str
    old: str
    new: str
    commits: int
    how: str  # ff | squash | rebase


@dataclass(frozen=True, slots=True)
class Refused:
    """Nothing was changed; why, and what to do."""

    reason: str
    hint: str


def land(
    person: Layout, clone: Layout, record: Unlanded, events: Emitter, *, squash: bool = False, rebased: bool = False
) -> Landed | Refused | None:
    """Fast-forward the person's branch to the run's work; None: there is nothing to land. The caller holds both run locks."""
    inside, theirs = git_of(clone), git_of(person)
    tip = inside.run("rev-parse", "--verify", "--quiet", f"{record.branch}^{{commit}}", check=False).text
    if not tip:
        return Refused(f"the branch {short(record.branch)} is gone from {clone.root}", "`evolver land --drop` forgets it.")
    kept = f"refs/evolver/unlanded/{record.run_id}"
    if tip == record.start:
        _done(theirs, clone, record, kept)
        return None
    if (refused := _fetch(theirs, clone, record.branch, kept)) is not None:
        return refused
    if record.onto is not None and is_ancestor(theirs, tip, record.onto):
        landed_by_hand(person, record, tip, events)
        _done(theirs, clone, record, kept)
        return None
    found = _movable(person, theirs, record, tip, kept)
    if isinstance(found, Refused):
        return found
    assert record.onto is not None
    commits = int(theirs.text("rev-list", "--count", f"{found}..{tip}", "--"))
    new = tip
    if squash:
        new = _squashed(inside, record, found, tip)
        inside.run("update-ref", _LANDING, new)
        if (refused := _fetch(theirs, clone, _LANDING, kept)) is not None:
            return refused
    refused = _advance(person, theirs, record, found, new)
    if refused is not None:
        return refused
    how = "squash" if squash else "rebase" if rebased else "ff"
    landed = Landed(record.onto, found, new, commits, how)
    events.emit(RunLanded(branch=landed.branch, old=landed.old, new=landed.new, commits=commits, how=how))
    _done(theirs, clone, record, kept)
    return landed


def drop(person: Layout, clone: Layout, record: Unlanded) -> str | None:
    """Forget the work: nothing lands any more, and the ref an attempt to land it left is gone. The branch in the clone stays. Where that
    is gone or another by now, the ref is the only way back: it stays, and is the answer."""
    inside, theirs = git_of(clone), git_of(person)
    kept = f"refs/evolver/unlanded/{record.run_id}"
    tried = theirs.run("rev-parse", "--verify", "--quiet", f"{kept}^{{commit}}", check=False).text
    if tried and not is_ancestor(inside, tried, record.branch):
        forget(clone, record.run_id)
        return kept
    _done(theirs, clone, record, kept)
    return None


def landed_by_hand(person: Layout, record: Unlanded, tip: str, events: Emitter) -> None:
    """The work is on the person's branch already: they merged it, or a landing was killed before it said so."""
    theirs = git_of(person)
    if record.onto is not None and tip != record.start and is_ancestor(theirs, tip, record.onto):
        commits = int(theirs.text("rev-list", "--count", f"{record.start}..{tip}", "--"))
        events.emit(RunLanded(branch=record.onto, old=record.start, new=tip, commits=commits, how="merged"))


def _fetch(theirs: Git, clone: Layout, source: str, target: str) -> Refused | None:
    done = theirs.run(
        *("fetch", "--quiet", "--no-tags", "--no-write-fetch-head", "--no-recurse-submodules", "--update-shallow"),
        *(str(clone.root), f"+{source}:{target}"),
        check=False,
    )
    if done.ok:
        return None
    why = " / ".join(os.fsdecode(done.err).strip().splitlines()[-2:]) or f"exit {done.code}"
    return Refused(f"git cannot fetch from {clone.root}: {why}", "When that is put right, run `evolver land`.")


def _done(theirs: Git, clone: Layout, record: Unlanded, kept: str) -> None:
    theirs.run("update-ref", "-d", kept, check=False)
    forget(clone, record.run_id)


def exists(person: Layout, branch: str) -> bool:
    return git_of(person).run("rev-parse", "--quiet", "--verify", f"{branch}^{{commit}}", check=False).ok


def short(ref: str) -> str:
    return ref.removeprefix("refs/heads/")


def _movable(person: Layout, theirs: Git, record: Unlanded, tip: str, kept: str) -> str | Refused:
    """The commit the branch is on, when it may go forward to `tip`."""
    by_hand = f"The commits are in your repository as {kept}; `git merge {kept}` takes them."
    if record.onto is None:
        return Refused("the run started from a detached HEAD, so there is no branch to land on", by_hand)
    old = theirs.run("rev-parse", "--quiet", "--verify", f"{record.onto}^{{commit}}", check=False).text
    if not old:
        return Refused(f"the branch {short(record.onto)} is gone", by_hand)
    if not is_ancestor(theirs, old, tip):
        count = theirs.text("rev-list", "--count", f"{tip}..{old}", "--")
        return Refused(
            f"{short(record.onto)} moved since the run started: {count} of its commits are not in the run's work",
            "`evolver land --rebase` rebases the work in the clone, validates it again and lands it.",
        )
    for name in _IN_PROGRESS:
        if (person.git_dir / name).exists():
            return Refused(f"git is in the middle of something in your checkout ({name})", "Finish it, then run `evolver land`.")
    return old


def _advance(person: Layout, theirs: Git, record: Unlanded, old: str, new: str) -> Refused | None:
    """Move the branch, and the checkout with it where it is checked out here."""
    onto = record.onto or ""
    if theirs.run("symbolic-ref", "--quiet", "HEAD", check=False).text == onto:
        # git refuses by itself where an edit, a staged change or an untracked file would be overwritten, ignored ones too.
        merge = theirs.but(options=(*theirs.options, "merge.verifySignatures=false", "merge.autoStash=false"))
        done = merge.run("merge", "--quiet", "--ff-only", "--no-overwrite-ignore", "--no-stat", new, check=False)
        if done.ok:
            return None
        paths = [line.strip() for line in os.fsdecode(done.err).splitlines() if line.startswith("\t")]
        why = ", ".join(paths[:5]) or " / ".join(os.fsdecode(done.err).strip().splitlines()[-2:])
        return Refused(
            f"your own edits in {person.root} would be overwritten: {why}" if paths else f"git cannot fast-forward: {why}",
            "Commit them or put them aside, then run `evolver land`.",
        )
    elsewhere = theirs.text("for-each-ref", "--format=%(worktreepath)", onto)
    if elsewhere:
        return Refused(f"{short(onto)} is checked out in {elsewhere}", f"Run `evolver land` there, or switch {elsewhere} away from it.")
    reason = f"evolver: land {record.run_id}"
    if not theirs.run("update-ref", "-m", reason, onto, new, old, check=False).ok:
        return Refused(f"{short(onto)} moved just now", "Run `evolver land` again.")
    return None


def _squashed(inside: Git, record: Unlanded, parent: str, tip: str) -> str:
    """One commit of everything, whose message names what it is made of."""
    subjects = inside.text("log", "--reverse", "--format=- %s", f"{parent}..{tip}", "--")
    trailers = inside.text(
        "log", "--reverse", "--format=%(trailers:key=Evolver-Run,key=Evolver-Iteration)", f"{parent}..{tip}", "--"
    )
    lines = list(dict.fromkeys(line for line in trailers.splitlines() if line)) or [f"Evolver-Run: {record.run_id}"]
    count = len(subjects.splitlines())
    message = "\n".join([f"evolver: {count} accepted attempts of {record.loop}", "", subjects, "", *lines, ""])
    return inside.text("commit-tree", f"{tip}^{{tree}}", "-p", parent, input=message.encode("utf-8", "surrogateescape"))
