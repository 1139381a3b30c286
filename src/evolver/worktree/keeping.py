"""Where a kept attempt is found again: an entry of the stash list, and refs under refs/evolver/attempts/ for what the agent named itself.

What no commit can hold is copied beside; see copies.py.
"""

from __future__ import annotations

from evolver.worktree import verify
from evolver.worktree.anchor import read_regular
from evolver.worktree.aside import Aside
from evolver.worktree.control import Guarded
from evolver.worktree.copies import Copies, keep_copies
from evolver.worktree.ignorerules import below
from evolver.worktree.inspect import Inspection
from evolver.worktree.manifest import Entry, entries, lookup
from evolver.worktree.preserve import COPIES, FOR_PERSON, Kept
from evolver.worktree.refs import BROKEN, STASH, Refs
from evolver.worktree.site import Site
from evolver.worktree.snapshot import STASH_LOG, Snapshot
from evolver.worktree.state import StateBack

ATTEMPTS = "refs/evolver/attempts/"
TRANSIENT = {"COMMIT_EDITMSG", "ORIG_HEAD", "FETCH_HEAD", "AUTO_MERGE"}  # of git's control files: nobody's work


def copy_nested(
    site: Site, snapshot: Snapshot, guarded: Guarded, found: Inspection, omitted: dict[str, Entry], *, name: str
) -> str:
    """Of what no tree holds, that in repositories of their own: the attempt may have committed there, in the user's own history."""

    def wanted(path: str) -> bool:
        root = below(path, found.nested)
        if root is None:
            return False
        return lookup(snapshot.work, f"{root}/.git") is not None or not (path in found.ignored or snapshot.is_ignored(path))

    copies = Copies(removed=_removed(found, all_paths=False))
    copies.add("worktree", site.root, {p: e for p, e in omitted.items() if wanted(p) and _has_bytes(e)})
    _add_state(site, snapshot, guarded, copies)
    return keep_copies(site.private, name, copies, site.max_vault)


def copy_all(
    site: Site, snapshot: Snapshot, guarded: Guarded, found: Inspection, omitted: dict[str, Entry], *, name: str, aside: Aside
) -> str:
    """Everything no tree holds: after a crash it may be a person's work, whatever git ignores."""
    things = {n: t for n, t in aside.things().items() if n.split(".", 2)[2] not in TRANSIENT}
    copies = Copies(removed=_removed(found, all_paths=True), control=things)
    copies.add("worktree", site.root, {p: e for p, e in omitted.items() if _has_bytes(e)})
    index = site.private / "index"
    if (found.index is None or found.index.unmerged) and index.is_file():
        copies.control["index"] = index  # no tree can stand for it
    _add_state(site, snapshot, guarded, copies)
    return keep_copies(site.private, name, copies, site.max_vault)


def _has_bytes(entry: Entry) -> bool:
    return entry.is_file or entry.is_link


def _removed(found: Inspection, *, all_paths: bool) -> tuple[str, ...]:
    return tuple(p for p, (_, now) in found.changed.items() if now is None and (all_paths or below(p, found.nested)))


def _add_state(site: Site, snapshot: Snapshot, guarded: Guarded, copies: Copies) -> None:
    """Submodules' own HEAD, refs and index, and metadata of worktrees that were added."""
    top, before, now = site.private, snapshot.private, guarded.folders.private
    if snapshot.common is not None and guarded.folders.common is not None:
        top, before, now = site.common, snapshot.common, guarded.folders.common
    paths = list(verify.modules(before, now))
    for name in sorted({n for n, e in now.get("worktrees", {}).items() if e.is_dir} - set(snapshot.siblings)):
        paths += [p for p, _ in entries(now, f"worktrees/{name}")]
    there = {p: e for p in paths if (e := lookup(now, p)) is not None and _has_bytes(e)}
    copies.add("git", top, there)


def keep_under(site: Site, kept: Kept, ref: str) -> tuple[str, str]:
    """Let a ref hold the commit; its name and the commit. One that stands is never moved: a killed recovery may have removed what it holds."""
    number, name = 1, ref
    while True:
        old = site.git.run("rev-parse", "--verify", "--quiet", name, check=False)
        if not old.ok:
            site.git.run("update-ref", name, kept.commit, "")
            return name, kept.commit
        if _trees(site, old.text) == kept.trees and _said(site, old.text) == (kept.copies, kept.person):
            return name, old.text
        number += 1
        name = f"{ref}.{number}"


def _said(site: Site, oid: str) -> tuple[str, bool]:
    """What a kept commit says of itself: its copies, and whether retention passes it over."""
    key = FOR_PERSON.partition(":")[0]
    lines = site.git.text("log", "-1", f"--format=%(trailers:key={COPIES},key={key})", oid, "--").splitlines()
    named = [line.partition(": ")[2] for line in lines if line.startswith(f"{COPIES}: ")]
    return (named[0] if named else "", FOR_PERSON in lines)


def anchor_refs(site: Site, snapshot: Snapshot, now: Refs, left: frozenset[str], commit: str) -> tuple[str, ...]:
    """What the attempt's refs say, commits and stash entries: nothing else will name them once refs are put back. Refs of every kind:
    notes, replacements and refs of other tools are work as well, after a crash or a hold perhaps a person's."""
    prefix = f"{ATTEMPTS}{commit[:16]}/"
    wanted: dict[str, str] = {}
    if now.commit is not None and now.commit != snapshot.pre_ref:
        wanted[f"{prefix}HEAD"] = now.commit
    for name, value in now.refs.items():
        if name in left or name == STASH or snapshot.refs.refs.get(name) == value or value == BROKEN or value.startswith("ref: "):
            continue
        rest = name.removeprefix("refs/")
        taken = rest.partition("/")[0] in ("HEAD", "stash")  # names that mean something else here
        wanted[f"{prefix}{'other/' if taken else ''}{rest}"] = value
    for oid in () if STASH in left else _stashed_by_attempt(site, snapshot):
        wanted[f"{prefix}stash/{oid[:16]}"] = oid
    wanted = _beside(site, prefix, _present(site, wanted))
    if wanted:
        lines = b"".join(f"update {n}\0{v}\0\0".encode("utf-8", "surrogateescape") for n, v in wanted.items())
        site.git.run("update-ref", "-z", "--stdin", input=lines)
    return tuple(sorted(wanted))


def _beside(site: Site, prefix: str, wanted: dict[str, str]) -> dict[str, str]:
    """A name that a recovery that was killed has used for something else is not used again."""
    if not wanted:
        return wanted
    lines = site.git.text("for-each-ref", "--format=%(refname) %(objectname)", prefix).splitlines()
    taken = dict(line.split(" ", 1) for line in lines)
    return {n if taken.get(n, v) == v else f"{n}.{v[:16]}": v for n, v in wanted.items()}


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

