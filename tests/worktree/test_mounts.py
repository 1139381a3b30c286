"""A file system that an attempt mounts over the user's files hides them: told, never called restored; what the user mounted stays."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from evolver.worktree.mounts import differences, inside
from worktree.test_faults import full

INSIDE = r"""
import json, pathlib, sys
from oracle import Snapshot, differences
from support import Repo
top, setup, agent, judge, after = sys.argv[1:]
repo = Repo.make(pathlib.Path(top))
repo.sh(setup)
before = Snapshot.of(repo.root)
done = repo.run(agent, judge, "--dirty", "keep", "--rollback", "hard")
repo.sh(after)
told = {"code": done.code, "text": done.text}
again = repo.evolver("resume", "--rollback", "hard") if done.code == 4 else done
told["again"], told["wrong"] = again.code, differences(before, Snapshot.of(repo.root))
print("TOLD" + json.dumps(told))
"""


def in_namespace(root: Path, setup: str, agent: str, judge: str, after: str) -> dict[str, Any]:
    done = subprocess.run(
        ["unshare", "-Urm", sys.executable, "-c", INSIDE, str(root), setup, agent, judge, after],
        env=os.environ | {"PYTHONPATH": str(Path(__file__).parents[1])},
        capture_output=True, text=True, timeout=100, check=False,
    )  # fmt: skip
    found = re.search(r"^TOLD(.*)$", done.stdout, re.M)
    assert found, done.stdout + done.stderr
    return dict(json.loads(found[1]))


@full
@pytest.mark.parametrize("judge", ["true", "false"])
@pytest.mark.parametrize(
    ("mount", "point"),
    [("mount -t tmpfs none src && echo x >src/x", "src"), ("echo x >/tmp/x; mount --bind /etc/hostname src/a.py", "src/a.py")],
)
def test_what_an_attempt_mounts_is_named_and_never_accepted(tmp_path: Path, mount: str, point: str, judge: str) -> None:
    told = in_namespace(tmp_path / "r", "true", mount, judge, f"umount {point}")
    assert told["code"] == 4, told
    assert f"{point} has another file system mounted over it" in told["text"], told
    assert told["again"] == 0 and told["wrong"] == [], told


@full
def test_a_mount_of_the_user_is_restored_like_any_folder(tmp_path: Path) -> None:
    setup = "mkdir 'data dir' && mount -t tmpfs none 'data dir' && echo mine >'data dir/mine'"
    told = in_namespace(tmp_path / "r", setup, "rm 'data dir/mine'; echo z >>src/a.py; echo z >'data dir/z'", "false", "true")
    assert told["code"] == 1 and told["wrong"] == [], told


@full
def test_unmounting_what_the_user_had_mounted_is_told(tmp_path: Path) -> None:
    setup = "mkdir data && mount -t tmpfs none data && echo mine >data/mine"
    told = in_namespace(tmp_path / "r", setup, "umount data; echo z >>src/a.py", "false", "mount -t tmpfs none data")
    assert told["code"] == 4 and "data is no longer a mount point" in told["text"], told
    assert told["again"] == 0 and told["wrong"] == [], told


def test_the_table_is_read_with_odd_names_and_other_folders_left_out() -> None:
    assert "proc" in inside(Path("/")) or not Path("/proc/self/mountinfo").exists()
    assert inside(Path("/no/such/folder")) == frozenset()
    assert differences(frozenset({"a"}), frozenset({"b"})) == [
        "b has another file system mounted over it (`umount` it)",
        "a is no longer a mount point",
    ]
