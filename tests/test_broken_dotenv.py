"""An attempt may write `.env`: whatever it holds, the attempt can be looked at and undone."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest


def _git(root: Path, *words: str) -> None:
    subprocess.run(["git", "-c", "user.name=U", "-c", "user.email=u@example.org", *words], cwd=root, check=True, capture_output=True)


def _evolver(root: Path, *words: str) -> subprocess.CompletedProcess[str]:
    env = {k: v for k, v in os.environ.items() if not k.startswith("EVOLVER_")} | {"EVOLVER_STATE_DIR": str(root.parent / "state")}
    return subprocess.run([sys.executable, "-m", "evolver", *words], cwd=root, env=env, capture_output=True, text=True, timeout=60)


@pytest.mark.parametrize("line", [r"A=\377", "EVOLVER_MAX_ITERS=abc", r"EVOLVER_LOOP=\377"])
def test_a_held_attempt_with_a_broken_dotenv_can_be_rolled_back(tmp_path: Path, line: str) -> None:
    root = tmp_path / "r"
    root.mkdir()
    _git(root, "init", "-q", "-b", "main")
    (root / ".gitignore").write_text(".env\n")
    _git(root, "config", "user.name", "U")
    _git(root, "config", "user.email", "u@example.org")
    _git(root, "add", "-A")
    _git(root, "commit", "-qm", "init")
    held = _evolver(
        root, "run", "--codegen", f"echo x > a; printf '{line}\\n' > .env", "--validate", "false", "--max-iters", "1", "--rollback", "none"
    )
    assert held.returncode == 3, held.stderr
    assert "held" in _evolver(root, "status").stdout
    back = _evolver(root, "resume", "--rollback", "hard")
    assert back.returncode == 0, back.stderr
    assert not (root / ".env").exists() and not (root / "a").exists()
