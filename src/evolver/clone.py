"""The clone an isolated run works in, so that a person can go on working in their own checkout.

A clone and not a linked worktree: that would share refs, stash, config and hooks with the person's. It lies under the state
home, outside `.git` (test runners pass by such paths), is made once and brought up to date by a fetch before every run. It
has no remote, so nothing can be pushed from it by accident. Beside it lie `person`, whose clone it is, and `unlanded/`, the
runs whose commits are not on the person's branch yet; in the person's state folder, `clone` says where it is.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

import msgspec

from evolver import dependencies
from evolver.definition import Loop
from evolver.errors import GitError, PreflightError, UsageError
from evolver.events.ids import uuid7
from evolver.git import Git
from evolver.layout import Layout, lifeboat_of, locate, state_home
from evolver.resume_lock import read as read_lock
from evolver.resume_lock import write_atomic

POINTER = "clone"
OWNER = "person"
START = "refs/evolver/person"  # in the clone: the person's HEAD when the run started
_BRANCHES = "refs/heads/evolver/"

# Who commits, and what bytes come out of a checkout. Properties of the file system are found out anew by `git clone`.
_TAKEN = (
    r"^(user|author|committer|filter|i18n)\.|^core\.(autocrlf|eol|safecrlf|excludesfile|attributesfile|whitespace|hookspath)$"
)


class Unlanded(msgspec.Struct, frozen=True, kw_only=True):
    """A run whose commits wait in the clone."""

    run_id: str
    loop: str
    definition: str  # sha256: what `land --rebase` validates with
    branch: str  # full name, in the clone
    onto: str | None  # the person's branch the run started from; None: HEAD was detached
    start: str  # the commit of the person's the work is based on
    directory: str = ""  # the loop file's folder, as the run saw it


def place_of(person: Layout, env: Mapping[str, str]) -> Path:
    """Where the clone of this worktree belongs. Raise `UsageError` when the state home lies in the worktree itself."""
    home = Path(os.path.realpath(state_home(env)))
    if home.is_relative_to(person.root) and not home.is_relative_to(person.git_dir):
        raise UsageError(f"the state folder {home} lies inside the worktree", "Set EVOLVER_STATE_DIR to a folder outside it.")
    key = hashlib.sha256(os.fsencode(person.root)).hexdigest()[:32]
    return home / "clones" / key / (person.root.name.lstrip(".") or "worktree")


def _line(path: Path) -> Path | None:
    try:
        return Path(os.fsdecode(path.read_bytes().removesuffix(b"\n")))
    except OSError:
        return None


def find(person: Layout, env: Mapping[str, str] = os.environ) -> Layout | None:
    """The clone of this worktree, when it has one. Runs no git."""
    root = _line(person.state / POINTER)
    if root is None:
        return None
    owner = _line(root.parent / OWNER)
    # A repository that was moved takes its clone along; one that was copied leaves it to the original.
    if owner is None or (owner != person.root and _line_of_person(owner) == root):
        return None
    try:
        found = locate(root, env)
    except PreflightError:
        return None
    return replace(found, prefix=person.prefix) if found.root == root else None


def _line_of_person(root: Path) -> Path | None:
    """Which clone the worktree at `root` says is its own."""
    try:
        return _line(locate(root).state / POINTER)
    except PreflightError:
        return None


def person_of(layout: Layout, env: Mapping[str, str] = os.environ) -> Layout | None:
    """Whose clone this is; None when it is nobody's."""
    owner = _line(layout.root.parent / OWNER)
    if owner is None:
        return None
    try:
        person = locate(owner, env)
    except PreflightError:
        return None
    return person if _line(person.state / POINTER) == layout.root else None


def locate_person(start: Path, env: Mapping[str, str] = os.environ) -> Layout:
    """`layout.locate`, but called in a clone it finds the worktree the clone works for."""
    found = locate(start, env)
    return person_of(found, env) or found


def holder(person: Layout, env: Mapping[str, str] = os.environ) -> Layout | None:
    """Where a resume lock stands: in the worktree, or in its clone."""
    clone = find(person, env)
    return next((place for place in (person, clone) if place is not None and read_lock(place) is not None), None)


def seen_from(person: Layout, clone: Layout, path: Path) -> Path:
    """The clone's counterpart of a path in the person's worktree; the path itself where the clone has none."""
    if not path.is_relative_to(person.root):
        return path
    there = clone.root / path.relative_to(person.root)
    return there if there.exists() else path


# ---------------------------------------------------------------- what waits to be landed


def _folder(clone: Layout) -> Path:
    return clone.root.parent / "unlanded"


