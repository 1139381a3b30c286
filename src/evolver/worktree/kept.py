"""Kept attempts: how one is recognised (subject, trailers, name of its ref), listed, dropped; retention."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass

from evolver.errors import GitError
from evolver.git import Git, failure
from evolver.worktree import copies
from evolver.worktree.preserve import BASE, COPIES, EMPTY_FOLDER, FOR_PERSON, POST_REF, REMOVED

_UUID = r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"
STASH_MARK = re.compile(rf"evolver ({_UUID}/\d+): (.*)")
REF = re.compile(rf"refs/evolver/attempts/{_UUID}/\d+(?:\.\d+)?")
_FOLDER = re.compile(rf"{_UUID}/\d+(?:\.\d+)?".encode())
_ESCAPE = re.compile(rb'\\([0-7]{3}|["\\])')


@dataclass(frozen=True, slots=True)
class Trailers:
    """What no tree can hold."""

    pre_ref: str = ""
    post_ref: str | None = None
    removed: tuple[str, ...] = ()
    folders: tuple[str, ...] = ()
    copies: str = ""
    for_person: bool = False


def unquoted(raw: bytes) -> str:
    """The inverse of `objects.quoted`."""

    def back(match: re.Match[bytes]) -> bytes:
        return bytes((int(match[1], 8),)) if len(match[1]) == 3 else match[1]

    return os.fsdecode(_ESCAPE.sub(back, raw[1:-1]))


def parse_trailers(message: bytes) -> Trailers:
    """From the last paragraph alone: a reason may quote anything."""
    pre_ref, post_ref, named, person = "", None, "", False
    removed, folders = [], []
    for line in message.rstrip(b"\n").rpartition(b"\n\n")[2].split(b"\n"):
        key, _, value = line.partition(b": ")
        if key == BASE.encode():
            pre_ref = value.decode("ascii", "replace")
        elif key == POST_REF.encode():
            post_ref = value.decode("ascii", "replace")
        elif key == COPIES.encode() and _FOLDER.fullmatch(value):
            named = value.decode()
        elif line == FOR_PERSON.encode():
            person = True
        elif key == REMOVED.encode():
            removed.append(unquoted(value))
        elif key == EMPTY_FOLDER.encode():
            folders.append(unquoted(value))
    return Trailers(pre_ref, post_ref, tuple(removed), tuple(folders), named, person)


@dataclass(frozen=True, slots=True)
class KeptAttempt:
    """One of them. `iteration_id` is RUN_ID/N; `ref` is a ref, or `stash` for an entry of the stash list."""

    iteration_id: str
    commit: str
    ref: str
    pre_ref: str
    post_ref: str | None
    time: int  # seconds since the epoch
    reason: str
    removed: tuple[str, ...] = ()  # untracked files of the user that the attempt removed
    folders: tuple[str, ...] = ()  # empty folders it made
    copies: str = ""  # folder below GIT_DIR/evolver/kept with what no commit can hold; GIT_DIR of the worktree it was made in
    for_person: bool = False  # kept by recovery or resume: it holds a person's work, or may

    @property
    def in_stash(self) -> bool:
        return self.ref == "stash"


def listed(git: Git) -> tuple[KeptAttempt, ...]:
    """Every kept attempt, the newest first."""
    found = [_read(git, oid, "stash") for oid in _stash_ids(git)]
    refs = git.run("for-each-ref", "--format=%(refname) %(objectname)", "refs/evolver/attempts/").text
    for line in refs.splitlines():
        name, _, oid = line.partition(" ")
        if REF.fullmatch(name):
            found.append(_read(git, oid, name))
    return tuple(sorted((f for f in found if f is not None), key=lambda f: (f.time, f.iteration_id), reverse=True))


def _stash_ids(git: Git) -> list[str]:
    done = git.run("log", "-g", "--format=%H", "refs/stash", "--", check=False)
    return done.text.split() if done.ok else []


def _read(git: Git, oid: str, ref: str) -> KeptAttempt | None:
    """None when the commit is not one of ours."""
    done = git.run("log", "-1", "--format=%ct%x00%P%x00%B", oid, "--", check=False)
    when, _, rest = done.out.partition(b"\0")
    parents, _, message = rest.partition(b"\0")
    subject = os.fsdecode(message.split(b"\n", 1)[0])
    match = STASH_MARK.match(subject)
    fields = parse_trailers(message)
    pre_ref = parents.split(b" ")[0].decode() if parents else ""
    if not done.ok or match is None or fields.pre_ref != pre_ref:
        return None
    more = (fields.removed, fields.folders, fields.copies, fields.for_person)
    return KeptAttempt(match[1], oid, ref, pre_ref, fields.post_ref, int(when or b"0"), match[2], *more)


def drop(git: Git, attempt: KeptAttempt) -> None:
    """Forget one. An entry of the stash list is found by its commit, never by its position (hazard 52)."""
    if attempt.in_stash:
        _drop_stash(git, attempt.commit)
    else:
        git.run("update-ref", "-d", attempt.ref, attempt.commit)
    others = listed(git)
    if all(a.commit != attempt.commit for a in others):  # a stash entry and a ref made within one second may be one commit
        made = git.run("for-each-ref", "--format=delete %(refname)%00%(objectname)", f"refs/evolver/attempts/{attempt.commit[:16]}/")
        if made.out:  # one transaction: it may have fetched thousands
            git.run("update-ref", "-z", "--stdin", input=made.out.replace(b"\n", b"\0"))
    if attempt.copies and all(a.copies != attempt.copies for a in others):
        copies.forget(git.git_dir, attempt.copies)


def _drop_stash(git: Git, commit: str) -> None:
    ids = _stash_ids(git)
    if commit not in ids:
        return
    position = ids.index(commit)
    if git.text("rev-parse", f"refs/stash@{{{position}}}") != commit:
        raise GitError("the stash list changed while it was read", "Try again.")
    args = ("reflog", "delete", "--updateref", "--rewrite", f"refs/stash@{{{position}}}")
    done = git.run(*args, check=False)
    if not done.ok:
        raise failure(args, done)
    if len(ids) == 1:  # the last entry: git leaves the ref behind
        git.run("update-ref", "-d", "refs/stash", check=False)


def prune(git: Git, keep: int) -> tuple[str, ...]:
    """Retention: forget the oldest kept attempts above `keep`; never an entry that is not ours, nor what was kept because a person may
    have worked on it: a number that bounds failed attempts says nothing of that. Their iteration ids."""
    excess = [a for a in listed(git) if not a.for_person][keep:]
    for attempt in excess:
        drop(git, attempt)
    return tuple(a.iteration_id for a in excess)


def forget_copies(git: Git) -> None:
    """Retention of raw copies: those that no kept attempt names go after 14 days."""
    old = copies.stale(git.git_dir)
    if old:
        named = {a.copies for a in listed(git)}
        for name in old:
            if name not in named:
                copies.forget(git.git_dir, name)
