"""The git part of a rollback: unstage, put back to HEAD, revert. Each answer is a value; git's own failures are reasons."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from evolver.changes.paths import RelativePath, shown
from evolver.errors import GitError, PreflightError
from evolver.git import Done, Git
from evolver.layout import Layout, locate
from evolver.worktree.hidden import hidden_edits
from evolver.worktree.preflight import in_progress
from evolver.worktree.room import untracked_in_the_way

NAMED = 20  # files named in one message


@dataclass(frozen=True, slots=True)
class Reverted:
    """How reverting one commit went. `reason` empty: it is reverted."""

    reason: str = ""
    conflicts: tuple[str, ...] = ()
    empty: bool = False  # nothing was left of the commit


@dataclass(frozen=True, slots=True)
class Repository:
    """The worktree a root lies in. `prefix`: the root, as seen from the worktree's top (`sub/`, or empty)."""

    layout: Layout
    git: Git
    prefix: bytes = b""

    @classmethod
    def find(cls, root: Path) -> Repository | None:
        """None: no worktree, or no git to ask."""
        try:
            layout = locate(root)
            return cls(layout, Git.at(layout.root, layout.git_dir), os.fsencode(layout.prefix + "/" if layout.prefix else ""))
        except (PreflightError, GitError):
            return None

    def problem(self) -> str:
        """Why git cannot work here (broken, or owned by somebody git does not trust); empty: it can."""
        done = self.git.run("rev-parse", "--git-dir", check=False)
        return "" if done.ok else f"git cannot be used here: {last_words(done)}"

    def full(self, path: RelativePath) -> bytes:
        return self.prefix + path.raw

    # ------------------------------------------------------------ index

    def unstage(self, path: RelativePath | None) -> str:
        """Take a path (None: everything) out of the index again; why not, or the empty string."""
        spec = self.full(path) if path is not None else self.prefix or b"."
        if not self.git.run("rev-parse", "-q", "--verify", "HEAD", check=False).ok:
            done = self.git.run("rm", "-r", "-f", "-q", "--cached", "--ignore-unmatch", "--", spec, check=False)  # nothing to restore from
            return "" if done.ok else last_words(done)
        done = self.git.run("restore", "--staged", "--", spec, check=False)
        # Never added, or committed since: there is nothing to unstage, which is what was wanted.
        return "" if done.ok or b"did not match any file" in done.err else last_words(done)

    def put_back(self, paths: Iterable[RelativePath]) -> str:
        """Make index and worktree of these paths what HEAD says; a path HEAD does not know only leaves the index."""
        wanted = {self.full(path) for path in paths}
        new = set(self.git.run("diff", "--cached", "--name-only", "-z", "--no-renames", "--diff-filter=A", "HEAD", "--").fields())
        changed = set(self.git.run("diff", "--name-only", "-z", "--no-renames", "HEAD", "--").fields())
        for names, how in ((wanted & new, ("--staged",)), (wanted & changed - new, ("--staged", "--worktree"))):
            if not names:
                continue
            spec = ("--pathspec-from-file=-", "--pathspec-file-nul")
            done = self.git.run("restore", "--source=HEAD", *how, *spec, input=b"\0".join(sorted(names)), check=False)
            if not done.ok:
                return last_words(done)
        return ""

    def edited(self) -> frozenset[bytes] | None:
        """Paths HEAD knows whose content or type in the worktree is another, also where git is told not to look: they hold
        work that no commit has. None: git cannot tell."""
        if not self.git.run("rev-parse", "-q", "--verify", "HEAD", check=False).ok:
            return frozenset()
        done = self.git.run("diff", "--name-only", "-z", "--no-renames", "--diff-filter=MT", "HEAD", "--", check=False)
        try:
            return frozenset(done.fields()) | hidden_edits(self.git) if done.ok else None
        except (GitError, OSError):
            return None

    def tracks(self, path: RelativePath) -> bool:
        """Does the index hold this path, or anything below it? When git cannot tell, yes: it is not ours to delete then."""
        done = self.git.run("ls-files", "-z", "--", self.full(path), check=False)
        return bool(done.out) or not done.ok

    def in_head(self, path: RelativePath) -> bool:
        """Does the last commit hold this path, or anything below it?"""
        return bool(self.git.run("ls-tree", "-z", "--name-only", "HEAD", "--", self.full(path), check=False).out)

    # ------------------------------------------------------------ commits

    def obstacle(self) -> str:
        """Why no commit can be reverted here at all; empty: none."""
        if (begun := in_progress(self.layout.git_dir)) is not None:  # `revert --abort` would end *that*
            return f"{begun.what} is in progress"
        if not self.git.run("symbolic-ref", "-q", "HEAD", check=False).ok:
            return "HEAD is detached"
        if not self.git.run("rev-parse", "-q", "--verify", "HEAD^{commit}", check=False).ok:
            return "there is no commit yet"
        return ""

    def resolve(self, text: str) -> tuple[str, str]:
        """The full id of a commit below HEAD, and why there is none. Never a ref: an agent may call a branch `abc123`."""
        found = self.git.run("rev-parse", f"--disambiguate={text.lower()}", check=False).text.split()
        kinds = self.git.run(
            "cat-file", "--batch-check=%(objectname) %(objecttype)", input="\n".join(found).encode(), check=False
        )
        commits = [line.split()[0] for line in kinds.text.splitlines() if line.endswith(" commit")]
        if not commits:
            return "", "commit not found"
        if len(commits) > 1:
            return "", f"the id is ambiguous ({len(commits)} commits)"
        if not self.git.run("merge-base", "--is-ancestor", commits[0], "HEAD", check=False).ok:
            return "", "not in the history of the current branch"
        return commits[0], ""

    def added_by(self, commit: str) -> set[bytes]:
        """Paths a commit brought into being."""
        return self.touched_by(commit, "--diff-filter=A")

    def touched_by(self, commit: str, *flags: str) -> set[bytes]:
        """Paths a commit changed, against each of its parents."""
        always = ("-r", "-m", "--root", "--no-commit-id", "--no-renames", "--name-only", "-z")
        return set(self.git.run("diff-tree", *always, *flags, commit, "--").fields())

    def cut_off(self, commit: str) -> str:
        """Why a commit cannot be told from its parent: in a shallow clone the last one counts as the first, and reverting it
        would delete every file there is. Empty: it can."""
        try:
            ends = (self.layout.common_dir / "shallow").read_text(encoding="ascii", errors="replace").split()
        except (FileNotFoundError, NotADirectoryError):
            return ""
        except OSError as error:
            return f"`shallow` cannot be read: {error.strerror}"
        return "the commit before it is not here (a shallow clone): `git fetch --unshallow` gets it" if commit in ends else ""

    def revert(self, commit: str) -> Reverted:
        """One commit that undoes `commit`, or everything as it was and the reason."""
        staged = self.git.run("diff", "--cached", "--name-only", "-z", "--no-renames", "HEAD", "--").fields()
        if staged:  # git refuses as well; asked first, since `abort` relies on an index that held nothing of a person's
            return Reverted(f"other changes are staged: {', '.join(shown(os.fsdecode(n)) for n in staged[:NAMED])}")
        before = self.git.text("rev-parse", "HEAD")
        if names := self.in_the_way(commit):
            return Reverted(standing(names))
        done = self.start_revert("--no-edit", commit)
        if done.ok:
            return Reverted()
        conflicts = self.conflicts()
        self.abort(before)
        if conflicts:
            return Reverted(f"Merge conflict in {', '.join(conflicts[:NAMED])}", conflicts)
        if b"error:" not in done.err and b"fatal:" not in done.err:
            # git has no word of its own for "nothing to commit": it prints a status, worded by what else lies about.
            return Reverted("nothing of it is left", empty=True)
        return Reverted(refusal_of(done))

    def start_revert(self, how: str, commit: str) -> Done:
        """`git revert`, once `in_the_way` found nothing. Without guessing that a folder was renamed: that would write to paths which
        neither HEAD nor the commit has, so which nobody looked at."""
        git = self.git.but(options=(*self.git.options, "merge.directoryRenames=false"))
        return git.run("revert", how, commit, check=False)

    def in_the_way(self, commit: str) -> tuple[str, ...]:
        """Files git does not track where reverting `commit` brings paths back. It refuses by itself only where they are not ignored."""
        always = ("-r", "-m", "--root", "--no-commit-id", "--no-renames", "--raw", "--diff-filter=DT", "-z")
        fields = self.git.run("diff-tree", *always, commit, "--").out.split(b"\0")
        back = {os.fsdecode(path): meta.startswith(b":160000") for meta, path in zip(fields[::2], fields[1::2], strict=False)}
        if not back:
            return ()
        tracked = {os.fsdecode(name) for name in self.git.run("ls-files", "-z").fields()}
        gitlinks = {path for path, is_gitlink in back.items() if is_gitlink}
        found = untracked_in_the_way(self.layout.root, back.keys() - gitlinks, gitlinks, tracked.__contains__)
        # Where case does not count, a file that was renamed by its case alone is the tracked one.
        folded = {name.casefold(): name for name in tracked} if found else {}
        return tuple(p for p in found if not self._same_file(p, folded.get(p.casefold())))

    def _same_file(self, path: str, other: str | None) -> bool:
        try:
            return other is not None and os.path.samestat((self.layout.root / path).lstat(), (self.layout.root / other).lstat())
        except OSError:
            return False

    def refusal(self, done: Done) -> str:
        """Why a revert that met no conflict failed."""
        return refusal_of(done)

    def conflicts(self) -> tuple[str, ...]:
        names = self.git.run("diff", "--name-only", "-z", "--diff-filter=U", "--", check=False).fields()
        return tuple(shown(os.fsdecode(name)) for name in names)

    def abort(self, before: str) -> None:
        """End a revert half-way; the index must have been HEAD's when it began. Raise `GitError` when HEAD is not `before`."""
        if any((self.layout.git_dir / name).exists() for name in ("REVERT_HEAD", "sequencer")):
            self.git.run("revert", "--abort")
        elif not self.git.run("diff", "--cached", "--quiet", "HEAD", "--", check=False).ok:
            # Merged, but not committed (no identity), or `revert --no-commit`: git knows of nothing to abort.
            self.git.run("reset", "--merge", "HEAD", "--")
        if self.git.text("rev-parse", "HEAD") != before:
            raise GitError("a failed `git revert` moved HEAD", f"It was {before}.")


def standing(names: tuple[str, ...]) -> str:
    """Why a revert that would overwrite `names` was not begun."""
    return f"files that git does not track are in the way, move them away first: {', '.join(shown(n) for n in names[:NAMED])}"


def last_words(done: Done) -> str:
    lines = [line for line in os.fsdecode(done.err).splitlines() if line.strip() and not line.startswith("hint:")]
    return shown(lines[-1].removeprefix("error: ").removeprefix("fatal: ")) if lines else f"git exit {done.code}"


def refusal_of(done: Done) -> str:
    """Why git did not even begin: the first line, and the files it names below it."""
    lines = [line for line in os.fsdecode(done.err).splitlines() if not line.startswith("hint:")]
    files = [shown(line.strip()) for line in lines if line.startswith("\t")]
    told = [line for line in lines if line.strip() and not line.startswith("\t")]
    if not told:
        return f"git exit {done.code}"
    first = next((line for line in told if line.startswith(("error: ", "fatal: "))), told[0])
    first = shown(first.removeprefix("error: ").removeprefix("fatal: ").rstrip(":"))
    return f"{first}: {', '.join(files[:NAMED])}" if files else first
