"""The values that baseline, inspect, preserve, restore and verify exchange."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path


class ChangeKind(StrEnum):
    ADDED = "added"
    MODIFIED = "modified"  # bytes, mode, type or link target
    DELETED = "deleted"


@dataclass(frozen=True, slots=True)
class Change:
    """One path that differs from the baseline. `path` is relative to the worktree, raw bytes."""

    path: bytes
    kind: ChangeKind
    ignored: bool = False  # git ignores it by the baseline's rules: not committable
    digest: str = ""  # of type, mode and content as the attempt left it; empty: deleted


@dataclass(frozen=True, slots=True)
class RefChange:
    """A ref that moved. `old` None: created; `new` None: deleted."""

    name: str
    old: str | None
    new: str | None


@dataclass(frozen=True, slots=True)
class ControlReport:
    """What of git's control files the attempt changed; already put back when this is returned."""

    changed: tuple[str, ...] = ()
    git_replaced: bool = False  # `.git` was deleted or replaced and rebuilt from the lifeboat


@dataclass(frozen=True, slots=True)
class Baseline:
    """Everything the user had when the iteration started. The bulk is in the vault, under `fingerprint`."""

    fingerprint: str
    pre_ref: str
    branch: str | None  # full ref name; None: detached HEAD
    files: int
    left_out: tuple[str, ...] = ()  # ignored directories beyond the budget
    vault: Path = Path()


@dataclass(frozen=True, slots=True)
class Attempt:
    """Everything that changed between baseline and quiesce."""

    post_ref: str | None  # HEAD then; None: unborn or unreadable
    branch: str | None
    changes: tuple[Change, ...] = ()
    refs: tuple[RefChange, ...] = ()
    commits: tuple[str, ...] = ()  # between pre_ref and post_ref, oldest first
    commit_subjects: tuple[str, ...] = ()  # their subjects, for the squashed commit's body
    index_changed: bool = False
    control: ControlReport = field(default_factory=ControlReport)
    committable: bool = False  # an accepted commit of it would differ from pre_ref's tree
    refs_left: tuple[str, ...] = ()  # moved, but not this run's to put back
    refs_put_back: tuple[str, ...] = ()  # moved by this attempt or by somebody else: put back, what they said kept below refs/evolver
    insertions: int = 0
    deletions: int = 0
    oversized: str = ""  # why it is too large to be committed or kept aside; empty: it is not
    unknown: str = ""  # why git or the disk would not tell what it changed; then nothing else here is complete
    mounts: tuple[str, ...] = ()  # what it mounted or unmounted in the worktree, in words
    patch_id: str = ""  # equal for equal committable changes
    tree: str = ""  # the tree a commit of the attempt would have

    @property
    def changed(self) -> bool:
        inside = self.unknown or self.changes or self.refs or self.commits or self.index_changed or self.mounts
        return bool(inside or self.control.changed or self.control.git_replaced)


@dataclass(frozen=True, slots=True)
class Preserved:
    """Where a failed attempt was kept."""

    stash: str | None = None  # commit id of the stash entry; None: nothing that a stash can hold
    refs: tuple[str, ...] = ()  # `refs/evolver/attempts/…` besides
    copies: str = ""  # folder with what no commit can hold: nested repositories; after a crash ignored files too


@dataclass(frozen=True, slots=True)
class Restored:
    """What putting the baseline back took."""

    written: int = 0
    deleted: int = 0
    refs: int = 0
    problems: tuple[str, ...] = ()  # what could not be done; verify has the last word


@dataclass(frozen=True, slots=True)
class Verified:
    """What still differs from the baseline (nothing: proved equal), and what was never part of it."""

    differences: tuple[str, ...] = ()
    left: tuple[str, ...] = ()

    @property
    def equal(self) -> bool:
        return not self.differences


@dataclass(frozen=True, slots=True)
class Accepted:
    """The accepting commit."""

    commit: str
    paths: tuple[bytes, ...]
    squashed: tuple[str, ...] = ()
    user_files: tuple[bytes, ...] = ()  # untracked files of the user the attempt changed; earlier bytes are in the vault
