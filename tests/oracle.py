"""What a user could call "my repository", read by an independent hand: a walk of its own and git's plumbing.

    before = Snapshot.of(repo); …; assert differences(before, Snapshot.of(repo)) == []

Shares no code with evolver. Allowed to differ, by the contract: mtimes, new objects, refs/evolver/*, reflogs, ORIG_HEAD.
"""

from __future__ import annotations

import hashlib
import os
import stat
import subprocess
from dataclasses import dataclass
from pathlib import Path

PASSING = {"HEAD", "ORIG_HEAD", "COMMIT_EDITMSG", "FETCH_HEAD", "REBASE_HEAD"}
CONTROL = ("config", "config.worktree", "info/exclude", "info/attributes", "info/sparse-checkout", "info/grafts", "shallow")


def _git(folder: Path, *words: str) -> tuple[int, bytes]:
    env = {k: v for k, v in os.environ.items() if not k.startswith("GIT_")} | {
        "GIT_OPTIONAL_LOCKS": "0",
        "GIT_CONFIG_NOSYSTEM": "1",
    }
    done = subprocess.run(
        ["git", "-c", "core.fsmonitor=false", "-c", "core.hooksPath=/dev/null", *words],
        cwd=folder,
        env=env,
        capture_output=True,
        check=False,
    )
    return done.returncode, done.stdout


def _walk(fd: int, rel: bytes, seen: dict[str, object], nested: list[bytes]) -> None:
    for name in sorted(os.listdir(os.fsencode(f"/proc/self/fd/{fd}"))):
        path = rel + b"/" + name if rel else name
        if path == b".git":
            continue
        info = os.stat(name, dir_fd=fd, follow_symlinks=False)
        key = f"path {path!r}" if len(path) < 3000 else "path (too long)"
        mode = oct(stat.S_IMODE(info.st_mode))
        if name == b".git":
            nested.append(rel)
        if stat.S_ISDIR(info.st_mode):
            seen[key] = ("dir", mode)
            if name == b".git":
                continue
            child = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=fd)
            try:
                _walk(child, path, seen, nested)
            finally:
                os.close(child)
        elif stat.S_ISLNK(info.st_mode):
            seen[key] = ("link", os.readlink(name, dir_fd=fd))
        elif stat.S_ISREG(info.st_mode):
            with open(os.open(name, os.O_RDONLY | os.O_NOFOLLOW, dir_fd=fd), "rb") as file:
                seen[key] = ("file", mode, hashlib.sha256(file.read()).hexdigest())
        else:
            seen[key] = ("special", oct(stat.S_IFMT(info.st_mode)), mode)


def _repository(folder: Path, label: str, seen: dict[str, object]) -> None:
    code, out = _git(folder, "rev-parse", "--absolute-git-dir")
    if code:
        seen[f"{label} git dir"] = "unreadable"
        return
    git_dir = Path(os.fsdecode(out.strip()))
    for key, words in {
        "HEAD": ("symbolic-ref", "-q", "HEAD"),
        "HEAD commit": ("rev-parse", "-q", "--verify", "HEAD"),
        "index": ("ls-files", "-s", "-v", "-t", "-z"),
        "resolve-undo": ("ls-files", "--resolve-undo", "-z"),
        "stash": ("stash", "list", "--format=%H %gs"),
        "worktrees": ("worktree", "list", "--porcelain"),
    }.items():
        seen[f"{label} {key}"] = _git(folder, *words)
    refs = _git(folder, "for-each-ref", "--format=%(refname) %(objectname) %(symref)")[1].split(b"\n")
    seen[f"{label} refs"] = [r for r in refs if not r.startswith((b"refs/evolver/", b"refs/stash"))]
    flags = _git(folder, "ls-files", "--debug", "-z")[1]
    seen[f"{label} flags"] = [part for part in flags.split() if b"flags" in part or part.startswith(b"flags")]
    for name in CONTROL:
        file = git_dir / name
        seen[f"{label} {name}"] = file.read_bytes() if file.is_file() else None
    hooks = git_dir / "hooks"
    seen[f"{label} hooks"] = (
        sorted((f.name, oct(f.lstat().st_mode), f.read_bytes() if f.is_file() else b"") for f in hooks.iterdir())
        if hooks.is_dir()
        else None
    )
    seen[f"{label} in progress"] = sorted(
        n
        for n in os.listdir(git_dir)
        if n not in PASSING and (n.isupper() or n.startswith(("rebase-", "sequencer", "BISECT", "AUTO")))
    )
    seen[f"{label} locks"] = sorted(str(p.relative_to(git_dir)) for p in git_dir.rglob("*.lock") if "evolver" not in p.parts)


@dataclass(frozen=True)
class Snapshot:
    """Everything, at one moment."""

    facts: dict[str, object]

    @classmethod
    def of(cls, root: Path) -> Snapshot:
        seen: dict[str, object] = {}
        nested: list[bytes] = []
        fd = os.open(root, os.O_RDONLY | os.O_DIRECTORY)
        try:
            _walk(fd, b"", seen, nested)
        finally:
            os.close(fd)
        _repository(root, "git", seen)
        for rel in nested:
            _repository(root / os.fsdecode(rel), f"git in {rel!r}", seen)
        return cls(seen)


def differences(before: Snapshot, after: Snapshot, *, stash: bool = True) -> list[str]:
    """What differs, a line each; `stash=False` leaves the stash list out."""
    return [
        f"{key}: {str(before.facts.get(key))[:160]} -> {str(after.facts.get(key))[:160]}"
        for key in sorted(before.facts.keys() | after.facts.keys())
        if before.facts.get(key) != after.facts.get(key) and (stash or key != "git stash")
    ]
