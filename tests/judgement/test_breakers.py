"""When a loop goes in circles it stops by itself: a normal end with its name, and an alert that quotes what repeats."""

from __future__ import annotations

import pytest

from judgement.bench import Bench

N = '"$EVOLVER_ITERATION"'


def stopped(bench: Bench, name: str, iterations: int) -> None:
    finished = bench.last("run.finished")
    assert (finished["reason"], finished["iterations"]) == (name, iterations)


def test_a_no_op_agent_stops_after_exactly_m_calls_with_the_stall_reason(bench: Bench) -> None:
    bench.run("true", validate="true", iters=50, exit=1)
    stopped(bench, "breaker_no_change", 3)
    assert bench.calls() == 3
    alert = bench.last("alert.stalled")
    assert alert["condition"] == "breaker_no_change"
    assert not bench.events("rollback.started")


def test_no_change_limit_is_configured(bench: Bench) -> None:
    bench.loop("[loop]\nmax_iters = 9\n[codegen]\ncommand = 'true'\n[breaker]\nno_change = 5\n")
    bench.evolver("run", exit=1)
    stopped(bench, "breaker_no_change", 5)


def test_n_rejections_stop_the_loop(bench: Bench) -> None:
    bench.run(f"echo {N} > app.txt", validate="echo try $EVOLVER_ITERATION; exit 1", iters=50, exit=1)
    stopped(bench, "breaker_rejections", 10)
    assert bench.calls() == 10
    assert "exit 1" in bench.last("alert.stalled")["detail"]


def test_one_acceptance_resets_the_count(bench: Bench) -> None:
    bench.loop(
        f"""[loop]
max_iters = 20
[breaker]
rejections = 3
same_failure = 0
[codegen]
command = 'echo {N} > app.txt'
[[validator]]
name = "third"
command = "grep -qx -e 3 app.txt"
"""
    )
    bench.evolver("run", exit=0)
    # 1 and 2 rejected, 3 accepted, 4 to 6 rejected
    stopped(bench, "breaker_rejections", 6)
    assert bench.last("run.finished")["accepted"] == 1


def test_a_no_change_between_rejections_neither_counts_nor_resets(bench: Bench) -> None:
    bench.loop(
        f"""[loop]
max_iters = 20
[breaker]
rejections = 3
same_failure = 0
[codegen]
command = '[ $((EVOLVER_ITERATION % 2)) = 0 ] || echo {N} > app.txt'
[[validator]]
name = "never"
command = "false"
"""
    )
    bench.evolver("run", exit=1)
    stopped(bench, "breaker_rejections", 5)


def test_the_same_failure_and_the_same_patch_three_times(bench: Bench) -> None:
    bench.run("echo same > app.txt", validate="echo failed at $(date +%s%N | cut -c1-9)ms in /tmp/x$$; exit 1", iters=50, exit=1)
    stopped(bench, "breaker_same_failure", 3)
    assert "validate: exit 1" in bench.last("alert.stalled")["detail"]


def test_the_same_failure_of_another_patch_is_not_the_same(bench: Bench) -> None:
    bench.run(f"echo {N} > app.txt", validate="false", iters=4, exit=1)
    stopped(bench, "max_iterations", 4)


def test_the_same_patch_with_another_failure_is_not_the_same(bench: Bench) -> None:
    bench.run("echo same > app.txt", validate="echo case $((EVOLVER_ITERATION)); exit 1", iters=4, exit=1)
    stopped(bench, "max_iterations", 4)


def test_inconclusive_five_times(bench: Bench) -> None:
    bench.run(f"echo {N} > app.txt", validate="exit 125", iters=50, exit=1)
    stopped(bench, "breaker_inconclusive", 5)
    assert "exit 125" in bench.last("alert.stalled")["detail"]


@pytest.mark.parametrize("how", ["zero", "flag"])
def test_a_breaker_can_be_switched_off(bench: Bench, how: str) -> None:
    limits = "no_change = 0\nrejections = 0\nsame_failure = 0\ninconclusive = 0" if how == "zero" else ""
    bench.loop(f"[loop]\nmax_iters = 6\n[codegen]\ncommand = 'true'\n[breaker]\n{limits}\n")
    bench.evolver("run", *(["--no-breaker"] if how == "flag" else []), exit=1)
    stopped(bench, "max_iterations", 6)
    assert not bench.events("alert.stalled")


def test_a_breaker_lives_in_its_run(bench: Bench) -> None:
    for _ in range(3):
        bench.run("true", iters=2, exit=1)
        stopped(bench, "max_iterations", 2)


def test_a_breaker_is_no_lock_after_a_crash(bench: Bench) -> None:
    """Two no-changes, killed; the next run starts counting anew."""
    crashed = bench.evolver("run", "--codegen", "true", "--max-iters", "9", env={"EVOLVER_CRASH_AT": "run.between:2"})
    assert crashed.code == -9
    bench.run("true", iters=2, exit=1)
    stopped(bench, "max_iterations", 2)


def test_a_committing_agent_counts_as_progress(bench: Bench) -> None:
    bench.run(f"echo {N} > app.txt; git commit -qam 'mine'", validate="true", iters=5, exit=0)
    finished = bench.last("run.finished")
    assert (finished["reason"], finished["accepted"], finished["no_change"]) == ("max_iterations", 5, 0)
    assert bench.git("rev-list", "--count", "HEAD") == "6"
    assert bench.git("log", "-1", "--format=%(trailers:key=Evolver-Iteration,valueonly)").endswith("/5")


def test_a_committing_agent_that_commits_nothing_is_no_progress(bench: Bench) -> None:
    bench.run("git commit -q --allow-empty -m busy", validate="true", iters=9, exit=1)
    stopped(bench, "breaker_no_change", 3)
    assert bench.git("rev-list", "--count", "HEAD") == "1"
