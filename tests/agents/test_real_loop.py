"""The real Claude Code and the real Codex, five iterations each, against a stub model in a loopback-only namespace."""

from __future__ import annotations

import subprocess
import time
from pathlib import Path

import pytest

from support import EVOLVER, Repo

from .conftest import StartStub, agent_environment

pytestmark = pytest.mark.agents

LOOP = """
[loop]
goal = "Make add() right"
max_iters = 5

[codegen]
agent = "{agent}"
args = [{args}]
timeout = "60s"
grace = "1s"

[[validator]]
name = "tests"
command = "python3 -B test_calc.py"

[breaker]
no_change = 0
"""

WRITER = "(setsid sh -c 'sleep 1.5; while :; do echo late >> calc.py; sleep 0.05; done' >/dev/null 2>&1 &)"
SCRIPT: dict[str, list[dict[str, object]]] = {
    "1": [{"sh": "printf 'def add(a, b):\\n    return a + b\\n' > calc.py"}, {"text": "Repaired."}],
    "2": [{"sh": "printf 'def add(a, b):\\n    return a * b\\n' > calc.py; echo x > left-behind"}, {"text": "Better."}],
    "3": [{"status": 429, "retry_after": "1"}] * 2 + [{"sh": "echo '# a remark' >> calc.py"}, {"text": "Documented."}],
    "4": [{"text": "There is nothing to do."}],
    "5": [{"sh": f"echo '# another' >> calc.py; {WRITER}"}, {"text": "Done."}],
}


@pytest.fixture
def repo(tmp_path: Path) -> Repo:
    root = tmp_path / "repo"
    (root / "loops").mkdir(parents=True)
    (root / "calc.py").write_text("def add(a, b):\n    return a - b\n")
    (root / "test_calc.py").write_text("from calc import add\nassert add(2, 3) == 5, add(2, 3)\n")
    return Repo(root)


@pytest.mark.parametrize(("agent", "args"), [("claude", '"--allowedTools", "Bash"'), ("codex", "")])
def test_a_real_agent_runs_five_iterations(
    agent: str, args: str, repo: Repo, hermetic: Path, real_agents: dict[str, Path], start_stub: StartStub
) -> None:
    """Accepted with usage, broken and rolled back, rate limited and retried, no change, a setsid writer; nothing outside contacted."""
    (repo.root / "loops" / "default.toml").write_text(LOOP.format(agent=agent, args=args))
    repo.sh("git init -q -b main && git add -A && git commit -qm base")
    repo.env = agent_environment(hermetic, real_agents, "http://127.0.0.1:8111")
    stub = start_stub(SCRIPT)

    done = subprocess.run(
        stub.inside((*EVOLVER, "run")), cwd=repo.root, env=repo.environment(), capture_output=True, text=True, timeout=150
    )
    assert done.returncode == 0, done.stdout + done.stderr

    ends = ("iteration.accepted", "iteration.no_change", "rollback.finished")
    outcomes = [event["type"].removeprefix("dev.evolver.") for event in repo.events() if event["type"].endswith(ends)]
    accepted, rolled_back, unchanged = ends[0], ends[2], ends[1]
    assert outcomes == [accepted, rolled_back, accepted, unchanged, accepted], done.stdout

    steps = [event["data"] for event in repo.events("step.finished") if event["data"]["step"] == "codegen"]
    assert [step["agent"] for step in steps] == [agent] * 5
    assert [(step["input_tokens"], step["output_tokens"]) for step in steps] == [
        (200, 40),
        (200, 40),
        (200, 40),
        (100, 20),
        (200, 40),
    ]
    assert [step["calls"] for step in steps] == [1, 1, 2, 1, 1] and steps[2]["waited_ms"] > 0
    assert all((step["cost_usd"] is not None) == (agent == "claude") for step in steps)
    assert all(step["session_id"] for step in steps)
    if agent == "claude":  # Codex's own sandbox takes what was left along
        assert steps[4]["killed"] >= 1
    broken = [event["data"] for event in repo.events("rollback.finished")]
    assert broken[0]["verified"] is True and "tests" in broken[0]["reason"]

    before = (repo.root / "calc.py").read_text()
    assert before == "def add(a, b):\n    return a + b\n# a remark\n# another\n"
    time.sleep(2)
    assert (repo.root / "calc.py").read_text() == before  # the writer is dead
    assert repo.sh("git status --porcelain") == "" and not (repo.root / "left-behind").exists()
    assert repo.sh("git rev-list --count HEAD").strip() == "4"
    assert repo.evolver("audit", "verify").code == 0
    assert {str(request["path"]) for request in stub.requests()} == {"/v1/messages" if agent == "claude" else "/v1/responses"}
