"""A power cut may not take the restored files and the vault's copies of them: what was written is synced before anything is pruned."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from evolver.errors import NotRestoredError
from evolver.worktree import durable
from evolver.worktree.durable import sync_filesystem
from evolver.worktree.vault import Vault
from worktree.scene import Scene


def test_synced_before_the_vault_is_pruned(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    scene = Scene.make(tmp_path, "echo mine >notes")
    trial = scene.attempt("rm notes; echo z >>src/a.py")
    assert trial.reject().equal
    order: list[str] = []
    prune = Vault.keep_only

    def synced(path: Path) -> None:
        assert (scene.root / "notes").read_text() == "mine\n" and path.is_dir()
        order.append("sync")
        sync_filesystem(path)

    def pruned(self: Vault, *args: object) -> None:
        order.append("prune")
        prune(self, *args)  # type: ignore[arg-type]

    monkeypatch.setattr(durable, "sync_filesystem", synced)
    monkeypatch.setattr(Vault, "keep_only", pruned)
    trial.workspace.release()
    assert order == ["sync", "prune"]


def test_a_disk_that_does_not_take_it_keeps_the_vault(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    scene = Scene.make(tmp_path, "echo mine >notes")
    trial = scene.attempt("rm notes")
    assert trial.reject().equal
    vault = trial.workspace.layout.vault

    def broken(path: Path) -> None:
        raise OSError(5, os.strerror(5), str(path))

    monkeypatch.setattr(durable, "sync_filesystem", broken)
    with pytest.raises(NotRestoredError):
        trial.workspace.release()
    assert b"mine\n" in {p.read_bytes() for p in vault.glob("objects/*/*")}
