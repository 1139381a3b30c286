"""`evolver revert N`: undoing one accepted iteration later, by a new commit on top.

Not a rollback: that puts back the baseline of an attempt nobody has accepted. HEAD never moves back here, so whatever was
built on the iteration stays, and where it cannot (a conflict) everything is as before and the files are named.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from evolver.changes.gitwork import NAMED, Repository, standing
from evolver.crash import crash_point
from evolver.errors import GitError, PreflightError, UsageError
from evolver.worktree.preflight import in_progress

TRAILER = "Evolver-Reverts"
_ACCEPTED = "Evolver-Iteration"
# In any paragraph, indented or listed: `git merge --squash`, an interactive rebase and forges keep the messages of what they squash in
# shapes that leave one of the trailers, or none, where git looks for trailers.
_MENTION = re.compile(rf"^\W*{_ACCEPTED}:\s*(\S+)\s*$", re.M)


@dataclass(frozen=True, slots=True)
class Accepted:
    """The iteration to undo, as the stream tells it; commit and pre_ref are empty when the stream does not know."""

    iteration_id: str  # RUN_ID/N
    commit: str = ""
    pre_ref: str = ""


@dataclass(frozen=True, slots=True)
class RevertResult:
    """How it went. `revert_commit` None: nothing was changed, and `reason` says why."""

    commit: str
    revert_commit: str | None = None
    conflicts: tuple[str, ...] = ()
    reason: str = ""
    done_before: bool = False  # `revert_commit` was made by an earlier call
    hint: str = "Nothing was changed; revert it by hand with `git revert`, or undo later iterations first."


def revert(repository: Repository, iteration: Accepted) -> RevertResult:
    """Undo `iteration` by a new commit. The caller holds the run lock. Raise `PreflightError` for a tree that is not clean,
    `UsageError` when no commit of it is in HEAD's history, `GitError`."""
    _preflight(repository)
    commit = find_commit(repository, iteration)
    if reason := repository.cut_off(commit):
        return RevertResult(commit, reason=reason)
    earlier = with_trailer(repository, TRAILER, iteration.iteration_id)
    git = repository.git
    before = git.text("rev-parse", "HEAD")
    undone = _as_one(repository, iteration, commit)
    if names := repository.in_the_way(undone):  # not the usual hint: `git revert` by hand would overwrite them
        return RevertResult(commit, reason=standing(names), hint="Nothing was changed; move them away, then revert again.")
    try:
        done = repository.start_revert("--no-commit", undone)
        conflicts = repository.conflicts()
        changed = not git.run("diff", "--cached", "--quiet", "HEAD", "--", check=False).ok
        if not done.ok or not changed:
            repository.abort(before)
            if conflicts:
                return RevertResult(commit, None, conflicts, f"Merge conflict in {', '.join(conflicts[:NAMED])}")
            if done.ok and earlier:
                return RevertResult(commit, earlier[0], done_before=True)
            return RevertResult(commit, None, (), repository.refusal(done) if not done.ok else "nothing of it is left to undo")
        crash_point("revert.merged")
        git.run("commit", "-q", "--no-verify", "--cleanup=verbatim", "-F", "-", input=_message(repository, iteration, commit))
    except BaseException:
        # Ctrl-C, a full disk, no identity: never leave somebody's tree in the middle of a revert.
        if git.text("rev-parse", "HEAD") == before:
            repository.abort(before)
        raise
    crash_point("revert.committed")
    return RevertResult(commit, git.text("rev-parse", "HEAD"))


def _preflight(repository: Repository) -> None:
    obstacle = repository.obstacle()
    if obstacle and obstacle != "HEAD is detached":  # a commit can be made there as well
        begun = in_progress(repository.layout.git_dir)
        raise PreflightError(f"cannot revert: {obstacle}", begun.hint if begun is not None else "Commit something first.")
    dirty = repository.git.run("diff", "--name-only", "-z", "HEAD", "--").fields()
    if dirty:
        names = ", ".join(repr(name.decode("utf-8", "backslashreplace")) for name in dirty[:5])
        raise PreflightError(
            f"cannot revert: there are uncommitted changes: {names}", "Commit them, or put them aside with `git stash`."
        )


