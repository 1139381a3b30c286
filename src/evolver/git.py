"""The one gateway to git: pinned flags, scrubbed environment, bytes in and out. The only module that imports GitPython.

git is always told which repository it works on, so that a `.git` an agent deleted cannot make it find a parent repository,
and nothing a repository can be made to run (hooks, fsmonitor) runs (hazards 24, 26, 27, 50).
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable, Mapping, MutableMapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, BinaryIO

from evolver.errors import GitError, PreflightError

# A hook that starts evolver leaks GIT_DIR and GIT_INDEX_FILE (hazard 50); of what git reads from the environment only
# what says who commits, which configuration a person chose, or how they are reached, may stay. (A hook's git hands its `-c` on as
# GIT_CONFIG_PARAMETERS; it never sets the others.)
_HARMLESS = frozenset(
    {
        "GIT_AUTHOR_NAME",
        "GIT_AUTHOR_EMAIL",
        "GIT_COMMITTER_NAME",
        "GIT_COMMITTER_EMAIL",
        "GIT_ASKPASS",
        "GIT_ATTR_NOSYSTEM",
        "GIT_CONFIG_COUNT",
        "GIT_CONFIG_GLOBAL",
        "GIT_CONFIG_NOSYSTEM",
        "GIT_CONFIG_SYSTEM",
        "GIT_EDITOR",
        "GIT_PAGER",
        "GIT_SSH",
        "GIT_SSH_COMMAND",
        "GIT_TERMINAL_PROMPT",
    }
)
_CONFIG_PAIR = ("GIT_CONFIG_KEY_", "GIT_CONFIG_VALUE_")
_PINNED = (
    "core.hooksPath=/dev/null",
    "core.fsmonitor=false",
    "core.untrackedCache=false",
    "core.trustctime=true",
    "core.checkStat=default",
    "core.quotePath=false",
    "core.safecrlf=false",  # `true` refuses to hash a file with mixed line ends: it could then be neither judged nor kept
    "core.splitIndex=false",  # an index of ours must stand alone, without a shared half in the user's git folder
    "submodule.recurse=false",
    "gc.auto=0",
    "maintenance.auto=false",
    "commit.gpgSign=false",
    "diff.external=",
    "i18n.commitEncoding=UTF-8",  # messages are written so,
    "i18n.logOutputEncoding=UTF-8",  # and read so
    "log.showSignature=false",  # what gpg says would stand between the lines that are parsed
)


def scrub(environ: MutableMapping[str, str]) -> None:
    """Remove every GIT_* variable that steers git. GitPython starts from `os.environ`, so this must be done there."""
    for name in [n for n in environ if n.startswith("GIT_") and n not in _HARMLESS and not n.startswith(("GIT_PYTHON_", *_CONFIG_PAIR))]:
        del environ[name]


def chosen_config(environ: Mapping[str, str]) -> dict[str, str]:
    """The variables by which a person says which configuration git reads."""
    return {n: v for n, v in environ.items() if n.startswith("GIT_CONFIG_") and (n in _HARMLESS or n.startswith(_CONFIG_PAIR))}


@dataclass(frozen=True)
class Done:
    """How a git command ended."""

    code: int
    out: bytes
    err: bytes

    @property
    def ok(self) -> bool:
        return self.code == 0

    @property
    def text(self) -> str:
        return os.fsdecode(self.out).strip()

    def fields(self) -> list[bytes]:
        """NUL-separated output."""
        return [f for f in self.out.split(b"\0") if f]


@dataclass(frozen=True)
class Git:
    """git, bound to one worktree and its git folder."""

    root: Path
    git_dir: Path
    program: str = "git"
    config: Path | None = None  # the copy of the system's and the user's config taken when the run started
    options: tuple[str, ...] = ()  # further `-c` values
    work_tree: Path | None = None  # when another folder plays the worktree
    hooks: bool = False  # the user asked for his hooks to run

    @classmethod
    def at(cls, root: Path, git_dir: Path, **more: Any) -> Git:
        scrub(os.environ)
        # Not one from the worktree: with a virtual environment active, an attempt can put a `git` before the real one.
        folders = os.environ.get("PATH", os.defpath).split(os.pathsep)
        outside = [f for f in folders if f and not Path(os.path.realpath(f)).is_relative_to(root)]
        program = shutil.which("git", path=os.pathsep.join(outside))
        if program is None:
            raise PreflightError("git is not installed", "Install git 2.30 or later.")
        return cls(root, git_dir, os.path.abspath(program), **more)

    def but(self, **changes: Any) -> Git:
        return replace(self, **changes)

    def argv(self, *args: str | bytes) -> list[str]:
        options = (*_PINNED, *self.options) if not self.hooks else (*_PINNED[1:], *self.options)
        pinned = [part for option in options for part in ("-c", option)]
        tree = self.work_tree or self.root
        return [self.program, f"--git-dir={self.git_dir}", f"--work-tree={tree}", *pinned, *(os.fsdecode(a) for a in args)]

    def environment(self, more: Mapping[str, str] | None = None) -> dict[str, str]:
        env = {
            "GIT_NO_REPLACE_OBJECTS": "1",  # hazard 18
            "GIT_OPTIONAL_LOCKS": "0",
            "GIT_TERMINAL_PROMPT": "0",
            "GIT_LITERAL_PATHSPECS": "1",  # hazard 41: `:(exclude)x` is a file's name
            "GIT_NO_LAZY_FETCH": "1",
            "LC_ALL": "C",
            "LANGUAGE": "C",
        }
        if self.config is not None:
            env |= {"GIT_CONFIG_GLOBAL": str(self.config), "GIT_CONFIG_NOSYSTEM": "1"}
        return env | dict(more or {})

    def start(self, *args: str | bytes, env: Mapping[str, str] | None = None, stdin: BinaryIO | int | None = None) -> Any:
        """A running git with pipes (`cat-file --batch`)."""
        import git
        from git.cmd import Git as Gateway

        del git
        cwd = str(self.work_tree or self.root)
        # A session of its own: Ctrl-C on the terminal is for the agent; it must not kill git in mid-restore.
        return Gateway(cwd).execute(
            self.argv(*args), istream=stdin, as_process=True, env=self.environment(env), start_new_session=True
        )

    def found_from(self, folder: Path, *args: str, env: Mapping[str, str]) -> Done:
        """What the user's own git says in `folder`: it looks for the repository itself, ownership checks included."""
        from git.cmd import Git as Gateway

        argv = [self.program, "-c", "core.fsmonitor=false", *args]
        process: Any = Gateway(str(folder)).execute(argv, as_process=True, env={"LC_ALL": "C", **env}, start_new_session=True)
        out, err = process.proc.communicate()
        return Done(process.proc.returncode, out, err)

    def run(
        self,
        *args: str | bytes,
        input: bytes | None = None,
        env: Mapping[str, str] | None = None,
        check: bool = True,
    ) -> Done:
        """Raise `GitError` when `check` and git failed; its last words are in the message."""
        import subprocess

        process = self.start(*args, env=env, stdin=subprocess.PIPE if input is not None else subprocess.DEVNULL)
        proc = process.proc
        out, err = proc.communicate(input)
        done = Done(proc.returncode, out, err)
        if check and not done.ok:
            raise failure(args, done)
        return done

    def text(self, *args: str | bytes, **more: Any) -> str:
        return self.run(*args, **more).text


def failure(args: Iterable[str | bytes], done: Done) -> GitError:
    """The error for a git command that failed."""
    words = " ".join(os.fsdecode(a) for a in list(args)[:6])
    said = os.fsdecode(done.err).strip().splitlines()
    last = [line for line in said if line.startswith(("fatal:", "error:"))] or said  # not the usage hint after them
    return GitError(f"git {words}: exit {done.code}: {' / '.join(last[-3:]) or 'no message'}")
