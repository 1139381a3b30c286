"""Refuses before the agent is ever started, each time with what to do about it. Changes nothing."""

from __future__ import annotations

import os
import re
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from tenacity import RetryError, Retrying, retry_if_result, stop_after_delay, wait_fixed

from evolver.errors import GitError, PreflightError
from evolver.model import DirtyPolicy
from evolver.worktree.anchor import read_regular
from evolver.worktree.gitfolder import shared
from evolver.worktree.ignored import Status, read_status
from evolver.worktree.ignorerules import RULES
from evolver.worktree.index import IndexDamaged, parse
from evolver.worktree.refs import value_of
from evolver.worktree.site import Site

BUSY_SECONDS = 5  # another git of the user's may just be finishing
LOCKS = ("index.lock", "HEAD.lock", "packed-refs.lock", "config.lock", "shallow.lock")


@dataclass(frozen=True, slots=True)
class InProgress:
    """What somebody is in the middle of, and the commands that end it."""

    what: str
    go_on: str
    give_up: str
    more: str = ""

    @property
    def hint(self) -> str:
        return f"Finish it (`{self.go_on}`) or give it up (`{self.give_up}`), then run evolver.{self.more}"


# A revert that `evolver revert` was killed in the middle of looks like a person's, but its commit needs a trailer that git does not know.
_KILLED = " If it was `evolver revert` that was killed: give it up, then revert again."
IN_PROGRESS = {
    "MERGE_HEAD": InProgress("a merge", "git merge --continue", "git merge --abort"),
    "rebase-merge": InProgress("a rebase", "git rebase --continue", "git rebase --abort"),
    "rebase-apply": InProgress("a rebase or `git am`", "git rebase --continue", "git rebase --abort"),
    "CHERRY_PICK_HEAD": InProgress("a cherry-pick", "git cherry-pick --continue", "git cherry-pick --abort"),
    "REVERT_HEAD": InProgress("a revert", "git revert --continue", "git revert --abort", _KILLED),
    "BISECT_LOG": InProgress("a bisect", "git bisect reset", "git bisect reset"),
    "BISECT_START": InProgress("a bisect", "git bisect reset", "git bisect reset"),
    "sequencer": InProgress("a cherry-pick or revert of several commits", "git cherry-pick --continue", "git cherry-pick --abort"),
}
EXTENSIONS = frozenset({"noop", "objectformat", "partialclone", "preciousobjects", "worktreeconfig"})


def preflight(site: Site, dirty: DirtyPolicy) -> None:
    """Raise `PreflightError` with message and hint."""
    _usable(site)
    _format(site)
    _commit(site)
    _plain_branch(site)
    _in_progress(site)
    _locks(site)
    _readable_index(site)
    _identity(site)
    _state_folder(site)
    _no_pipes_for_git(site)
    _dirt(site, dirty)


def _no_pipes_for_git(site: Site) -> None:
    """Git opens its ignore rules and attributes by name, and waits for ever where one is a pipe (kind 38). Names only, no `stat`."""
    pending = [os.fspath(site.root)]
    while pending:
        with suppress(OSError), os.scandir(pending.pop()) as listing:
            for item in listing:
                if item.is_dir(follow_symlinks=False):
                    if item.name != ".git":
                        pending.append(item.path)
                elif item.name in RULES and not item.is_file(follow_symlinks=False) and not item.is_symlink():
                    where = os.path.relpath(item.path, site.root)
                    raise PreflightError(f"{where!r} is no regular file; git would wait on it", "Remove it, or put a file in its place.")


def _usable(site: Site) -> None:
    """Would the user's own git work here? Ours is told where to look, so it would not notice another user's repository (kind 51)."""
    done = site.git.found_from(site.root, "rev-parse", "--is-bare-repository", "--show-toplevel", env=site.user_config)
    said = os.fsdecode(done.err).strip()
    if not done.ok:
        if "dubious ownership" in said:
            raise PreflightError(
                f"{site.root} belongs to another user: git refuses it as of dubious ownership",
                f"If you trust it: git config --global --add safe.directory '{site.root}'",
            )
        if "repository format" in said or "extension" in said:
            raise PreflightError(f"unknown repository format: {_last(said)}", "Use a git that knows it, and an evolver that does.")
        raise PreflightError(f"git cannot use {site.root}: {_last(said)}", "Make `git status` work there first.")
    bare, _, top = os.fsdecode(done.out).removesuffix("\n").partition("\n")  # a folder's name may have newlines in it
    if bare == "true":
        raise PreflightError(f"{site.root} is a bare repository", "Run evolver in a worktree of it.")
    if os.path.realpath(top) != str(site.root):
        raise PreflightError(
            f"git takes {top} for the worktree, not {site.root}", "core.worktree or GIT_WORK_TREE points elsewhere; unset it."
        )


def _last(text: str) -> str:
    return text.splitlines()[-1] if text else "no message"


def _format(site: Site) -> None:
    listed = site.git.run("config", "--local", "--get-regexp", r"^extensions\.", check=False).text
    for line in listed.splitlines():
        name, _, value = line.removeprefix("extensions.").partition(" ")
        if name.lower() not in EXTENSIONS or (name.lower() == "objectformat" and value not in ("sha1", "sha256")):
            raise PreflightError(f"unknown repository format: extensions.{name} = {value}", "evolver knows the files format only.")


