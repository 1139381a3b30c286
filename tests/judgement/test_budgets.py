"""Each budget is a normal stop with its name in `run.finished`."""

from __future__ import annotations

import time
from decimal import Decimal
from pathlib import Path

import pytest

from evolver.definition import BudgetSection
from evolver.stop import RunState, budget, cost_left
from judgement.bench import Bench

# Speaks as `opencode run --format json` does: each step with its tokens and its cost.
AGENT = """
import json, os, sys, time
cost, steps, pause = float(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3])
for n in range(steps):
    part = {"tokens": {"input": 60, "output": 40}, "cost": cost}
    print(json.dumps({"type": "step_finish", "part": part}), flush=True)
    time.sleep(pause)
with open("app.txt", "a") as file:
    file.write("x")
print(json.dumps({"type": "text", "part": {"text": "finished"}}))
"""


@pytest.fixture
def agent(tmp_path: Path) -> Path:
    path = tmp_path / "agent.py"
    path.write_text(AGENT)
    return path


def loop(bench: Bench, agent: Path, budget: str, cost: str = "0.10", steps: int = 1, pause: str = "0", more: str = "") -> None:
    bench.loop(
        f"""[loop]
goal = "append x"
max_iters = 9
[codegen]
agent = "own"
{more}
[agents.own]
argv = ["python3", "{agent}", "{cost}", "{steps}", "{pause}"]
parser = "opencode"
[budget]
{budget}
"""
    )


def stopped(bench: Bench) -> tuple[str, int, int]:
    finished = bench.last("run.finished")
    return finished["reason"], finished["iterations"], finished["accepted"]


def test_iterations(bench: Bench) -> None:
    bench.run("echo $EVOLVER_ITERATION > app.txt", iters=3, exit=0)
    assert stopped(bench) == ("max_iterations", 3, 3)


def test_wall_time(bench: Bench) -> None:
    began = time.monotonic()
    bench.run("sleep 0.4; echo $EVOLVER_ITERATION > app.txt", "--max-time", "1s", iters=99, exit=0)
    reason, iterations, _ = stopped(bench)
    assert reason == "max_time"
    assert 1 <= iterations <= 3
    assert time.monotonic() - began < 20


def test_tokens(bench: Bench, agent: Path) -> None:
    loop(bench, agent, "tokens = 250")
    bench.evolver("run", exit=0)
    assert stopped(bench) == ("budget_tokens", 3, 3)
    assert bench.last("run.finished")["tokens"] == 300


def test_cost(bench: Bench, agent: Path) -> None:
    loop(bench, agent, "cost_usd = '0.30'")
    bench.evolver("run", exit=0)
    assert stopped(bench) == ("budget_cost", 3, 3)
    assert bench.last("run.finished")["cost_usd"] in ("0.3", "0.30")


def test_cost_per_day_counts_earlier_runs_of_the_repository(bench: Bench, agent: Path) -> None:
    loop(bench, agent, "cost_usd_per_day = '0.50'")
    bench.evolver("run", "--max-iters", "3", exit=0)
    assert stopped(bench) == ("max_iterations", 3, 3)
    bench.evolver("run", exit=0)
    assert stopped(bench) == ("budget_cost_per_day", 2, 2)
    bench.evolver("run", exit=1)
    assert stopped(bench) == ("budget_cost_per_day", 0, 0)
    assert bench.calls() == 5


def test_cost_mid_way_ends_the_attempt(bench: Bench, agent: Path) -> None:
    loop(bench, agent, "cost_usd = '0.30'", steps=200, pause="0.3")
    began = time.monotonic()
    bench.evolver("run", exit=1)
    assert time.monotonic() - began < 40
    assert stopped(bench) == ("budget_cost", 1, 0)
    assert bench.reasons()[0].startswith("budget: codegen was stopped, it had spent 0.4 of the 0.30 USD")
    assert (bench.root / "app.txt").read_text() == "0\n"


def test_a_spent_budget_allows_no_repair(bench: Bench, agent: Path) -> None:
    loop(bench, agent, "tokens = 100", more="repairs = 5")
    path = bench.root / "loops/default.toml"
    path.write_text(path.read_text() + '[[validator]]\nname = "never"\ncommand = "false"\n')
    bench.commit()
    bench.evolver("run", exit=1)
    assert stopped(bench) == ("budget_tokens", 1, 0)
    assert bench.calls() == 1


@pytest.mark.parametrize(
    ("codegen", "budget", "warned"),
    [
        ('command = "true"', "tokens = 5", "[budget] tokens: a command does not tell its tokens"),
        ('agent = "codex"', 'cost_usd = "1"', "[budget] cost_usd: codex does not tell its cost"),
        ('agent = "claude"\nfallback = ["gemini"]', 'cost_usd_per_day = "1"', "[budget] cost_usd_per_day: gemini does not"),
        ('agent = "codex"', "tokens = 5", ""),
        ('agent = "claude"', 'cost_usd = "1"', ""),
        ('command = "true"', 'cost_usd = "0"', ""),
    ],
)
def test_a_budget_that_nobody_could_exceed_is_warned_of(bench: Bench, codegen: str, budget: str, warned: str) -> None:
    bench.loop(f'[loop]\ngoal = "g"\n[codegen]\n{codegen}\n[budget]\n{budget}\n')
    ended = bench.evolver("run", "--dry-run", exit=0)
    assert warned in ended.err if warned else "[budget]" not in ended.err


def test_a_new_day_has_a_budget_of_its_own() -> None:
    """A run that began before midnight UTC is measured by what it spent since."""
    section = BudgetSection(cost_usd_per_day="10")
    evening = RunState(cost=Decimal(7), cost_today_before=Decimal(4)).on_day("2026-01-01").on_day("2026-01-01")
    assert budget(section)(evening) is not None and cost_left(section, evening, Decimal(0)) == -1
    night = evening.on_day("2026-01-02")
    assert budget(section)(night) is None and cost_left(section, night, Decimal(0)) == 10
    assert budget(section)(night.spending(0, Decimal(10))) is not None
    assert budget(section)(night.spending(0, Decimal(9)).on_day("2026-01-02")) is None
