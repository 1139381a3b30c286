"""The README's blocks: found, run, captured. `python tests/readme.py` writes the sessions and the live view's pane anew.

Each block is preceded by a comment that says where it runs: `<!-- demo -->` and `<!-- tests -->` in a fresh clone,
`<!-- run: project -->` in the reader's project (all of them in one shell, in order), `<!-- session -->` in an empty folder, its output
compared. A block without one is no command.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
README = ROOT / "README.md"
_BLOCK = re.compile(r"(?:<!-- (?P<mark>[\w: ]+) -->\n)?```(?P<language>\w+)\n(?P<text>.*?)```\n", re.DOTALL)

# What differs between two runs of the same session.
_VARIES = (
    (re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[0-9a-f]{4}-[0-9a-f]{12}"), "RUN"),
    (re.compile(r"\b[0-9a-f]{7,64}\b"), "COMMIT"),
    (re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d"), "TIME"),
    (re.compile(r"\b\d+(?:\.\d+)? (?:ms|s)\b|\b\d+m\d\ds\b"), "TOOK"),
    (re.compile(r"(?:/[\w.+-]+)+/(?=demo\b)"), "PATH/"),
    (re.compile(r"\b\d+ bytes"), "BYTES"),
    (re.compile(r"(?:/\S+)?/evolver (?=show|audit|report|run)"), "evolver "),
    (re.compile(r" +"), " "),
)


@dataclass(frozen=True)
class Block:
    mark: str
    language: str
    text: str


def blocks(text: str) -> list[Block]:
    return [Block(match["mark"] or "", match["language"], match["text"]) for match in _BLOCK.finditer(text)]


def commands(session: str) -> list[str]:
    """The commands of a console block."""
    return [line.removeprefix("$ ") for line in session.splitlines() if line.startswith("$ ")]


def normal(text: str) -> str:
    """Without what varies."""
    for pattern, stand_in in _VARIES:
        text = pattern.sub(stand_in, text)
    return text


def play(session: list[str], folder: Path, env: dict[str, str]) -> Iterator[tuple[str, str, int]]:
    """Type each command into one shell that starts in `folder`: command, output, exit code."""
    where = folder
    for command in session:
        script = f"{command}\ncode=$?\npwd > {folder.parent}/where\nexit $code"
        done = subprocess.run(
            ["bash", "-c", script], cwd=where, env=env, capture_output=True, text=True, stdin=subprocess.DEVNULL
        )
        where = Path((folder.parent / "where").read_text().strip())
        yield command, done.stdout + done.stderr, done.returncode


def captured(session: list[str], folder: Path, env: dict[str, str]) -> str:
    return "".join(f"$ {command}\n{output}" for command, output, _ in play(session, folder, env))


def environment(home: Path, *paths: Path) -> dict[str, str]:
    """An empty HOME, nothing of ours, and these folders first on PATH."""
    keep = ("LANG", "LC_ALL", "TMPDIR", "PIP_INDEX_URL", "PIP_CERT", "SSL_CERT_FILE")
    env = {name: os.environ[name] for name in keep if name in os.environ}
    path = os.pathsep.join([*map(str, paths), os.environ["PATH"]])
    return env | {"HOME": str(home), "PATH": path, "LC_ALL": "C.UTF-8", "GIT_CONFIG_NOSYSTEM": "1"}


def main() -> int:
    """Write the captured sessions into README.md."""
    import tempfile

    text = README.read_text(encoding="utf-8")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name).resolve() / "work"
        folder.mkdir()
        home = folder.parent / "home"
        home.mkdir()
        env = environment(home, Path(sys.executable).parent)
        for block in blocks(text):
            if block.mark == "session":
                fresh = captured(commands(block.text), folder, env).replace(f"{folder}/", "/home/me/")
                text = text.replace(block.text, fresh)
            if block.mark == "pane":  # written by the live view's own test, with SCREENSHOTS=docs/images
                shown = (ROOT / "docs/images/pane.txt").read_text(encoding="utf-8").rstrip("\n") + "\n"
                text = text.replace(f"<!-- pane -->\n```text\n{block.text}```", f"<!-- pane -->\n```text\n{shown}```")
    README.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
