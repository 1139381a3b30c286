"""A real terminal to look at: tmux, with a server of its own."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import time
from pathlib import Path
from types import TracebackType
from typing import Self

TMUX = shutil.which("tmux")


class Terminal:
    """One window of a given size, running one command. A context manager."""

    def __init__(self, socket: Path, columns: int, lines: int, command: list[str], cwd: Path, env: dict[str, str]) -> None:
        self._socket, self._size = socket, (columns, lines)
        # The command's end stays on the screen until the window is closed.
        self._command = f"{shlex.join(command)}; echo ended:$?; sleep 60"
        self._cwd, self._env = cwd, env

    def _tmux(self, *args: str) -> str:
        done = subprocess.run(
            [TMUX or "tmux", "-S", str(self._socket), *args], capture_output=True, text=True, env=self._outer()
        )
        assert done.returncode == 0, (args, done.stderr)
        return done.stdout

    def _outer(self) -> dict[str, str]:
        dropped = ("CI", "NO_COLOR", "TMUX", "FORCE_COLOR", "COLUMNS", "LINES")
        return {**{k: v for k, v in os.environ.items() if k not in dropped}, "TERM": "xterm-256color", **self._env}

    def __enter__(self) -> Self:
        columns, lines = self._size
        self._tmux(
            "-f",
            "/dev/null",
            "-u",
            "new-session",
            "-d",
            "-x",
            str(columns),
            "-y",
            str(lines),
            "-c",
            str(self._cwd),
            self._command,
        )
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        subprocess.run([TMUX or "tmux", "-S", str(self._socket), "kill-server"], capture_output=True)

    def screen(self) -> list[str]:
        """What is to be seen, without trailing blanks."""
        return [line.rstrip() for line in self._tmux("capture-pane", "-p").rstrip("\n").split("\n")]

    def colours(self) -> str:
        """The screen with its escape sequences."""
        return self._tmux("capture-pane", "-p", "-e")

    def keys(self, *keys: str) -> None:
        self._tmux("send-keys", *keys)

    def until(self, text: str, seconds: float = 60) -> list[str]:
        """The screen as soon as it shows `text`."""
        deadline = time.monotonic() + seconds
        while True:
            screen = self.screen()
            if any(text in line for line in screen):
                return screen
            assert time.monotonic() < deadline, f"{text!r} did not appear:\n" + "\n".join(screen)
            time.sleep(0.1)