def unlanded(clone: Layout) -> tuple[Unlanded, ...]:
    """Oldest first: run ids are UUIDv7, so their names sort by time."""
    found = []
    for path in sorted(_folder(clone).glob("*.json")):
        try:
            found.append(msgspec.convert(json.loads(path.read_bytes()), Unlanded))
        except (OSError, ValueError, msgspec.ValidationError):
            continue
    return tuple(found)


def remember(clone: Layout, record: Unlanded) -> None:
    # json and not msgspec: the names of branches and folders need not be UTF-8, and it escapes what is not.
    text = json.dumps(msgspec.to_builtins(record))
    write_atomic(_folder(clone) / f"{record.run_id}.json", text.encode())


def forget(clone: Layout, run_id: str) -> None:
    (_folder(clone) / f"{run_id}.json").unlink(missing_ok=True)


# ---------------------------------------------------------------- making it, and bringing it up to date


def git_of(layout: Layout) -> Git:
    # `protocol.file.allow`: some people forbid local transports; between these two repositories there is no other.
    return Git.at(layout.root, layout.git_dir, options=("protocol.file.allow=always",))


def ensure(person: Layout, env: Mapping[str, str]) -> Layout:
    """The clone, made when there is none. The caller holds the person's run lock. Raise `PreflightError`."""
    found = find(person, env)
    if found is not None:
        return found
    place = place_of(person, env)
    git = git_of(person)
    if not git.run("rev-parse", "--quiet", "--verify", "HEAD^{commit}", check=False).ok:
        raise PreflightError(f"{person.root} has no commit yet", "Commit once; a run needs something to go back to.")
    try:
        if place.exists():  # of a repository that was here before this one; its commits may be nowhere else
            place.parent.rename(place.parent.with_name(f"{place.parent.name}.{uuid7()}"))
        shutil.rmtree(lifeboat_of(place, env), ignore_errors=True)  # of a clone that somebody removed
        write_atomic(person.state / POINTER, os.fsencode(place) + b"\n")
        write_atomic(place.parent / OWNER, os.fsencode(person.root) + b"\n")
        _make(person, git, place)
    except OSError as error:
        raise PreflightError(
            f"the clone in {place.parent} cannot be made: {error.strerror}", "EVOLVER_STATE_DIR moves it elsewhere."
        ) from error
    return replace(locate(place, env), prefix=person.prefix)


def _make(person: Layout, git: Git, place: Path) -> None:
    """Whole or not at all: made beside its place, then renamed."""
    fresh = place.with_name(f"{place.name}.new")
    shutil.rmtree(fresh, ignore_errors=True)
    fresh.mkdir(parents=True, mode=0o700)
    # Bare, since then git takes neither worktree nor refs from the person's; no template, so no hooks.
    _git(git, "clone", "--quiet", "--bare", "--local", "--template=", str(person.common_dir), str(fresh / ".git"))
    inside = Git.at(fresh, fresh / ".git")
    config = str(fresh / ".git/config")
    _git(inside, "config", "--file", config, "core.bare", "false")
    _git(inside, "config", "--file", config, "--remove-section", "remote.origin")
    names = inside.run("for-each-ref", "--format=%(refname)", "refs/heads").out.splitlines()
    inside.run("update-ref", "--stdin", "-z", input=b"".join(b"delete %s\0\0" % name for name in names))
    shutil.copyfile(config, place.parent / "config")
    fresh.rename(place)


def _git(git: Git, *args: str) -> None:
    try:
        git.run(*args)
    except GitError as error:
        raise PreflightError(f"the clone cannot be made ready: {error.message}", "What git says above is the reason.") from error


