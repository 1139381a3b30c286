"""What the files of git's own folder are to us: control, quiet, state, a sibling's, or nobody's business.

CONTROL steers what git does or is a half-done operation: compared and put back before git runs, and told (`alert.control_changed`).
QUIET is put back the same way, without an alert: every ordinary commit touches some of it. STATE is read as the attempt and
restored later: HEAD, refs, reflogs, index. SIBLING belongs to another linked worktree. STORE only grows: objects.
"""

from __future__ import annotations

from enum import Enum


class Kind(Enum):
    CONTROL = "control"
    QUIET = "quiet"
    STATE = "state"
    SIBLING = "sibling"
    STORE = "store"


_CONTROL = frozenset(
    {"config", "config.worktree", "shallow", "commondir", "gitdir", "hooks", "remotes", "branches", "BISECT_START", "BISECT_LOG"}
    | {"MERGE_HEAD", "CHERRY_PICK_HEAD", "REVERT_HEAD", "rebase-merge", "rebase-apply", "sequencer", "NOTES_MERGE_WORKTREE"}
)
_STATE = frozenset({"HEAD", "packed-refs", "index", "refs", "logs"})
_STORES = frozenset({"lfs", "annex", "evolver", "fsmonitor--daemon", "fsmonitor--daemon.ipc", "gc.pid", "gc.log"})
_INFO = frozenset({"exclude", "attributes", "sparse-checkout", "grafts"})
_SHARED = frozenset(
    {"branches", "common", "config", "gc.pid", "hooks", "info", "logs", "lost-found", "objects", "packed-refs", "refs", "remotes"}
    | {"rr-cache", "shallow", "svn", "worktrees"}
)
_PER_WORKTREE_REFS = ("refs/bisect/", "refs/worktree/", "refs/rewritten/")


def kind_of(path: str, *, beside: bool = False) -> Kind:
    """`path` is relative to the git folder. `beside`: to the common one of a linked worktree, where the main worktree keeps its own
    HEAD, index, half-done merge or rebase: somebody may be at work there."""
    parts = path.split("/")
    top = parts[0]
    if top in _STORES:
        return Kind.STORE
    if beside and not shared(path.removesuffix(".lock")):
        return Kind.SIBLING
    if top == "worktrees":
        return Kind.SIBLING  # its locks too: somebody's git at work there, or another run that starts
    if path.endswith(".lock"):
        return Kind.CONTROL
    if top == "objects":
        if path in ("objects/info/alternates", "objects/info/http-alternates"):
            return Kind.CONTROL
        return Kind.STORE
    if top == "modules":
        return _of_module(parts)
    if top in _STATE or top.startswith("sharedindex."):
        return Kind.STATE
    if top in _CONTROL or top.startswith("BISECT_"):
        return Kind.CONTROL
    if top == "info" and (len(parts) == 1 or parts[1] in _INFO):
        return Kind.CONTROL if len(parts) > 1 else Kind.QUIET
    return Kind.QUIET


def _of_module(parts: list[str]) -> Kind:
    """A submodule's own git folder: `modules/NAME/…`, the name may have slashes in it."""
    if "objects" in parts[2:] or "lfs" in parts[2:]:
        return Kind.STORE
    if parts[-1] in ("config", "config.worktree", "shallow", "commondir") or {"hooks", "info"} & set(parts[2:]):
        return Kind.CONTROL
    return Kind.STATE


class Opaque:
    """Folders of git's own that a walk notes but does not enter."""

    def __contains__(self, path: object) -> bool:
        if not isinstance(path, str):
            return False
        top, _, rest = path.partition("/")
        if top in _STORES:
            return True
        if top == "worktrees":
            return rest.partition("/")[2] == "evolver/vault"  # of a run there: as large as ours, and it changes while that run works
        if top == "objects":
            return bool(rest) and rest != "info"
        if top == "modules":
            last = path.rpartition("/")[2]
            return last in ("objects", "lfs") and path.count("/") >= 2
        return False


def per_worktree(ref: str) -> bool:
    """Refs that each linked worktree has for itself."""
    return ref.startswith(_PER_WORKTREE_REFS) or not ref.startswith("refs/")


def shared(path: str) -> bool:
    """Do all worktrees use this path of the common folder? What git looks up for each worktree apart: gitrepository-layout(5)."""
    if path == "info/sparse-checkout":
        return False
    folder, _, below = path.partition("/")
    if folder == "refs" and below:
        return not per_worktree(f"{path}/")
    if folder == "logs" and below:
        return below == "refs" or not per_worktree(f"{below}/")
    return folder in _SHARED
