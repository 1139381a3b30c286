"""Shell completion in the real bash, zsh and fish: loops, agents, iterations."""

from __future__ import annotations

import os
import pty
import re
import select
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from .stream import Recorded, mixed

BIN = Path(sys.executable).parent


def script(shell: str) -> str:
    """What `evolver --show-completion` prints in that shell."""
    env = {**os.environ, "_EVOLVER_COMPLETE": f"source_{shell}", "PATH": f"{BIN}:{os.environ['PATH']}"}
    done = subprocess.run([str(BIN / "evolver")], env=env, capture_output=True, text=True, check=True)
    assert "evolver" in done.stdout
    return done.stdout


@pytest.fixture
def recorded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Recorded:
    monkeypatch.setenv("PATH", f"{BIN}:{os.environ['PATH']}")
    made = mixed(tmp_path / "repo", 12)
    (made.root / "loops").mkdir()
    (made.root / "loops/nightly.toml").write_text("")
    return made


CASES = [
    ("evolver run n", {"nightly"}),
    ("evolver run mu", {"mutate"}),
    ("evolver run --agent c", {"claude", "codex"}),
    ("evolver show la", {"last"}),
    ("evolver show 1", {"12", "11", "10", "1"}),
    ("evolver help ex", {"exit-codes"}),
    ("evolver rep", {"report"}),
]


@pytest.mark.skipif(shutil.which("bash") is None, reason="no bash")
@pytest.mark.parametrize(("line", "wanted"), CASES)
def test_bash(line: str, wanted: set[str], recorded: Recorded) -> None:
    words = line.split()
    array = " ".join(f"'{word}'" for word in words)
    code = f"{script('bash')}\nCOMP_WORDS=({array}); COMP_CWORD={len(words) - 1}; _evolver_completion evolver\n"
    code += "printf '%s\\n' \"${COMPREPLY[@]}\""
    done = subprocess.run(["bash", "--norc", "-c", code], cwd=recorded.root, capture_output=True, text=True, timeout=30)
    assert set(done.stdout.split()) == wanted, done.stderr


@pytest.mark.skipif(shutil.which("fish") is None, reason="no fish (apt-get install fish)")
@pytest.mark.parametrize(("line", "wanted"), CASES)
def test_fish(line: str, wanted: set[str], recorded: Recorded) -> None:
    code = f"{script('fish')}\ncomplete -C '{line}'"
    done = subprocess.run(["fish", "--no-config", "-c", code], cwd=recorded.root, capture_output=True, text=True, timeout=30)
    assert {row.split("\t")[0] for row in done.stdout.splitlines() if row} == wanted, done.stderr


def typed(argv: list[str], cwd: Path, keys: list[tuple[str, str]]) -> str:
    """Run a program on a terminal; for each pair wait for a pattern, then type. Returns all it showed."""
    child, fd = pty.fork()
    if child == 0:
        os.chdir(cwd)
        os.environ.update(TERM="xterm", COLUMNS="200", LINES="50")
        os.execvp(argv[0], argv)
    seen = ""
    try:
        for pattern, keystrokes in keys:
            deadline = time.monotonic() + 20
            fresh = ""
            while not re.search(pattern, fresh):
                assert time.monotonic() < deadline, (pattern, fresh)
                if select.select([fd], [], [], 0.2)[0]:
                    fresh += os.read(fd, 65536).decode(errors="replace")
            seen += fresh
            os.write(fd, keystrokes.encode())
    finally:
        os.close(fd)
        os.waitpid(child, 0)
    return seen


@pytest.mark.skipif(shutil.which("zsh") is None, reason="no zsh (apt-get install zsh)")
@pytest.mark.parametrize(
    ("line", "whole"), [("evolver run ni", "evolver run nightly"), ("evolver show la", "evolver show last")]
)
def test_zsh(line: str, whole: str, recorded: Recorded, hermetic: Path) -> None:
    """Typed on a terminal: zsh completes into its own line editor only."""
    (hermetic / ".zshrc").write_text(
        "PS1='READY> '; unsetopt zle_bracketed_paste prompt_sp\nautoload -Uz compinit; compinit -u\n"
        f"{script('zsh')}\ncompdef _evolver_completion evolver\n"
    )
    shown = typed(["zsh", "-i"], recorded.root, [("READY> ", f"{line}\t"), (re.escape(whole), "\x03exit\n")])
    assert whole in shown


def test_completion_outside_a_repository_is_silent(tmp_path: Path) -> None:
    env = {**os.environ, "_EVOLVER_COMPLETE": "complete_bash", "COMP_WORDS": "evolver show ", "COMP_CWORD": "2"}
    done = subprocess.run([str(BIN / "evolver")], cwd=tmp_path, env=env, capture_output=True, text=True)
    assert done.stdout.strip() == ""
    assert "Traceback" not in done.stderr