def find_commit(repository: Repository, iteration: Accepted) -> str:
    """The commit in HEAD's history: the stream's, or (rebased, squashed by a person, stream lost) the one whose trailer
    names the iteration. Raise `UsageError` when there is none, more than one, or one that is other iterations as well."""
    git = repository.git
    if iteration.commit and git.run("merge-base", "--is-ancestor", iteration.commit, "HEAD", check=False).ok:
        return iteration.commit
    wanted = iteration.iteration_id
    mentions = _mentioning(repository, wanted)
    for commit, together in mentions.items():
        if len(together) > 1:
            raise UsageError(
                f"{commit[:12]} is {len(together)} iterations in one commit: {', '.join(together)}",
                f"`git revert {commit[:12]}` undoes them together.",
            )
    found = with_trailer(repository, _ACCEPTED, wanted)
    if len(found) == 1:
        return found[0]
    if found:
        raise UsageError(
            f"{len(found)} commits say they are iteration {wanted}: {', '.join(c[:12] for c in found)}",
            "Revert the right one with `git revert`.",
        )
    hint = "Check out the branch it was accepted on."
    if mentions:
        hint = f"Somebody committed it anew, it seems: see {', '.join(c[:12] for c in mentions)}, and undo that with `git revert`."
    raise UsageError(f"no commit of iteration {wanted} is in the history of HEAD", hint)


def _mentioning(repository: Repository, iteration_id: str) -> dict[str, tuple[str, ...]]:
    """Commits in HEAD's history whose message has a line that names this iteration, and all iterations they name so."""
    wanted = ("--fixed-strings", f"--grep={_ACCEPTED}: {iteration_id}", "--format=%H%x01%B")
    found = {}
    for record in repository.git.run("log", "--no-show-signature", "-z", *wanted, "HEAD", "--").fields():
        commit, _, message = record.decode("utf-8", "replace").partition("\x01")
        named = tuple(dict.fromkeys(_MENTION.findall(message)))
        if iteration_id in named:
            found[commit] = named
    return found


def with_trailer(repository: Repository, key: str, value: str) -> list[str]:
    """Commits in HEAD's history with exactly this trailer, newest first."""
    shape = f"--format=%H%x01%(trailers:key={key},valueonly,unfold,separator=%x02)"
    done = repository.git.run("log", "--no-show-signature", "-z", "--fixed-strings", f"--grep={key}: {value}", shape, "HEAD", "--")
    found = []
    for record in done.fields():
        commit, _, values = record.decode("utf-8", "replace").partition("\x01")
        if value in (v.strip() for v in values.split("\x02")):
            found.append(commit)
    return found


def _as_one(repository: Repository, iteration: Accepted, commit: str) -> str:
    """One commit that is the whole iteration. With `[accept] commits = "keep"` the agent's own commits lie below the
    accepting one; then a commit of the same tree on top of pre_ref stands for all of them (in no branch, never pushed)."""
    git = repository.git
    parents = git.text("rev-list", "--parents", "-n", "1", commit, "--").split()[1:]
    if not iteration.pre_ref or parents == [iteration.pre_ref] or commit != iteration.commit:
        if len(parents) > 1:
            raise GitError(f"{commit[:12]} is a merge, and where the iteration began is not known", "Use `git revert -m`.")
        return commit
    if not git.run("merge-base", "--is-ancestor", iteration.pre_ref, commit, check=False).ok:
        return commit
    return git.text("commit-tree", f"{commit}^{{tree}}", "-p", iteration.pre_ref, "-m", f"Iteration {iteration.iteration_id}")


def _message(repository: Repository, iteration: Accepted, commit: str) -> bytes:
    subject = repository.git.text("log", "--no-show-signature", "-1", "--format=%s", commit, "--")
    return (
        f'Revert "{subject}"\n\n'
        f"This reverts commit {commit},\nwhich accepted iteration {iteration.iteration_id}.\n\n"
        f"{TRAILER}: {iteration.iteration_id}\n"
    ).encode("utf-8", "surrogateescape")
