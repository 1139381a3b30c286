"""`init`, `doctor`, `help`: what a newcomer meets."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
import time
import tomllib
from pathlib import Path

import pytest

from evolver.cli import detect
from evolver.definition import LoopDefinition
from evolver.loopfile import read_table
from support import Repo

from .stream import Writer, git

PROJECTS: dict[str, tuple[dict[str, str], str, str]] = {
    "pytest": (
        {"pyproject.toml": "[tool.pytest.ini_options]\n", "tests/test_a.py": "def test_a():\n    pass\n"},
        "-m pytest -q -x",
        "__pycache__/",
    ),
    "npm": ({"package.json": json.dumps({"scripts": {"test": "node --test"}})}, "npm test", "node_modules/"),
    "cargo": ({"Cargo.toml": "[package]\nname = 'a'\n", "src/lib.rs": ""}, "cargo test --quiet", "target/"),
    "go": ({"go.mod": "module a\n"}, "go test ./...", ".env"),
    "make": ({"Makefile": "all:\n\ncheck: all\n\ttrue\n"}, "make check", ".env"),
}


def evolver(*args: str, cwd: Path, code: int = 0, env: dict[str, str] | None = None) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "evolver", *args],
        cwd=cwd, capture_output=True, text=True, timeout=60, env={**os.environ, **(env or {})}, stdin=subprocess.DEVNULL,
    )  # fmt: skip
    assert done.returncode == code, (done.returncode, done.stdout, done.stderr)
    return done.stdout + done.stderr


def project(root: Path, files: dict[str, str]) -> Path:
    root.mkdir(exist_ok=True)
    git(root, "init", "-q")
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    git(root, "add", ".")
    git(root, "commit", "-qm", "start")
    return root


@pytest.fixture
def agent(tmp_path: Path) -> dict[str, str]:
    """An installed agent, as far as PATH and `--version` tell."""
    folder = tmp_path / "bin"
    folder.mkdir()
    (folder / "codex").write_text("#!/bin/sh\necho codex-cli 0.171.0\n")
    (folder / "codex").chmod(0o755)
    return {"PATH": f"{folder}{os.pathsep}{os.environ['PATH']}"}


@pytest.mark.parametrize("kind", PROJECTS)
def test_init_yes_in_a_project(kind: str, tmp_path: Path, agent: dict[str, str]) -> None:
    """pytest, npm, cargo, go, make: the validator is found, the files are committed, the preflight is passed."""
    files, command, ignored = PROJECTS[kind]
    root = project(tmp_path / "project", files)
    text = evolver("init", "--yes", cwd=root, env=agent)
    assert "wrote loops/default.toml" in text
    assert "ready: evolver run --dry-run" in text
    table = tomllib.loads((root / "loops/default.toml").read_text())
    assert table["codegen"]["agent"] == "codex"
    assert command in table["validator"][0]["command"]
    assert ignored in (root / ".gitignore").read_text().splitlines()
    assert git(root, "status", "--porcelain") == ""
    assert git(root, "log", "-1", "--format=%s") == "Set up an evolver loop"
    plan = evolver("run", "--dry-run", cwd=root, env=agent)
    assert "agent codex" in plan
    assert "nothing was started" in plan
    assert "Make the failing tests pass" in evolver("prompt", cwd=root, env=agent)


def test_init_never_overwrites_and_commits_only_its_own_files(tmp_path: Path, agent: dict[str, str]) -> None:
    root = project(tmp_path / "project", PROJECTS["make"][0] | {"other.txt": "1\n", ".gitignore": "no newline at the end"})
    (root / "other.txt").write_text("mine, staged\n")
    git(root, "add", "other.txt")
    evolver("init", "--yes", cwd=root, env=agent, code=5)  # preflight: a staged change
    assert git(root, "diff", "--cached", "--name-only") == "other.txt"
    assert (root / ".gitignore").read_text() == "no newline at the end\n.env\n"
    before = (root / "loops/default.toml").read_bytes()
    assert "--force" in evolver("init", "--yes", cwd=root, env=agent, code=2)
    assert (root / "loops/default.toml").read_bytes() == before


def test_init_takes_flags_and_quotes_them(tmp_path: Path, agent: dict[str, str]) -> None:
    root = project(tmp_path / "project", {"a": "1"})
    goal = "say \"hi\"\\ \n\ttabs, \x7f, 𝛑 and 'quotes'"
    evolver(
        "init", "--agent", "codex", "--goal", goal, "--validate", "true", "--validate", "sh -c 'true'", "--budget", "2.50",
        "--no-commit", cwd=root, env=agent,
    )  # fmt: skip
    table = tomllib.loads((root / "loops/default.toml").read_text())
    assert table["loop"]["goal"] == goal
    assert [v["command"] for v in table["validator"]] == ["true", "sh -c 'true'"]
    assert table["budget"] == {"cost_usd": "2.50"}
    assert git(root, "log", "--format=%s") == "start"
    assert isinstance(read_table(root / "loops/default.toml"), dict)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], "no terminal to ask on"),
        (["--yes"], "no validators found"),
        (["--yes", "--validate", "true", "--agent", "nosuch"], "no agent called 'nosuch'"),
        (["--yes", "--validate", "true", "--budget", "much"], "expected an amount"),
    ],
)
def test_init_says_what_is_missing_and_writes_nothing(arguments: list[str], words: str, tmp_path: Path) -> None:
    root = project(tmp_path / "project", {"a": "1"})
    assert words in evolver("init", *arguments, cwd=root, code=2)
    assert not (root / "loops").exists()
    assert git(root, "status", "--porcelain") == ""


def test_init_asks_four_questions_on_a_terminal(tmp_path: Path, agent: dict[str, str]) -> None:
    root = project(tmp_path / "project", PROJECTS["npm"][0])
    parent, child = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "evolver", "init"],
        cwd=root,
        stdin=child,
        stdout=child,
        stderr=child,
        env={**os.environ, **agent},
    )
    os.close(child)
    seen = b""
    for question, answer in (
        (b"Agent", b"\n"),
        (b"Goal", b"Tidy up\n"),
        (b"Validators", b"\n"),
        (b"Budget", b"5\n"),
        (b"Commit", b"y\n"),
    ):
        deadline = time.monotonic() + 20
        while question not in seen and time.monotonic() < deadline:
            seen += os.read(parent, 4096)
        assert question in seen, seen
        os.write(parent, answer)
        seen = seen.split(question, 1)[1]
    assert process.wait(20) == 0, os.read(parent, 4096)
    os.close(parent)
    table = tomllib.loads((root / "loops/default.toml").read_text())
    assert (table["loop"]["goal"], table["codegen"]["agent"], table["validator"][0]["command"]) == (
        "Tidy up",
        "codex",
        "npm test",
    )
    assert table["budget"]["cost_usd"] == "5"


@pytest.mark.parametrize(
    ("files", "command"),
    [
        ({"package.json": "{}"}, None),
        ({"package.json": '{"scripts": {"test": "echo \\"Error: no test specified\\" && exit 1"}}'}, None),
        ({"package.json": '{"scripts": {"test": "vitest"}}', "pnpm-lock.yaml": ""}, "pnpm test"),
        ({"package.json": "not json"}, None),
        ({"pyproject.toml": "not = [toml", "tests/test_x.py": ""}, "python"),
        ({"setup.cfg": "[tool:pytest]\n"}, "python"),
        ({"Makefile": "check := 1\n"}, None),
        ({"Makefile": "test:\n\ttrue\n", "go.mod": "module a\n"}, "go test ./..."),
        ({"tests/unit/test_x.py": "", "venv/bin/python": ""}, "venv/bin/python -m pytest -q -x"),
    ],
)
def test_detection(files: dict[str, str], command: str | None, tmp_path: Path) -> None:
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    found = detect.validators(tmp_path)
    assert [kind.command.startswith(command) for kind in found] == [True] if command else found == ()


def findings(root: Path, code: int, env: dict[str, str] | None = None) -> dict[str, dict[str, object]]:
    text = evolver("doctor", "--json", cwd=root, code=code, env=env)
    return {finding["check"]: finding for finding in json.loads(text)}


def test_doctor_is_content_with_a_project_set_up_by_init(tmp_path: Path, agent: dict[str, str]) -> None:
    root = project(tmp_path / "project", PROJECTS["pytest"][0])
    evolver("init", "--yes", cwd=root, env=agent)
    found = findings(root, 0, agent)
    assert all(finding["ok"] for finding in found.values())
    assert {
        "git",
        "worktree",
        "identity",
        "preflight",
        "loop",
        "agent codex",
        "disk",
        "hooks",
        "lock",
        "events",
    } <= found.keys()


def test_doctor_names_the_command_that_fixes_each_finding(tmp_path: Path) -> None:
    root = project(
        tmp_path / "project",
        {
            "loops/default.toml": '[loop]\ngoal = "x"\n[codegen]\nagent = "gemini"\n[[validator]]\nname = "t"\ncommand = "nosuchtool -q"\n'
        },
    )
    (root / ".git/hooks").mkdir(exist_ok=True)
    (root / ".git/hooks/pre-commit").write_text("#!/bin/sh\n")
    (root / ".git/hooks/pre-commit").chmod(0o755)
    (root / "loops/default.toml").write_text((root / "loops/default.toml").read_text() + "# dirty\n")
    env = {"PATH": "/usr/bin:/bin"}
    found = findings(root, 1, env)
    for check in ("preflight", "agent gemini", "validator t", "hooks"):
        assert found[check]["ok"] is False, found[check]
        assert found[check]["fix"], found[check]
    assert "npm install" in str(found["agent gemini"]["fix"])


def test_doctor_outside_a_worktree_and_without_identity(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    assert findings(outside, 1)["worktree"]["fix"]
    root = project(tmp_path / "project", {"a": "1"})
    monkeypatch.setenv("HOME", str(outside))
    monkeypatch.setenv("EMAIL", "")
    git(root, "config", "user.useConfigOnly", "true")
    assert "git config user.name" in str(findings(root, 1)["identity"]["fix"])


def test_doctor_sees_a_broken_stream(tmp_path: Path) -> None:
    writer = Writer(tmp_path / "repo")
    writer.no_change(1)
    recorded = writer.finish(code=1)
    events = recorded.layout.events()
    events.write_bytes(events.read_bytes().replace(b'"exit 0"', b'"exit 7"', 1))
    finding = findings(recorded.root, 1)["events"]
    assert finding["ok"] is False
    assert finding["fix"] == "evolver audit verify"


def test_help_topics() -> None:
    listed = evolver("help", cwd=Path("/"))
    for topic in ("modes", "resume", "events", "exit-codes", "loops"):
        assert topic in listed
        text = evolver("help", topic, cwd=Path("/"))
        assert text.splitlines()[1] == "=" * len(text.splitlines()[0])
        assert not {"`", "**", "| ---"} & {part for part in ("`", "**", "| ---") if part in text}
        assert max(map(len, text.splitlines())) <= 80
    assert "There is help on" in evolver("help", "nosuch", cwd=Path("/"), code=2)


def test_every_key_init_writes_is_known() -> None:
    from evolver.cli.init import Answers, loop_file

    text = loop_file(Answers("claude", "goal", ("a", "a", "b/c d"), "10"))
    table = tomllib.loads(text)
    assert [v["name"] for v in table["validator"]] == ["a", "a 2", "c d"]
    known = set(LoopDefinition.__struct_fields__)
    assert table.keys() <= known


def test_doctor_judges_by_the_loop_that_would_run(tmp_path: Path) -> None:
    """`dirty = "keep"` makes edits no finding; a sandbox that is asked for and missing is one."""
    loop = (
        '[loop]\ndirty = "keep"\n[codegen]\ncommand = "true"\nsandbox = "bwrap"\n[[validator]]\nname = "t"\ncommand = "true"\n'
    )
    root = project(tmp_path / "project", {"loops/default.toml": loop, "a": "1"})
    (root / "a").write_text("edited")
    tools = tmp_path / "tools"
    tools.mkdir()
    for name in ("git", "sh", "true"):
        (tools / name).symlink_to(
            next(Path(f) / name for f in ("/usr/bin", "/bin", "/usr/local/bin") if (Path(f) / name).exists())
        )
    found = findings(root, 1, {"PATH": str(tools)})
    assert found["preflight"]["ok"] is True, found["preflight"]
    assert found["sandbox"]["ok"] is False
    assert "bubblewrap" in str(found["sandbox"]["fix"])


def test_init_writes_nothing_beside_a_run_or_a_held_tree(tmp_path: Path) -> None:
    """A commit made during an iteration would be taken back with it."""
    repo = Repo.make(tmp_path / "r")
    init = ("init", "--yes", "--agent", "claude", "--goal", "g", "--validate", "true")
    running = repo.start("run", "--max-iters", "1", "--codegen", "touch .git/begun; sleep 30", "--validate", "true")
    try:
        repo.wait_for((repo.root / ".git/begun").exists)
        assert repo.evolver(*init).code == 6
    finally:
        running.terminate()
        running.communicate(timeout=30)
    assert not (repo.root / "loops").exists()
    assert repo.run("echo x >>src/a.py", "false", "--rollback", "none").code == 3
    assert repo.evolver(*init).code == 3
    assert not (repo.root / "loops").exists()
    assert repo.evolver("resume", "--rollback", "hard").code == 0
    assert repo.evolver(*init).code in (0, 5)  # 5: doctor finds no agent here
    assert (repo.root / "loops/default.toml").exists()
