"""After a crash: was the accepting commit made, and what was left to do behind it?

The ref transaction comes after the index and moves HEAD and every ref at once, so that whatever differs there now is a person's work of
the time since, and stays.
"""

from __future__ import annotations

from evolver.errors import NotRestoredError
from evolver.worktree import attribution
from evolver.worktree.control import Guarded
from evolver.worktree.keeping import anchor_refs
from evolver.worktree.refs import STASH
from evolver.worktree.site import Site
from evolver.worktree.snapshot import Snapshot
from evolver.worktree.state import StateBack
from evolver.worktree.submodules import committed_in


def accepting_commit(site: Site, snapshot: Snapshot | None, iteration_id: str, pre_ref: str, post_ref: str | None) -> str | None:
    """The oldest commit above `pre_ref` that bears the iteration's trailer; None when there is none."""
    branch = (snapshot.refs.branch if snapshot is not None else None) or "HEAD"
    wanted = [f"{pre_ref}..{branch}"]
    if post_ref is not None and post_ref != pre_ref and site.git.run("cat-file", "-e", post_ref, check=False).ok:
        wanted.append(f"^{post_ref}")
    layout = "--format=%H%x00%(trailers:key=Evolver-Iteration,valueonly,separator=%x20)"
    done = site.git.run("log", "--no-show-signature", "--reverse", layout, *wanted, "--", check=False)
    if not done.ok:
        return None
    for line in done.text.splitlines():
        commit, _, trailers = line.partition("\0")
        if iteration_id in trailers.split():
            return commit
    return None


def finish(site: Site, snapshot: Snapshot, guarded: Guarded, left: frozenset[str], commit: str, *, shared: bool) -> None:
    """Put back the stash list, reflogs, and what went of submodules' and worktrees' metadata. Raise `NotRestoredError`."""
    made = int(site.git.text("log", "-1", "--no-show-signature", "--format=%ct", commit, "--"))
    back = StateBack(site, snapshot, guarded.refs, left, shared, committed_in=committed_in(site, snapshot.pre_ref, commit))
    known = {*attribution.stash_then(site, snapshot), *snapshot.own_stash}
    listed = attribution.stash_now(site)
    theirs = tuple(line for line in listed if line not in known and _time(line) > made)
    if theirs:
        snapshot.own_stash = (*snapshot.own_stash, *theirs)
        site.write_own_stash(snapshot.fingerprint, snapshot.own_stash)
    if not shared and any(line not in known and line not in theirs for line in listed):
        anchor_refs(site, snapshot, guarded.refs, left | frozenset(n for n in guarded.refs.refs if n != STASH), commit)
    back.rest()
    if back.problems:
        raise NotRestoredError(
            f"the accepting commit {commit[:12]} was made, and {back.problems[0]}", "Mend that, then run evolver again: it goes on there."
        )


def _time(line: bytes) -> int:
    """When a line of a reflog was written: `OLD NEW NAME <MAIL> SECONDS ZONE<tab>WORDS`."""
    try:
        return int(line.split(b"\t", 1)[0].split(b" ")[-2])
    except (IndexError, ValueError):
        return 0
