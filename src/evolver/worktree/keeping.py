"""Where a kept attempt is found again: an entry of the stash list, and refs under refs/evolver/attempts/ for what the agent named itself."""

from __future__ import annotations

from evolver.worktree.anchor import read_regular
from evolver.worktree.preserve import Kept
from evolver.worktree.refs import BROKEN, STASH, Refs
from evolver.worktree.site import Site
from evolver.worktree.snapshot import STASH_LOG, Snapshot
from evolver.worktree.state import StateBack

ATTEMPTS = "refs/evolver/attempts/"


def anchor_refs(site: Site, snapshot: Snapshot, now: Refs, left: frozenset[str], commit: str) -> tuple[str, ...]:
    """Branches, tags, commits and stash entries the attempt made: nothing else will name them once refs are put back."""
    prefix = f"{ATTEMPTS}{commit[:16]}/"
    wanted: dict[str, str] = {}
    if now.commit is not None and now.commit != snapshot.pre_ref:
        wanted[f"{prefix}HEAD"] = now.commit
    for name, value in now.refs.items():
        if name in left or snapshot.refs.refs.get(name) == value or value == BROKEN or value.startswith("ref: "):
            continue
        if name.startswith(("refs/heads/", "refs/tags/")):
            wanted[prefix + name.removeprefix("refs/")] = value
    for number, oid in enumerate(() if STASH in left else _stashed_by_attempt(site, snapshot)):
        wanted[f"{prefix}stash/{number}"] = oid
    wanted = _present(site, wanted)
    if wanted:
        lines = b"".join(f"update {n}\0{v}\0\0".encode("utf-8", "surrogateescape") for n, v in wanted.items())
        site.git.run("update-ref", "-z", "--stdin", input=lines)
    return tuple(sorted(wanted))


def _present(site: Site, wanted: dict[str, str]) -> dict[str, str]:
    """Without what the object store has not: an attempt may have moved its objects away, and a ref to nothing helps nobody."""
    if not wanted:
        return wanted
    names = list(wanted)
    asked = "".join(wanted[n] + "\n" for n in names).encode()
    lines = site.git.run("cat-file", "--batch-check", input=asked).out.split(b"\n")
    return {n: wanted[n] for n, line in zip(names, lines, strict=False) if not line.endswith(b" missing")}


def _stashed_by_attempt(site: Site, snapshot: Snapshot) -> list[str]:
    try:
        lines = read_regular(site.common / STASH_LOG).split(b"\n")
    except OSError:
        return []
    known = {line.split(b" ", 2)[1] for line in _baseline_log(site, snapshot).split(b"\n") if line}
    known |= {line.split(b" ", 2)[1] for line in snapshot.own_stash}
    return [line.split(b" ", 2)[1].decode() for line in lines if line.count(b" ") > 1 and line.split(b" ", 2)[1] not in known]


def _baseline_log(site: Site, snapshot: Snapshot) -> bytes:
    return StateBack(site, snapshot, snapshot.refs, frozenset(), False).bytes_of(snapshot.shared, STASH_LOG)


def store_in_stash(site: Site, snapshot: Snapshot, now: Refs, kept: Kept, message: str, *, shared: bool) -> str:
    """Put the commit on top of the user's own list, as `git stash store` would. Recorded before it is done, so that a kill in between is
    finished by restore. Returns the entry's commit: one made before for the same attempt, when there is one."""
    subject = message.splitlines()[0] if message else "evolver attempt"
    if shared:
        site.git.run("stash", "store", "-m", subject, kept.commit)
        return kept.commit
    for line in snapshot.own_stash:
        oid = line.split(b" ", 2)[1].decode()
        if _trees(site, oid) == kept.trees:
            return oid
    old = snapshot.refs.refs.get(STASH, "0" * len(kept.commit))
    if snapshot.own_stash:
        old = snapshot.own_stash[-1].split(b" ", 2)[1].decode()
    ident = site.git.text("var", "GIT_COMMITTER_IDENT")
    line = f"{old} {kept.commit} {ident}\t{subject}\n".encode("utf-8", "surrogateescape")
    snapshot.own_stash = (*snapshot.own_stash, line)
    site.write_own_stash(snapshot.fingerprint, snapshot.own_stash)
    state = StateBack(site, snapshot, now, frozenset(), False)
    state.stash_back(now)
    return kept.commit


def _trees(site: Site, oid: str) -> tuple[str, str, str]:
    """(work, index, untracked) of an entry; empty where it has none."""

    def tree(name: str) -> str:
        done = site.git.run("rev-parse", "--verify", "--quiet", f"{oid}{name}^{{tree}}", check=False)
        return done.text if done.ok else ""

    return tree(""), tree("^2"), tree("^3")

