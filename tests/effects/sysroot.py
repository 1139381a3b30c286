"""A real ostree sysroot in a folder, as Debian's `ostree` makes one without a boot loader."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

OSNAME, BRANCH = "testos", "testos/x86_64"
WHY_NOT = "ostree is not installed (on Debian: apt-get install ostree)" if shutil.which("ostree") is None else ""
ENV = {"OSTREE_SYSROOT_DEBUG": "mutable-deployments", "LC_ALL": "C"}


class Sysroot:
    """Two deployments, v2 the default and v1 behind it; v3 committed and not deployed."""

    def __init__(self, folder: Path) -> None:
        self.path, self.tree = folder / "sysroot", folder / "tree"
        self.path.mkdir()
        self.ostree("admin", "init-fs", str(self.path))
        self.ostree("admin", "os-init", f"--sysroot={self.path}", OSNAME)
        self.v1 = self.commit(1)
        self.deploy(self.v1)
        self.v2 = self.commit(2)
        self.deploy(self.v2)
        self.v3 = self.commit(3)

    def ostree(self, *args: str) -> str:
        done = subprocess.run(["ostree", *args], env={**os.environ, **ENV}, capture_output=True, text=True, check=True)
        return done.stdout.strip()

    def commit(self, number: int) -> str:
        shutil.rmtree(self.tree, ignore_errors=True)
        modules = self.tree / "usr/lib/modules/6.1"
        modules.mkdir(parents=True)
        (modules / "vmlinuz").write_text(f"kernel {number}")
        (modules / "initramfs.img").write_text("initramfs")
        (self.tree / "usr/etc").mkdir()
        (self.tree / "usr/etc/version").write_text(str(number))
        (self.tree / "usr/lib/os-release").write_text(f'ID=testos\nVERSION_ID={number}\nPRETTY_NAME="Test {number}"\n')
        repo = self.path / "ostree/repo"
        return self.ostree(f"--repo={repo}", "commit", "-b", BRANCH, f"--tree=dir={self.tree}", "-s", f"v{number}")

    def deploy(self, ref: str, *more: str) -> None:
        self.ostree("admin", "deploy", f"--sysroot={self.path}", f"--os={OSNAME}", "--retain", *more, ref)

    def deployments(self) -> list[str]:
        """checksum.serial, the default first."""
        return re.findall(
            r"[0-9a-f]{64}\.\d+", self.ostree("admin", "status", f"--sysroot={self.path}").replace("origin refspec", "")
        )

    def boots(self) -> str:
        """What the boot loader would start: the commit whose entry has the highest version."""
        entries = sorted(
            (self.path / "boot/loader/entries").iterdir(), key=lambda p: int(re.findall(r"ostree-(\d+)", p.name)[0])
        )
        link: str = re.findall(r"ostree=(\S+)", entries[-1].read_text())[0]
        deployment: Path = (self.path / link.lstrip("/")).resolve()
        return deployment.name.partition(".")[0]
