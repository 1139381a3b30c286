"""Where things are: the worktree's root, git's folders, evolver's state. Found without running git.

Git is not asked, for two reasons: `status` must start fast, and after an agent deleted `.git` git would find a *parent*
repository and act on that one. So a lifeboat that names a worktree above us counts before `.git` does.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from evolver.errors import PreflightError

OWNER_FILE = "owner"  # in the lifeboat: root and git folder of the worktree it belongs to, one a line


@dataclass(frozen=True, slots=True)
class Layout:
    """The folders of one worktree. All absolute and real (no symlink in them)."""

    root: Path  # the worktree
    git_dir: Path  # of this (possibly linked) worktree
    common_dir: Path  # shared by linked worktrees: objects, refs, config
    lifeboat: Path  # outside the worktree: what rebuilding a lost `.git` takes
    prefix: str = ""  # where the user stands, relative to root; "" at the top

    @property
    def state(self) -> Path:
        return self.git_dir / "evolver"

    @property
    def vault(self) -> Path:
        return self.state / "vault"

    @property
    def run_lock(self) -> Path:
        return self.state / "run.lock"

    @property
    def resume_lock(self) -> Path:
        return self.state / "resume.lock"

    @property
    def reserve(self) -> Path:
        return self.state / "reserve"

    @property
    def step_logs(self) -> Path:
        return self.state / "steps"

    @property
    def stream_note(self) -> Path:
        """Where a run that is not over says which stream it writes, when that is not the usual one."""
        return self.state / "stream.path"

    def events(self, override: str | None = None) -> Path:
        """The stream's path: that of a run that died or is held, else `override` (EVOLVER_EVENTS), else in the state folder."""
        try:
            return Path(os.fsdecode(self.stream_note.read_bytes().rstrip(b"\n")))
        except OSError:
            pass
        return Path(os.path.realpath(Path(override).expanduser())) if override else self.state / "events.jsonl"


def state_home(env: Mapping[str, str]) -> Path:
    """EVOLVER_STATE_DIR, else XDG_STATE_HOME/evolver, else ~/.local/state/evolver."""
    if env.get("EVOLVER_STATE_DIR"):
        return Path(env["EVOLVER_STATE_DIR"]).expanduser().absolute()
    base = env.get("XDG_STATE_HOME") or str(Path(env.get("HOME", "~")).expanduser() / ".local/state")
    return Path(base).absolute() / "evolver"


def lifeboat_of(root: Path, env: Mapping[str, str]) -> Path:
    return state_home(env) / hashlib.sha256(os.fsencode(root)).hexdigest()[:32]


def _read_gitfile(path: Path) -> Path | None:
    """The folder a `.git` file points at (linked worktree, submodule)."""
    try:
        text = path.read_bytes()
    except OSError:
        return None
    if not text.startswith(b"gitdir: "):
        return None
    return Path(os.path.realpath(path.parent / os.fsdecode(text[8:].strip())))


def _git_dirs(root: Path) -> tuple[Path, Path] | None:
    dot = root / ".git"
    git_dir: Path | None = Path(os.path.realpath(dot)) if dot.is_dir() else _read_gitfile(dot) if dot.is_file() else None
    if git_dir is None or not git_dir.is_dir():
        return None
    if not (git_dir / "HEAD").is_symlink() and not (git_dir / "HEAD").exists():
        return None
    try:
        common = Path(os.path.realpath(git_dir / os.fsdecode((git_dir / "commondir").read_bytes().strip())))
    except OSError:
        common = git_dir
    return git_dir, common


def _from_lifeboat(root: Path, env: Mapping[str, str], prefix: str) -> Layout | None:
    boat = lifeboat_of(root, env)
    try:
        lines = (boat / OWNER_FILE).read_bytes().split(b"\n")
    except OSError:
        return None
    if len(lines) < 3 or os.fsdecode(lines[0]) != str(root):
        return None
    return Layout(root, Path(os.fsdecode(lines[1])), Path(os.fsdecode(lines[2])), boat, prefix)


def locate(start: Path, env: Mapping[str, str] = os.environ) -> Layout:
    """The worktree `start` lies in. Raise `PreflightError` when it lies in none."""
    here = Path(os.path.realpath(start))
    if not here.is_dir():
        raise PreflightError(f"{start}: no such folder", "Give an existing folder with -C.")
    for root in (here, *here.parents):
        prefix = "" if root == here else str(here.relative_to(root))
        found = _from_lifeboat(root, env, prefix)
        if found is not None:
            return found
        dirs = _git_dirs(root)
        if dirs is not None:
            return Layout(root, *dirs, lifeboat_of(root, env), prefix)
        if (root / "HEAD").is_file() and (root / "objects").is_dir() and (root / "refs").is_dir():
            raise PreflightError(f"{root} is a bare repository or a git folder", "Run evolver in a worktree of it.")
    raise PreflightError(f"{start} is not in a git worktree", "Run `git init` and commit once, or give a worktree with -C.")
