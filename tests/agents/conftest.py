"""Scripted and real agents."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import shutil
import subprocess
import sys
import tempfile
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from evolver.interrupts import Interrupts
from evolver.model import StepContext
from evolver.steps.presets import Preset
from evolver.steps.runner import StepRunner

PACKAGES = ("@anthropic-ai/claude-code-linux-x64@2.1.197", "@openai/codex@npm:@openai/codex@0.171.0-linux-x64")
INSTALLED = Path(__file__).parents[2] / ".ci/node"  # where `.ci/run` puts them
CACHE = Path(tempfile.gettempdir()) / f"evolver-test-agents-{os.getuid()}"  # where a test run on its own does
CLAUDE = "node_modules/@anthropic-ai/claude-code-linux-x64/claude"
CODEX = "node_modules/@openai/codex/vendor/x86_64-unknown-linux-musl/bin/codex"
NPM_HOME = os.environ.get("HOME", "/root")  # before the tests get a HOME of their own: npm's settings lie there


@pytest.fixture
def context(tmp_path: Path) -> StepContext:
    for name in ("tree", "scratch", "logs", "loop"):
        (tmp_path / name).mkdir()
    (tmp_path / "last-failure.txt").write_text("")
    return StepContext(
        run_id=str(uuid.uuid4()),
        iteration=1,
        pre_ref="0" * 40,
        cwd=tmp_path / "tree",
        step_dir=tmp_path / "scratch",
        log_dir=tmp_path / "logs",
        last_failure=tmp_path / "last-failure.txt",
        prompt="Please do iteration 1.",
    )


@pytest.fixture
def runner() -> StepRunner:
    return StepRunner(Interrupts(), base=dict(os.environ))


Scripted = Callable[..., Preset]


@pytest.fixture
def scripted(tmp_path: Path) -> Scripted:
    """An agent of one's own whose program is a shell script."""

    def build(script: str, *, parser: str = "plain", name: str = "mine", **more: object) -> Preset:
        path = tmp_path / f"{name}.sh"
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(0o755)
        return Preset(name=name, argv=(str(path), "{args}"), parser=parser, **more)  # type: ignore[arg-type]

    return build


@dataclass(frozen=True)
class Stub:
    """A stub model server in a network namespace that has a loopback interface and nothing else."""

    pid: int
    url: str
    log: Path

    def inside(self, argv: tuple[str, ...]) -> tuple[str, ...]:
        """The command line that runs `argv` in that namespace."""
        return ("nsenter", f"--net=/proc/{self.pid}/ns/net", "--", *argv)

    def requests(self) -> list[dict[str, object]]:
        return [json.loads(line) for line in self.log.read_text().splitlines()] if self.log.exists() else []


StartStub = Callable[[dict[str, list[dict[str, object]]]], Stub]


@pytest.fixture
def start_stub(tmp_path: Path) -> Iterator[StartStub]:
    with contextlib.ExitStack() as stack:

        def start(script: dict[str, list[dict[str, object]]]) -> Stub:
            (tmp_path / "stub.json").write_text(json.dumps(script))
            server = [sys.executable, str(Path(__file__).with_name("stub_server.py"))]
            options = ["--port", "8111", "--script", str(tmp_path / "stub.json"), "--log", str(tmp_path / "stub.log")]
            process = stack.enter_context(
                subprocess.Popen(
                    ["unshare", "-n", "sh", "-c", 'ip link set lo up && exec "$@"', "sh", *server, *options],
                    stdout=subprocess.PIPE,
                )
            )
            stack.callback(process.kill)
            assert process.stdout is not None
            assert process.stdout.readline() == b"8111\n"
            return Stub(process.pid, "http://127.0.0.1:8111", tmp_path / "stub.log")

        yield start


@pytest.fixture(scope="session")
def real_agents() -> dict[str, Path]:
    """The real CLIs, installed once into a cache folder. Skips with the reason where that cannot be done."""
    if sys.platform != "linux" or os.uname().machine != "x86_64":
        pytest.skip("the pinned agent CLIs are for Linux on x86-64")
    if os.geteuid() != 0:
        pytest.skip("network namespaces need root")
    for tool in ("npm", "unshare", "nsenter", "ip"):
        if shutil.which(tool) is None:
            pytest.skip(f"{tool} is not installed")
    if subprocess.run(["unshare", "-n", "true"], capture_output=True, check=False).returncode:
        pytest.skip("network namespaces are not allowed here")
    if (INSTALLED / CLAUDE).exists() and (INSTALLED / CODEX).exists():
        return {"claude": INSTALLED / CLAUDE, "codex": INSTALLED / CODEX}
    CACHE.mkdir(exist_ok=True)
    with (CACHE / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # one installation, however many test processes
        if not ((CACHE / CLAUDE).exists() and (CACHE / CODEX).exists()):
            env = {**os.environ, "HOME": NPM_HOME}
            command = ["npm", "install", "--ignore-scripts", "--no-audit", "--no-fund", "--prefix", str(CACHE), *PACKAGES]
            done = subprocess.run(command, env=env, cwd=CACHE, capture_output=True, text=True, timeout=240, check=False)
            if done.returncode:
                pytest.skip(f"npm could not install the agent CLIs: {done.stderr.strip()[-200:]}")
    return {"claude": CACHE / CLAUDE, "codex": CACHE / CODEX}


CODEX_CONFIG = """
check_for_update_on_startup = false
model = "stub"
model_provider = "stub"
[analytics]
enabled = false
[model_providers.stub]
name = "stub"
base_url = "{url}/v1"
env_key = "STUB_KEY"
wire_api = "responses"
request_max_retries = 1
stream_max_retries = 1
"""


def agent_environment(home: Path, real: dict[str, Path], url: str) -> dict[str, str]:
    """What the real CLIs need to speak to the stub and to nobody else."""
    (home / ".codex").mkdir(exist_ok=True)
    (home / "tmp").mkdir(exist_ok=True)
    (home / ".codex" / "config.toml").write_text(CODEX_CONFIG.format(url=url))
    return {
        **os.environ,
        "PATH": f"{real['claude'].parent}:{real['codex'].parent}:{os.environ['PATH']}",
        "HOME": str(home),
        # Codex makes no helper programs in a home that lies below the folder for temporary files; then no command works.
        "TMPDIR": str(home / "tmp"),
        "ANTHROPIC_BASE_URL": url,
        "ANTHROPIC_API_KEY": "sk-ant-stub-stub-stub",
        "STUB_KEY": "stub-stub-stub",
    }
