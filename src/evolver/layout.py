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

OWNER_FILE = "owner"  # in the lifeboat: root and git folders of the worktree it belongs to, each ended by a NUL


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
    def git_dir_id(self) -> str:
        """Device and inode of the git folder; empty when it is gone."""
        try:
            st = self.git_dir.stat()
        except OSError:
            return ""
        return f"{st.st_dev}:{st.st_ino}"

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
            return Path(os.fsdecode(self.stream_note.read_bytes().removesuffix(b"\n")))
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
    return Path(os.path.realpath(path.parent / os.fsdecode(text[8:].rstrip(b"\r\n"))))


def baselines_in(vault: Path) -> frozenset[str]:
    """The baselines a vault holds: while a run is active, died or is held, what tells its repository from any other."""
    try:
        return frozenset(name for name in os.listdir(vault / "baselines") if not name.endswith(".tmp"))
    except OSError:
        return frozenset()


def git_dirs(root: Path) -> tuple[Path, Path] | None:
    """The folders `.git` in `root` leads to: this worktree's, and the common one. None: it leads to no git folder."""
    dot = root / ".git"
    git_dir: Path | None = Path(os.path.realpath(dot)) if dot.is_dir() else _read_gitfile(dot) if dot.is_file() else None
    if git_dir is None or not git_dir.is_dir():
        return None
    head = (git_dir / "HEAD").is_symlink() or (git_dir / "HEAD").exists()
    # Without HEAD, which an attempt may have removed, git would go on to a parent repository; a baseline of ours tells better.
    if not head and not baselines_in(git_dir / "evolver" / "vault"):
        return None
    return git_dir, common_of(git_dir)


def common_of(git_dir: Path) -> Path:
    """The folder that a worktree's git folder shares with others; itself when it is the only one."""
    try:
        return Path(os.path.realpath(git_dir / os.fsdecode((git_dir / "commondir").read_bytes().rstrip(b"\r\n"))))
    except OSError:
        return git_dir


def owner_lines(layout: Layout) -> bytes:
    """What the lifeboat says of whose it is. NUL-separated: the name of a folder may hold a newline."""
    return b"".join(os.fsencode(path) + b"\0" for path in (layout.root, layout.git_dir, layout.common_dir))


def _from_lifeboat(root: Path, env: Mapping[str, str], prefix: str) -> Layout | None:
    boat = lifeboat_of(root, env)
    try:
        fields = (boat / OWNER_FILE).read_bytes().split(b"\0")
    except OSError:
        return None
    if len(fields) < 4 or os.fsdecode(fields[0]) != str(root):
        return None
    named = Layout(root, Path(os.fsdecode(fields[1])), Path(os.fsdecode(fields[2])), boat, prefix)
    dirs = git_dirs(root)
    if dirs is not None and dirs[0] != named.git_dir and not named.git_dir.exists():
        found = Layout(root, *dirs, boat, prefix)
        if baselines_in(found.vault) & baselines_in(boat / "vault"):
            return found  # git's folder was moved, and the vault with it (`git worktree repair`, a separate git folder)
    return named


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
        dirs = git_dirs(root)
        if dirs is not None:
            return Layout(root, *dirs, lifeboat_of(root, env), prefix)
        if (root / "HEAD").is_file() and (root / "objects").is_dir() and (root / "refs").is_dir():
            raise PreflightError(f"{root} is a bare repository or a git folder", "Run evolver in a worktree of it.")
    raise PreflightError(f"{start} is not in a git worktree", "Run `git init` and commit once, or give a worktree with -C.")
