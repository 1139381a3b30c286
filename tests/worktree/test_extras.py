"""What a file has beside its bytes and its mode: extended attributes, access lists, other names. Judged by the system calls themselves."""

from __future__ import annotations

import os
import shlex
import struct
import sys
from pathlib import Path

import pytest

from oracle import Snapshot
from worktree.scene import Scene

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="extended attributes are looked at on Linux only")
ACL = "system.posix_acl_access"
NOBODY = 0xFFFFFFFF
# Owner rw, user 12 r, group -, mask r, others -: what `setfacl -m u:12:r` writes.
LIST = struct.pack("<I", 2) + b"".join(
    struct.pack("<HHI", tag, perm, who)
    for tag, perm, who in ((1, 6, NOBODY), (2, 4, 12), (4, 0, NOBODY), (0x10, 4, NOBODY), (0x20, 0, NOBODY))
)


def python(code: str) -> str:
    return f"{shlex.quote(sys.executable)} -c {shlex.quote('import os; ' + code)}"


def tagged(tmp_path: Path) -> Scene:
    scene = Scene.make(tmp_path, "echo mine >notes; echo plain >plain; mkdir sub; echo l >sub/listed; chmod 600 sub/listed")
    try:
        for name in ("notes", "src/a.py", "run.sh"):
            os.setxattr(scene.root / name, "user.tag", b"mine\0" + name.encode())
        os.setxattr(scene.root / "sub/listed", ACL, LIST)
    except OSError as error:
        pytest.skip(f"no attributes on this file system: {error}")
    scene.before = Snapshot.of(scene.root)  # an access list is part of the mode
    return scene


def seen(scene: Scene) -> dict[str, object]:
    files = [p for p in scene.root.rglob("*") if ".git" not in p.parts and p.is_file() and not p.is_symlink()]
    return {
        str(p.relative_to(scene.root)): {n: os.getxattr(p, n) for n in os.listxattr(p) if n != "security.selinux"} for p in files
    }


@pytest.mark.parametrize(
    "agent",
    [
        python("os.setxattr('src/a.py','user.tag',b'evil'); os.setxattr('plain','user.new',b'x'); os.removexattr('run.sh','user.tag')"),
        "echo z >>src/a.py; echo z >notes; rm run.sh sub/listed; echo other >plain",
        "for f in notes src/a.py sub/listed; do cp $f x; mv x $f; done",
        "chmod 640 sub/listed; chmod 600 notes; rm -r src sub",
        python(f"os.removexattr('sub/listed','{ACL}')"),
        python(f"os.setxattr('sub','system.posix_acl_default',{LIST!r})") + "; echo z >sub/listed; echo z >sub/new",
    ],
    ids=["set", "written", "copied", "modes", "list-removed", "default-list"],
)
def test_attributes_and_access_lists_come_back(tmp_path: Path, agent: str) -> None:
    scene = tagged(tmp_path)
    was = seen(scene)
    trial = scene.attempt(agent)
    assert trial.attempt.changed
    assert trial.reject().differences == ()
    assert seen(scene) == was and scene.wrong() == []
    trial = scene.attempt(agent, trial.workspace)  # a known baseline
    assert trial.reject().differences == ()
    assert seen(scene) == was and scene.wrong() == []


def test_a_tag_alone_is_nothing_to_commit_and_stays_with_an_accepted_file(tmp_path: Path) -> None:
    scene = tagged(tmp_path)
    trial = scene.attempt(python("os.setxattr('src/a.py','user.tag',b'new')"))
    assert trial.attempt.changed and not trial.attempt.committable
    assert scene.sh("git status --porcelain").split() == ["??", "notes", "??", "plain", "??", "sub/"]


@pytest.mark.parametrize("agent", ["echo z >>one", "rm one sub/two three", "chmod 600 one; rm sub/two three"], ids=["written", "removed", "both"])
def test_names_of_one_file_are_one_file_again(tmp_path: Path, agent: str) -> None:
    scene = Scene.make(tmp_path, "mkdir sub; echo mine >one; ln one sub/two; ln one three; echo mine >other; touch -r one other")
    trial = scene.attempt(agent)
    assert trial.reject().differences == ()
    assert scene.wrong() == []
    inodes = [(scene.root / name).stat().st_ino for name in ("one", "sub/two", "three", "other")]
    assert len(set(inodes[:3])) == 1 and inodes[3] != inodes[0]
    again = scene.attempt("true", trial.workspace)
    assert not again.attempt.changed
