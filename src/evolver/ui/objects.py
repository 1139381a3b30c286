"""What git still holds of an iteration: subjects, diffs, step output. Objects only; nothing a repository planted is run."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from evolver import clone
from evolver.git import Done, Git
from evolver.layout import Layout
from evolver.ui.views import IterationView

# A diff driver or a text converter of the repository's is a program of its choice.
_SAFE = ("--no-ext-diff", "--no-textconv", "--no-color")
_STAT = ("--stat=78",)
_PATCH = ("--patch", "--binary", "--full-index")
TAIL = 256 * 1024  # bytes of a step's log that are looked at


@dataclass(frozen=True, slots=True)
class Objects:
    """Read access to one repository."""

    git: Git
    beside: Git | None = None  # the clone of isolated runs: what has not landed is there alone

    @classmethod
    def of(cls, layout: Layout) -> Objects:
        cloned = clone.find(layout)
        return cls(
            Git.at(layout.root, layout.git_dir), Git.at(cloned.root, cloned.git_dir) if cloned is not None else None
        )

    def _run(self, *args: str, check: bool = True) -> Done:
        more = {"GIT_ALTERNATE_OBJECT_DIRECTORIES": str(self.beside.git_dir / "objects")} if self.beside is not None else {}
        return self.git.run(*args, env=more, check=check)

    def commit(self, name: str) -> str | None:
        """The commit's id; None when it is gone."""
        for git in (self.git, self.beside):
            if git is not None:
                done = git.run("rev-parse", "--verify", "--quiet", "--end-of-options", f"{name}^{{commit}}", check=False)
                if done.ok:
                    return done.text
        return None

    def show(self, name: str) -> tuple[str, str] | None:
        """Subject and diff of a commit; None when it is gone."""
        commit = self.commit(name)
        if commit is None:
            return None
        subject = self._run("show", "--no-patch", "--format=%s", commit, "--").out.decode(errors="replace").strip()
        return subject, self._run("show", "--format=", *_SAFE, commit, "--").out.decode(errors="replace")

    def diff(self, old: str, new: str, *, stat: bool = False) -> bytes:
        """Between two commits' trees, as `git apply` takes it."""
        return self._run("diff", *(_STAT if stat else _PATCH), *_SAFE, old, new, "--").out

    def result(self, iteration: IterationView) -> str | None:
        """The commit that holds what the iteration made, wherever it was kept; None when nothing was kept."""
        for name in (iteration.commit, iteration.attempt_ref, iteration.stash_ref):
            if name and (found := self.commit(name)) is not None:
                return found
        return None

    def attempt_diff(self, iteration: IterationView, *, stat: bool = False) -> bytes | None:
        """What the iteration changed, against its baseline; None when nothing was kept."""
        made = self.result(iteration)
        if made is None or self.commit(iteration.pre_ref) is None:
            return None
        text = self.diff(iteration.pre_ref, made, stat=stat)
        # A stash entry keeps untracked files in a third parent of its own.
        untracked = self.commit(f"{made}^3") if iteration.stash_ref and made == self.commit(iteration.stash_ref) else None
        if untracked is not None:
            how = _STAT if stat else _PATCH
            text += self._run("diff-tree", "--root", "--no-commit-id", "-r", *how, *_SAFE, untracked, "--").out
        return text


def output_tail(log: str, limit: int = TAIL) -> str:
    """The end of a step's output; empty when the log is gone."""
    try:
        with Path(log).open("rb") as file:
            size = file.seek(0, 2)
            file.seek(max(0, size - limit))
            return file.read().decode(errors="replace")
    except (OSError, ValueError):
        return ""
