"""The loop's own worktree: a command's changes are taken back to the attempt as it stood, to the byte."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from evolver.definition import EffectSection

from .conftest import World, git


def effect(run: str) -> EffectSection:
    return EffectSection(name="generate", action="git-worktree", when="before_validate", run=run)


def picture(root: Path) -> dict[str, tuple[int, bytes]]:
    """Every path with type, mode and content; the repository's HEAD, index listing and branches."""
    found: dict[str, tuple[int, bytes]] = {}
    for path in sorted(root.rglob("*")):
        name = os.fsencode(path.relative_to(root)).decode("latin-1")
        if name.split("/")[0] == ".git":
            continue
        mode = path.lstat().st_mode
        content = os.fsencode(path.readlink()) if path.is_symlink() else path.read_bytes() if stat.S_ISREG(mode) else b""
        found[name] = (mode, content)
    for what in (("symbolic-ref", "-q", "HEAD"), ("rev-parse", "HEAD"), ("ls-files", "-s")):
        found["git " + what[0]] = (0, git(root, *what).encode())
    return found


@pytest.fixture
def attempt(world: World) -> World:
    """An attempt in the tree: edits, untracked files, odd names, an ignored folder."""
    root = world.root
    (root / ".gitignore").write_text("ignored/\n")
    (root / "file.txt").write_text("edited\r\nby the agent")
    (root / "new").mkdir()
    (root / "new/a file\nwith a newline").write_bytes(b"\xff\x00")
    (root / os.fsdecode(b"not-utf8-\xff")).write_text("x")
    (root / "empty").mkdir()
    (root / "link").symlink_to("new")
    (root / "ignored").mkdir()
    (root / "ignored/cache").write_text("cache")
    (root / "run.sh").write_text("#!/bin/sh\n")
    (root / "run.sh").chmod(0o755)
    git(root, "add", "file.txt")
    return world


DAMAGE = {
    "edits": "echo more >> file.txt",
    "adds": "mkdir -p gen/deep && echo x > gen/deep/file && echo y > top",
    "removes": "rm -rf new empty",
    "type changes": "rm -rf new && echo file > new; rm link && mkdir link && echo x > link/y",
    "modes": "chmod 600 run.sh; chmod 700 new",
    "links": "ln -sfn empty link",
    "a folder becomes a link out": "rm -rf empty && ln -s /tmp empty && echo x > link/z",
    "same size and time": "printf 'EDITED' | dd of=file.txt conv=notrunc 2>/dev/null; touch -r run.sh file.txt",
    "stages": "git add -A",
    "commits": "git add -A && git commit -qm generated",
    "switches branch": "git checkout -q -b other && git commit -q --allow-empty -m x",
    "detaches": "git checkout -q --detach",
    "newline name": "rm new/a*; echo x > \"$(printf 'b\\nc')\"",
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_failing_command_is_taken_back_to_the_attempt(attempt: World, damage: str) -> None:
    before = picture(attempt.root)
    verdict, person = attempt.runner(effect(f"{DAMAGE[damage]}; exit 3")).run("before_validate", attempt.context())
    assert verdict is not None and "(rolled back)" in verdict.reason and not person
    assert picture(attempt.root) == before
    assert (attempt.root / "ignored/cache").read_text() == "cache"


@pytest.mark.parametrize("damage", ["edits", "adds", "type changes", "commits"])
def test_a_rejected_one_is_taken_back_by_another_process(attempt: World, damage: str) -> None:
    before = picture(attempt.root)
    assert attempt.runner(effect(DAMAGE[damage])).run("before_validate", attempt.context()) == (None, False)
    assert picture(attempt.root) != before
    assert attempt.runner().compensate(attempt.iteration).ok
    assert picture(attempt.root) == before
    assert attempt.runner().compensate(attempt.iteration).ok


def test_a_failing_command_that_changed_nothing_rolls_nothing_back(attempt: World) -> None:
    verdict, person = attempt.runner(effect("exit 3")).run("before_validate", attempt.context())
    assert verdict is not None and "nothing was rolled back" in verdict.reason and not person


def test_it_needs_no_approval(attempt: World) -> None:
    attempt.runner(effect("true"), approve="ask").preflight()
    attempt.runner(effect("true"), approve="never").preflight()


def test_a_worktree_too_large_to_copy_stops_the_command(attempt: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("evolver.effects.snapshot.MOST_FILES", 3)
    verdict, _ = attempt.runner(effect("touch ran")).run("before_validate", attempt.context())
    assert verdict is not None and "cannot be kept aside" in verdict.reason
    assert not (attempt.root / "ran").exists()
