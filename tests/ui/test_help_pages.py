"""Every command's `--help`: readable in 80 columns, no type words, an example, nothing cut. And the topics of `evolver help`."""

from __future__ import annotations

import os
import pty
import re
import subprocess
import sys

import pytest

TOPICS = ("events", "exit-codes", "loops", "modes", "resume")


def evolver(*words: str, columns: int = 80) -> str:
    env = {**os.environ, "COLUMNS": str(columns), "TERMINAL_WIDTH": ""}
    done = subprocess.run(
        [sys.executable, "-m", "evolver", *words], capture_output=True, text=True, timeout=60, env=env, stdin=subprocess.DEVNULL
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def commands(*path: str) -> list[tuple[str, ...]]:
    """Every command below, groups included, as a person finds them: from the lists that the pages print."""
    page = evolver(*path, "--help")
    found = [path]
    for name in re.findall(r"^  ([a-z-]+)  +\S", page.partition("\nCommands:\n")[2].partition("\n\n")[0], re.M):
        found += commands(*path, name)
    return found


def test_every_help_page() -> None:
    pages = commands()
    assert len(pages) > 35
    assert [problem for path in pages for problem in problems(path, evolver(*path, "--help"))] == []


def problems(path: tuple[str, ...], page: str) -> list[str]:
    name = " ".join(("evolver", *path))
    found = [f"{name}: wide: {line}" for line in page.splitlines() if len(line) > 80]
    typed = r"<\w|\b(INTEGER|FLOAT|BOOLEAN|str|int|range|None)\b|list\[|\[\[|\{"
    found += [f"{name}: a type: {line}" for line in page.splitlines() if re.search(typed, line)]
    listed = page.partition("\nCommands:\n")[2]
    found += [f"{name}: cut: {line}" for line in listed.splitlines() if line.endswith("...")]
    if not listed and not re.search(rf"^  {name}\b", page.partition("\nExamples:\n")[2], re.M):
        found.append(f"{name}: no example")
    return found


def test_an_example_is_one_line_that_can_be_copied() -> None:
    page = evolver("run", "--help", columns=60)
    assert "  evolver run --agent claude --prompt task.md --validate 'npm test'\n" in page
    assert "  evolver run --codegen 'python improve.py' --validate 'pytest -q'\n" in page


def test_usage_tells_what_must_be_given() -> None:
    assert "evolver compare [OPTIONS] FIRST SECOND\n" in evolver("compare", "--help")
    assert "evolver show [OPTIONS] [ITERATION]\n" in evolver("show", "--help")
    assert "evolver attempts drop [OPTIONS] WHICH...\n" in evolver("attempts", "drop", "--help")
    assert "evolver audit verify [OPTIONS] [FILE]...\n" in evolver("audit", "verify", "--help")


def test_an_error_calls_an_argument_what_the_usage_does() -> None:
    done = subprocess.run([sys.executable, "-m", "evolver", "compare", "1"], capture_output=True, text=True, timeout=60)
    assert done.returncode == 2
    assert "Missing argument 'SECOND'" in done.stderr


@pytest.mark.parametrize("topic", TOPICS)
def test_a_topic_in_a_pipe_is_plain_text(topic: str) -> None:
    text = evolver("help", topic)
    lines = text.splitlines()
    assert lines[1] == "=" * len(lines[0])
    assert not re.search(r"`|\*\*|^\||^#|\x1b", text, re.M), text
    assert max(map(len, lines)) <= 80, text


def test_the_columns_of_a_table_are_aligned() -> None:
    lines = evolver("help", "exit-codes").splitlines()
    head = next(line for line in lines if line.startswith("exit "))
    meaning = head.index("meaning")
    (held,) = (line for line in lines if line.startswith("3 "))
    assert held[meaning:].startswith("held: a person must decide")
    assert held.rstrip().endswith("evolver resume")
    assert all(line[meaning - 1] == " " for line in lines[lines.index(head) : -2] if len(line) > meaning)


@pytest.mark.parametrize("topic", TOPICS)
def test_a_topic_on_a_terminal_is_rendered(topic: str) -> None:
    text = on_a_terminal("help", topic)
    assert not re.search(r"`|\*\*|\| ---|^#", text, re.M), text
    assert "\x1b[1" in text  # something is bold
    assert max(len(re.sub(r"\x1b\[[0-9;]*m", "", line)) for line in text.splitlines()) <= 80


def on_a_terminal(*words: str) -> str:
    parent, child = pty.openpty()
    dropped = ("NO_COLOR", "FORCE_COLOR", "CI")
    env = {k: v for k, v in os.environ.items() if k not in dropped} | {"COLUMNS": "80", "LINES": "40", "TERM": "xterm-256color"}
    process = subprocess.Popen([sys.executable, "-m", "evolver", *words], stdin=child, stdout=child, stderr=child, env=env)
    os.close(child)
    seen = b""
    try:
        while piece := os.read(parent, 65536):
            seen += piece
    except OSError:  # EIO: the other end is closed
        pass
    os.close(parent)
    assert process.wait(30) == 0, seen
    return seen.decode()
