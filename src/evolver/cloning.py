"""Making the clone of isolated runs, and bringing it up to date before every run: by a fetch, from the person's repository.

It has no remote, so nothing can be pushed from it by accident; its config, hooks and ignore rules are the person's.
"""

from __future__ import annotations

import os
import re
import shutil
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

from evolver import dependencies
from evolver.clone import OWNER, POINTER, Unlanded, find, forget, place_of, remember, unlanded
from evolver.definition import Loop
from evolver.errors import GitError, PreflightError
from evolver.events.ids import uuid7
from evolver.git import Git
from evolver.layout import Layout, lifeboat_of, locate
from evolver.resume_lock import write_atomic

START = "refs/evolver/person"  # in the clone: the person's HEAD when the run started
_BRANCHES = "refs/heads/evolver/"
_THEIRS = b"refs/remotes/person/"  # in the clone: the person's branches, as they were when the run started

# Who commits, and what bytes come out of a checkout. Properties of the file system are found out anew by `git clone`.
_TAKEN = (
    r"^(user|author|committer|filter|i18n)\.|^core\.(autocrlf|eol|safecrlf|excludesfile|attributesfile|whitespace|hookspath)$"
)


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
        made = place.exists() and _is_of(git, place)
        if place.exists() and not made:  # of a repository that was here before this one; its commits may be nowhere else
            place.parent.rename(place.parent.with_name(f"{place.parent.name}.{uuid7()}"))
        if not made:
            shutil.rmtree(lifeboat_of(place, env), ignore_errors=True)  # of a clone that somebody removed
        write_atomic(person.state / POINTER, os.fsencode(place) + b"\n")
        write_atomic(place.parent / OWNER, os.fsencode(person.root) + b"\n")
        if not made:
            _make(person, git, place)
    except OSError as error:
        raise PreflightError(
            f"the clone in {place.parent} cannot be made: {error.strerror}", "EVOLVER_STATE_DIR moves it elsewhere."
        ) from error
    return replace(locate(place, env), prefix=person.prefix)


def _is_of(git: Git, place: Path) -> bool:
    """Whether a clone that nothing points to belongs to this repository all the same: its state folder was removed."""
    if not (place / ".git/HEAD").exists():
        return False
    start = Git.at(place, place / ".git").run("rev-parse", "--verify", "--quiet", START, check=False).text
    return bool(start) and git.run("cat-file", "-e", f"{start}^{{commit}}", check=False).ok


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
    # The person's branches under another name. Known, not gone: what is reachable need not be fetched again, nor be complete
    # (a partial clone could not send it).
    heads = [line.split(b" ") for line in inside.run("for-each-ref", "--format=%(refname) %(objectname)", "refs/heads").out.splitlines()]
    moves = [b"create %s%s\0%s\0delete %s\0\0" % (_THEIRS, name[len(b"refs/heads/") :], oid, name) for name, oid in heads]
    inside.run("update-ref", "--stdin", "-z", input=b"".join(moves))
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
        *(f"+HEAD:{START}", f"+refs/heads/*:{_THEIRS.decode()}*", "+refs/tags/*:refs/tags/*"),
    )
    _take_config(clone, git, theirs)
    _take_hooks(person, clone)
    _take_attributes(person, clone)
    head, onto = git.text("rev-parse", START), theirs.run("symbolic-ref", "--quiet", "HEAD", check=False).text or None
    for record in unlanded(clone):
        if is_ancestor(git, record.branch, START):  # landed by hand, or empty
            landed(record, git.text("rev-parse", record.branch))
            _covered(theirs, git, clone, record, START)
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
        _covered(theirs, git, clone, before, branch)
    _prune(git, branch)
    if not (clone.root / clone.prefix).is_dir():
        raise PreflightError(f"{clone.prefix} is not in the last commit, so the clone does not have it", "Commit it first.")
    dependencies.take(person, clone, git, copy=loop.copy, link=loop.link)
    # Nobody else tidies up here: evolver's own git commands never do, since a vault may need what looks like garbage.
    git.but(options=(*git.options, "gc.auto=6700", "gc.autoDetach=false")).run("gc", "--auto", "--quiet", check=False)
    return record


def _covered(theirs: Git, git: Git, clone: Layout, record: Unlanded, by: str) -> None:
    """`by` holds this run's commits: nothing of it waits, so neither does the ref that an attempt to land it left with the person."""
    kept = f"refs/evolver/unlanded/{record.run_id}"
    tried = theirs.run("rev-parse", "--verify", "--quiet", kept, check=False).text
    if tried and is_ancestor(git, tried, by):
        theirs.run("update-ref", "-d", kept, tried, check=False)
    forget(clone, record.run_id)


def switch(clone: Layout, git: Git, commit: str, branch: str) -> None:
    """Check `commit` out on `branch`, made or moved. Killed in between, the next `refresh` completes it."""
    mark = clone.root.parent / "switching"
    write_atomic(mark, commit.encode())
    _git(git, "checkout", "--quiet", "--no-track", "-B", branch.removeprefix("refs/heads/"), commit, "--")
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
    _git(git, "checkout", "--quiet", "--force", "--detach", mark.read_text(), "--")
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


def _take_attributes(person: Layout, clone: Layout) -> None:
    theirs, ours = person.common_dir / "info/attributes", clone.git_dir / "info/attributes"
    if theirs.is_file():
        write_atomic(ours, theirs.read_bytes(), 0o644)
    else:
        ours.unlink(missing_ok=True)


def _take_hooks(person: Layout, clone: Layout) -> None:
    """A copy of the person's hooks: a commit by an agent, or with `[accept] hooks`, runs what it would run in their checkout."""
    theirs, ours = person.common_dir / "hooks", clone.git_dir / "hooks"
    shutil.rmtree(ours, ignore_errors=True)
    if any(not path.name.endswith(".sample") for path in theirs.glob("*")):
        shutil.copytree(theirs, ours, ignore=shutil.ignore_patterns("*.sample"))