def _commit(site: Site) -> None:
    if not site.git.run("rev-parse", "--verify", "--quiet", "HEAD^{commit}", check=False).ok:
        head = site.git.run("symbolic-ref", "-q", "HEAD", check=False).text
        raise PreflightError(
            f"there is no commit yet on {head.removeprefix('refs/heads/') or 'HEAD'}", "Commit once: rolling back needs something to go back to."
        )
    if not site.git.run("rev-parse", "--verify", "--quiet", "HEAD^{tree}", check=False).ok:
        raise PreflightError("the tree of HEAD cannot be read", "Run `git fsck`; `git fetch` may bring objects back.")


def in_progress(git_dir: Path) -> InProgress | None:
    """`git_dir`: the worktree's own, also where it is a linked one."""
    return next((begun for name, begun in IN_PROGRESS.items() if os.path.lexists(git_dir / name)), None)


def _plain_branch(site: Site) -> None:
    """A branch that is a symbolic ref: what is committed on it moves another one, and which of them is to be put back nobody said."""
    with suppress(OSError):
        branch = value_of(read_regular(site.private / "HEAD")).removeprefix("ref: ")
        target = value_of(read_regular(site.common / branch)) if branch.startswith("refs/") else ""
        if target.startswith("ref: "):
            raise PreflightError(
                f"HEAD is on {branch}, which is no branch of its own but a symbolic ref to {target[5:]}",
                f"Stand on that one: git symbolic-ref HEAD {target[5:]}",
            )


def _in_progress(site: Site) -> None:
    begun = in_progress(site.private)
    if begun is not None:
        raise PreflightError(f"{begun.what} is in progress", begun.hint)


def _locks(site: Site) -> None:
    """A lock file: wait a moment in the user's favour, then refuse."""

    def present() -> list[Path]:
        common = [site.common / name for name in LOCKS if site.linked and shared(name.removesuffix(".lock"))]
        return [path for path in (*(site.private / name for name in LOCKS), *common) if path.exists()]

    try:
        Retrying(
            retry=retry_if_result(bool), stop=stop_after_delay(BUSY_SECONDS), wait=wait_fixed(0.1)
        )(present)
    except RetryError:
        found = ", ".join(str(p) for p in present()) or "a lock file"
        raise PreflightError(
            f"another git is at work here, or was killed: {found}", "Wait for it; remove the file when no git is running."
        ) from None


def _readable_index(site: Site) -> None:
    try:
        raw = (site.private / "index").read_bytes()
    except FileNotFoundError:
        return
    except OSError as error:
        raise PreflightError(f"git's index cannot be read: {error.strerror}", "Make it readable for this user.") from error
    size = 32 if site.git.text("rev-parse", "--show-object-format") == "sha256" else 20
    try:
        index = parse(raw, size)
    except IndexDamaged as error:
        raise PreflightError(f"git's index cannot be read: {error}", "`git reset` makes a new one.") from error
    if index.unmerged:
        raise PreflightError(
            f"the index has unmerged paths ({index.unmerged[0][0]} …)", "Resolve them and `git add`, or `git merge --abort`."
        )
    if b"link" in index.extensions:
        raise PreflightError("the index is split (core.splitIndex)", "Run `git update-index --no-split-index` once.")


def _identity(site: Site) -> None:
    for who in ("GIT_COMMITTER_IDENT", "GIT_AUTHOR_IDENT"):
        done = site.git.but(config=None, options=()).run("var", who, env=site.user_config, check=False)
        if not done.ok or re.search(rb"<>", done.out):
            raise PreflightError(
                "git does not know who commits", "git config --global user.name NAME; git config --global user.email ADDRESS"
            )


def _state_folder(site: Site) -> None:
    for folder in (site.layout.state, site.boat.folder):
        try:
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            probe = folder / f".probe.{os.getpid()}"
            probe.write_bytes(b"x")
            probe.unlink()
        except OSError as error:
            raise PreflightError(
                f"{folder} cannot be written: {error.strerror}", "Make room or give permission; EVOLVER_STATE_DIR moves the lifeboat."
            ) from error


def _dirt(site: Site, dirty: DirtyPolicy) -> None:
    try:
        status = read_status(site.git, ignored=False)
    except GitError as error:
        raise PreflightError(f"git status fails: {error.message}", "Make `git status` work first.") from error
    if status.unmerged:
        raise PreflightError("the index has unmerged paths", "Resolve them and `git add`, or `git merge --abort`.")
    if dirty is DirtyPolicy.KEEP:
        return
    real = sorted(p for p in status.dirty if not _phantom(site, status, p))
    if real:
        more = f" and {len(real) - 3} more" if len(real) > 3 else ""
        raise PreflightError(
            f"there are uncommitted changes: {', '.join(map(repr, real[:3]))}{more}",
            "Commit or stash them, or let them be part of the baseline with --dirty keep.",
        )


def _phantom(site: Site, status: Status, path: str) -> bool:
    """git calls it modified for ever, though the file is the blob, byte for byte (CRLF under a text attribute, kind 10)."""
    if path in status.staged or path in status.submodules:
        return False
    entry = site.git.run("ls-files", "-s", "-z", "--", path, check=False).fields()
    if not entry:
        return False
    mode, oid, _ = entry[0].split(b"\t")[0].split(b" ")
    file = site.root / path
    if not file.is_file() or file.is_symlink() or bool(file.stat().st_mode & 0o100) != (mode == b"100755"):
        return False
    return site.git.text("hash-object", "--no-filters", "--", path) == oid.decode()
