"""An attempt may write `.env`: whatever it holds, the attempt can be looked at and undone."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from oracle import Snapshot, differences
from support import Repo


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


@pytest.mark.parametrize(
    "spoil",
    [
        "printf 'EVOLVER_MAX_ITERS=abc\\n' >.env",
        "printf 'EVOLVER_LOOP=\\377\\n' >.env",
        "echo '[' >loops/default.toml",
        "echo '{{ no end' >loops/prompt.md",
        "rm -r loops",
    ],
)
def test_a_dead_run_is_finished_whatever_it_left_for_the_next_one_to_read(tmp_path: Path, spoil: str) -> None:
    repo = Repo.make(tmp_path / "r")
    loop = "[loop]\nmax_iters = 1\n[codegen]\ncommand = 'sh agent.sh'\n[[validator]]\nname = 'v'\ncommand = 'false'\n"
    (repo.root / "loops").mkdir()
    (repo.root / "loops/default.toml").write_text(loop)
    (repo.root / "loops/prompt.md").write_text("Go on.\n")
    (repo.root / "agent.sh").write_text(f"echo x >>src/a.py; {spoil}\n")
    repo.sh("git add -A; git commit -qm loop")
    before = Snapshot.of(repo.root)
    assert repo.evolver("run", env={"EVOLVER_CRASH_AT": "iteration.codegen_done"}).code == -signal.SIGKILL
    assert differences(before, Snapshot.of(repo.root)) != []
    again = repo.evolver("run")
    assert again.code == 1, again.text
    assert "recovered run" in again.text
    assert differences(before, Snapshot.of(repo.root)) == []


def test_what_is_wrong_in_ones_own_settings_is_still_told_before_anything_starts(tmp_path: Path) -> None:
    repo = Repo.make(tmp_path / "r")
    repo.sh("echo EVOLVER_MAX_ITERS=abc >.env; echo .env >>.git/info/exclude")
    done = repo.run("true", "true")
    assert done.code == 2 and "EVOLVER_MAX_ITERS" in done.text
    assert not (repo.root / ".git/evolver").exists()
    repo.sh("printf '# caf\\351\\nEVOLVER_MAX_ITERS=1\\n' >.env")
    assert repo.evolver("run", "--codegen", "true", "--validate", "true").code == 1