def refresh(
    person: Layout,
    clone: Layout,
    loop: Loop,
    *,
    name: str,
    run_id: str,
    definition: str,
    directory: str,
    landed: Callable[[Unlanded, str], None],
) -> Unlanded:
    """Bring the clone up to date and switch it to the run's own branch. Raise `PreflightError`; nothing is lost then.

    Work of earlier runs that has not landed goes on from where it is, as long as the person's branch has not moved past it.
    `landed` is told, with its tip, of work that is on the branch already.
    """
    git, theirs = git_of(clone), git_of(person)
    _finish_switch(clone, git)
    dirty = git.run("status", "--porcelain=v1", "-z", "--untracked-files=no").fields()
    if dirty:
        raise PreflightError(
            f"the clone {clone.root} has changes that are not committed: {os.fsdecode(dirty[0][3:])}",
            "Nothing of evolver's leaves such; look at them, then commit or undo them there.",
        )
    _git(
        git,
        *("fetch", "--quiet", "--no-tags", "--no-write-fetch-head", "--no-recurse-submodules", "--update-shallow", "--prune"),
        str(person.root),
        *(f"+HEAD:{START}", "+refs/heads/*:refs/remotes/person/*", "+refs/tags/*:refs/tags/*"),
    )
    _take_config(clone, git, theirs)
    _take_hooks(person, clone)
    head, onto = git.text("rev-parse", START), theirs.run("symbolic-ref", "--quiet", "HEAD", check=False).text or None
    for record in unlanded(clone):
        if is_ancestor(git, record.branch, START):  # landed by hand, or empty
            landed(record, git.text("rev-parse", record.branch))
            forget(clone, record.run_id)
    waiting = [r for r in unlanded(clone) if r.onto == onto and is_ancestor(git, START, r.branch)]
    before = waiting[-1] if waiting else None
    branch = f"{_BRANCHES}{_component(name)}/{run_id}"
    record = Unlanded(
        run_id=run_id,
        loop=name,
        definition=definition,
        branch=branch,
        onto=onto,
        start=before.start if before is not None else head,
        directory=directory,
    )
    tip = git.text("rev-parse", before.branch) if before is not None else head
    remember(clone, record)
    switch(clone, git, tip, branch)
    if before is not None:
        forget(clone, before.run_id)  # the new branch holds it
    _prune(git, branch)
    if not (clone.root / clone.prefix).is_dir():
        raise PreflightError(f"{clone.prefix} is not in the last commit, so the clone does not have it", "Commit it first.")
    dependencies.take(person, clone, git, copy=loop.copy, link=loop.link)
    # Nobody else tidies up here: evolver's own git commands never do, since a vault may need what looks like garbage.
    git.but(options=(*git.options, "gc.auto=6700", "gc.autoDetach=false")).run("gc", "--auto", "--quiet", check=False)
    return record


def switch(clone: Layout, git: Git, commit: str, branch: str) -> None:
    """Check `commit` out on `branch`, made or moved. Killed in between, the next `refresh` completes it."""
    mark = clone.root.parent / "switching"
    write_atomic(mark, commit.encode())
    _git(git, "checkout", "--quiet", "--no-track", "-B", branch.removeprefix("refs/heads/"), commit)
    mark.unlink()


def _finish_switch(clone: Layout, git: Git) -> None:
    """A checkout that was killed left a mix of two trees. Both are commits, so nothing of anybody's is overwritten."""
    mark, lock = clone.root.parent / "switching", clone.git_dir / "index.lock"
    if not mark.exists():
        return
    for _ in range(100):  # git itself may have outlived us
        if not lock.exists():
            break
        time.sleep(0.05)
    lock.unlink(missing_ok=True)
    _git(git, "checkout", "--quiet", "--force", "--detach", mark.read_text())
    mark.unlink()


def is_ancestor(git: Git, older: str, newer: str) -> bool:
    return git.run("merge-base", "--is-ancestor", older, newer, check=False).ok


def _component(name: str) -> str:
    """A loop's name as one component of a ref's."""
    text = re.sub(r"[^A-Za-z0-9_-]+", "-", name).strip("-")
    return text or "loop"


def _prune(git: Git, current: str) -> None:
    """Forget branches that landed, so that a thousand runs do not leave a thousand."""
    merged = git.run("for-each-ref", f"--merged={START}", "--format=%(refname) %(objectname)", _BRANCHES).out.splitlines()
    gone = [line.split(b" ") for line in merged if not line.startswith(current.encode() + b" ")]
    if gone:
        git.run("update-ref", "--stdin", "-z", input=b"".join(b"delete %s\0%s\0" % (ref, oid) for ref, oid in gone))


def _take_config(clone: Layout, git: Git, theirs: Git) -> None:
    """The clone's config is what `git clone` made and the person's identity and conversions; nothing else survives in it."""
    base, config = clone.root.parent / "config", clone.git_dir / "config"
    fresh = clone.root.parent / "config.new"
    shutil.copyfile(base, fresh)
    found = theirs.run("config", "--local", "--includes", "-z", "--get-regexp", _TAKEN, check=False).fields()
    for entry in found:
        key, _, value = os.fsdecode(entry).partition("\n")
        git.run("config", "--file", str(fresh), "--add", key, value)
    if fresh.read_bytes() != config.read_bytes():
        write_atomic(config, fresh.read_bytes(), 0o644)
    fresh.unlink()


def _take_hooks(person: Layout, clone: Layout) -> None:
    """A copy of the person's hooks: a commit by an agent, or with `[accept] hooks`, runs what it would run in their checkout."""
    theirs, ours = person.common_dir / "hooks", clone.git_dir / "hooks"
    shutil.rmtree(ours, ignore_errors=True)
    if any(not path.name.endswith(".sample") for path in theirs.glob("*")):
        shutil.copytree(theirs, ours, ignore=shutil.ignore_patterns("*.sample"))
