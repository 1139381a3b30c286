"""Commits a passing attempt: one commit on the baseline's branch whose tree is what was validated.

Everything that can be done before is done before; the one ref transaction at the end is the instant of acceptance. Killed before it,
recovery rolls back; killed after it, nothing is left to do but to say so.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from evolver.crash import crash_point
from evolver.errors import GitError
from evolver.worktree.ignorerules import below
from evolver.worktree.inspect import Inspection
from evolver.worktree.manifest import lookup
from evolver.worktree.named import hook_places
from evolver.worktree.objects import TemporaryIndex, commit_tree
from evolver.worktree.refs import Refs
from evolver.worktree.restore import refresh
from evolver.worktree.site import Site
from evolver.worktree.snapshot import Snapshot
from evolver.worktree.state import StateBack, write_beside

HOOKS = ("pre-commit", "prepare-commit-msg", "commit-msg")


class AcceptRefused(Exception):
    """`accept` cannot commit this attempt although it passed; `reason` is the verdict's. The attempt is to be rejected."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


@dataclass(frozen=True)
class Accepting:
    """One acceptance. `commits`: the agent's own, oldest first."""

    site: Site
    snapshot: Snapshot
    found: Inspection
    quiesced: Refs
    commits: tuple[str, ...]
    left: frozenset[str]
    shared_stash: bool
    unclear: Mapping[str, str]  # refs to be put back that somebody else may have moved
    taken_over: str  # who has the branch now, in words; empty: it is ours

    def run(self, message: str, how: Literal["squash", "keep"], *, hooks: bool) -> str:
        """The commit's id. Raise `AcceptRefused`."""
        self._refuse(how)
        crash_point("accept.before")
        if hooks:
            self._refuse_own_hooks()
            message = self._hooks(message)
        try:
            commit = commit_tree(self.site.git, self.found.tree, [self._parent(how)], message)
            crash_point("accept.commit")
            self._index()
        except GitError as error:
            raise AcceptRefused(f"the commit could not be made: {error.message}") from error
        crash_point("accept.index")
        self._refs(commit)
        crash_point("accept.ref")
        refresh(self.site, (p for p, staged in self.found.wanted.items() if staged.mode))
        if hooks:
            self._hook("post-commit")
        crash_point("accept.after")
        return commit

    def _refuse(self, how: str) -> None:
        if self.found.blocked:
            names = ", ".join(repr(p) for p in self.found.blocked[:3])
            raise AcceptRefused(f"the attempt touches uncommitted changes of yours: {names}")
        if self.found.refused:
            raise AcceptRefused(self.found.refused)
        branch = self.snapshot.refs.branch or "HEAD"
        if self.taken_over:
            raise AcceptRefused(self.taken_over)
        if self.snapshot.refs.refs.get(branch, "").startswith("ref: "):
            raise AcceptRefused(f"{branch} is a symbolic ref, no branch of its own")
        if how == "keep" and (users := self._users_in_commits()):
            names = ", ".join(repr(p) for p in users[:3])
            raise AcceptRefused(f"the attempt's own commits, which are to be kept, hold uncommitted work of yours: {names}")

    def _users_in_commits(self) -> list[str]:
        """Paths of the agent's commits that held edits of the user, or were his and untracked: `git add -A` puts them into history."""
        last = self._parent("keep")
        if last == self.snapshot.pre_ref:
            return []
        listed = self.site.git.run("rev-list", f"{self.snapshot.pre_ref}..{last}", "--").out
        done = self.site.git.run("diff-tree", "-r", "-z", "-m", "--root", "--no-renames", "--no-commit-id", "--name-only", "--stdin", input=listed)
        paths = sorted({os.fsdecode(field) for field in done.fields()})
        return [p for p in paths if p in self.snapshot.dirty or (lookup(self.snapshot.work, p) and not self.snapshot.tracked(p))]

    def _parent(self, how: str) -> str:
        if how == "keep" and self.commits:
            last = self.commits[-1]
            if self.site.git.run("merge-base", "--is-ancestor", self.snapshot.pre_ref, last, check=False).ok:
                return last
        return self.snapshot.pre_ref

    def _index(self) -> None:
        """The user's own index (flags, staged work) plus what the commit changes."""
        zero = "0" * (2 * self.snapshot.hash_size)
        with TemporaryIndex(self.site.git, self.site.boat.folder / "accept-index", self.snapshot.index.raw) as temporary:
            temporary.stage(self.found.wanted, zero)
            # Writes the cache-tree extension too, so that the user's next commit is as cheap as before.
            if not self.snapshot.staged:
                temporary.write_tree(missing_ok=self.snapshot.partial)
            data = temporary.path.read_bytes()
        entry = self.snapshot.private[""].get("index")
        write_beside(self.site.private, "index", data, (entry.mode if entry is not None else 0o644) & 0o777)

    def _refs(self, commit: str) -> None:
        branch = self.snapshot.refs.branch or "HEAD"
        state = StateBack(
            self.site,
            self.snapshot,
            self.quiesced,
            self.left,
            self.shared_stash,
            branch_to=(branch, commit),
            unclear=self.unclear,
            modules=self.found.modules,
        )
        state.run()
        lost = [problem for problem in state.problems if problem not in state.foreign]
        now = self.site.git.run("rev-parse", "--verify", "--quiet", "HEAD", check=False).text
        if now == commit and lost:
            # Something of the user's did not come back. Rejected, the attempt is undone as a whole, or the tree is held.
            raise AcceptRefused(f"the commit was made, but what the attempt did to the repository could not be undone: {lost[0]}")
        if now != commit:
            problem = state.problems[0] if state.problems else "HEAD does not point at it"
            raise AcceptRefused(f"the branch could not be moved to the commit: {problem}")

    # ------------------------------------------------------------ hooks, when asked for

    def _hooks(self, message: str) -> str:
        file = self.site.private / "COMMIT_EDITMSG"
        before = file.read_bytes() if file.exists() else None
        try:
            file.write_bytes(message.encode("utf-8", "surrogateescape"))
            with TemporaryIndex(self.site.git, self.site.boat.folder / "hook-index") as temporary:
                temporary.read_tree(self.found.tree)
                for name in HOOKS:
                    arguments = () if name == "pre-commit" else ("--", str(file))
                    self._hook(name, *arguments, env=temporary.env, needed=True)
                if temporary.write_tree() != self.found.tree:
                    raise AcceptRefused("a hook changed what was validated")
            return file.read_bytes().decode("utf-8", "surrogateescape")
        finally:
            if before is None:
                file.unlink(missing_ok=True)
            else:
                file.write_bytes(before)

    def _refuse_own_hooks(self) -> None:
        """`.git/hooks` is guarded; hooks that lie in the worktree (core.hooksPath, a link to a script) an attempt can write."""
        changed = set(self.found.changed) | set(self.found.wanted)
        for place in hook_places(self.site, (*HOOKS, "post-commit")):
            theirs = sorted(p for p in changed if p == place or p.startswith(f"{place}/"))
            if theirs:
                raise AcceptRefused(f"the attempt changed hooks that would run: {', '.join(map(repr, theirs[:3]))}")
            if below(place, self.snapshot.opaque) is not None:
                raise AcceptRefused(f"the hooks in {place!r} are left out of the baseline: whether the attempt changed them is not known")

    def _hook(self, name: str, *arguments: str, env: dict[str, str] | None = None, needed: bool = False) -> None:
        """The user's own hook (the guard has put hooks and config back)."""
        git = self.site.git.but(hooks=True)
        done = git.run("hook", "run", "--ignore-missing", name, *arguments, env=env, check=False)
        if needed and not done.ok:
            last = os.fsdecode(done.err).strip().splitlines()
            raise AcceptRefused(f"the {name} hook refused: {last[-1] if last else f'exit {done.code}'}")
