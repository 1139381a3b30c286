"""A baseline on disk that an earlier version wrote: read as it was meant, or refused; never misread."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import msgspec
import pytest

from evolver.errors import EvolverError
from worktree.scene import Scene


def rewrite(scene: Scene, fingerprint: str, version: int) -> None:
    """As version 3 had it: a link's content was its target alone."""
    vault = scene.workspace()._site.vault
    for base in (vault.folder, vault.mirror):
        path = base / "baselines" / fingerprint
        rows: list[Any] = msgspec.msgpack.decode(path.read_bytes()[32:])
        rows[0] = version
        for tree in rows[5:7]:
            for _, content in tree:
                for row in content:
                    if row[1] & 0o170000 == 0o120000:
                        row[8] = row[8].removeprefix(b"l")
        data = msgspec.msgpack.encode(rows)
        path.unlink()  # the two are names of one file
        path.write_bytes(hashlib.sha256(data).digest() + data)


def test_links_of_the_version_before(tmp_path: Path) -> None:
    scene = Scene.make(tmp_path, "ln -s src/pkg mine")
    trial = scene.attempt("rm mine link; ln -s elsewhere link; echo z >>src/a.py")
    rewrite(scene, trial.baseline.fingerprint, 3)
    later = scene.workspace()
    baseline = later.load_baseline(trial.baseline.fingerprint)
    attempt = later.inspect(baseline, later.guard_control(baseline))
    assert {change.path for change in attempt.changes} == {b"mine", b"link", b"src/a.py"}
    later.restore(baseline, attempt)
    assert later.verify(baseline).equal and scene.wrong() == []


def test_another_version_is_refused(tmp_path: Path) -> None:
    scene = Scene.make(tmp_path)
    trial = scene.attempt("echo z >>src/a.py")
    rewrite(scene, trial.baseline.fingerprint, 99)
    with pytest.raises(EvolverError) as refused:
        scene.workspace().load_baseline(trial.baseline.fingerprint)
    assert "version 99" in refused.value.message
