"""A score must improve, beyond its noise; what was best survives restarts."""

from __future__ import annotations

from judgement.bench import Bench


def loop(bench: Bench, score: str, codegen: str, validate: str = "echo score $(cat app.txt)", more: str = "", iters: int = 9) -> None:
    bench.loop(
        f"""[loop]
max_iters = {iters}
{more}
[codegen]
command = '''{codegen}'''
[[validator]]
name = "measure"
command = '''{validate}'''
[score]
validator = "measure"
{score}
"""
    )


PATTERN = "pattern = '^score (-?[0-9.]+)'"


def scripted(*values: object) -> str:
    """An agent that writes these into app.txt, one an iteration."""
    return "".join(f"[ $EVOLVER_ITERATION = {n} ] && echo {v} > app.txt; " for n, v in enumerate(values, 1)) + "true"


def test_worse_and_equal_are_rejected_with_the_numbers(bench: Bench) -> None:
    loop(bench, PATTERN, scripted(5, 4, "5.0", 6), iters=4)
    bench.evolver("run", exit=0)
    assert bench.reasons() == [
        "score: 4 against best 5 is no improvement",
        "score: 5.0 against best 5 is no improvement",
    ]
    assert [e["data"]["score"] for e in bench.events("iteration.accepted")] == ["5", "6"]
    assert bench.last("run.finished")["best_score"] == "6"
    assert bench.git("show", "HEAD:app.txt") == "6"


def test_the_baselines_score_is_the_first_to_beat(bench: Bench) -> None:
    bench.write("app.txt", "7\n")
    loop(bench, PATTERN, scripted(6, 8), iters=2)
    bench.evolver("run", exit=0)
    assert bench.reasons() == ["score: 6 against best 7 is no improvement"]


def test_direction_lower(bench: Bench) -> None:
    bench.write("app.txt", "7\n")
    loop(bench, PATTERN + "\ndirection = 'lower'", scripted(8, "-1"), iters=2)
    bench.evolver("run", exit=0)
    assert bench.last("run.finished")["best_score"] == "-1"


def test_min_delta(bench: Bench) -> None:
    loop(bench, PATTERN + "\nmin_delta = '2'", scripted("1.9", 2), iters=2)
    bench.evolver("run", exit=0)
    assert bench.reasons() == ["score: 1.9 against best 0 is no improvement, 2 was needed (noise 0 over 1 runs)"]


NOISY = """n=$(cat {count} 2>/dev/null || echo 0); echo $((n + 1)) > {count}
set -- -3 0 3; shift $((n % 3)); echo score $(($(cat app.txt) + $1))"""


def test_noise_a_gain_within_the_median_deviation_is_rejected(bench: Bench) -> None:
    """Three repeats of v-3, v, v+3: median v, median absolute deviation 3."""
    count = bench.root.parent / "count"
    loop(bench, PATTERN + "\nnoise = 3", scripted(2, 10), NOISY.format(count=count), iters=2)
    bench.evolver("run", exit=0)
    assert bench.reasons() == ["score: 2 against best 0 is no improvement, 3 was needed (noise 3 over 3 runs)"]
    assert bench.last("run.finished")["best_score"] == "10"
    steps = [e for e in bench.events("step.started", 2) if e["data"]["name"] == "measure"]
    assert len(steps) == 3


def test_json_and_file(bench: Bench) -> None:
    loop(bench, "json = 'total.value'", scripted(1), """echo noise; echo '{"total": {"value": '$(cat app.txt)'.5}}'; echo done""", iters=1)
    bench.evolver("run", exit=0)
    assert bench.last("run.finished")["best_score"] == "1.5"
    loop(bench, "file = 'score.txt'", scripted(4), 'cat app.txt > "$EVOLVER_STEP_DIR/score.txt"', iters=1)
    bench.evolver("run", exit=0)
    assert bench.last("run.finished")["best_score"] == "4"


def test_a_file_left_by_the_agent_is_not_the_score(bench: Bench) -> None:
    """The file the agent wrote into its own step folder, or the worktree, is there when a silent validator has run."""
    loop(bench, "file = 'score.txt'", 'echo 99 > "$EVOLVER_STEP_DIR/score.txt"; echo 1 > app.txt', "true", iters=1)
    bench.evolver("run", exit=1)
    assert bench.reasons() == ["score: the validator printed none"]


def test_no_score_is_a_failure_with_its_reason(bench: Bench) -> None:
    loop(bench, PATTERN, scripted(1), "echo nothing", iters=1)
    bench.evolver("run", exit=1)
    assert bench.reasons() == ["score: the validator printed none"]


def test_the_best_so_far_survives_restarts(bench: Bench) -> None:
    loop(bench, PATTERN, scripted(5), iters=1)
    bench.evolver("run", exit=0)
    bench.git("reset", "-q", "--hard", "HEAD~1")
    loop(bench, PATTERN, scripted(4), iters=1)
    bench.evolver("run", exit=1)
    assert bench.reasons() == ["score: 4 against best 5 is no improvement"]


def test_a_revert_forgets_the_best_and_the_next_run_measures_what_is_there(bench: Bench) -> None:
    loop(bench, PATTERN, scripted(5), iters=1)
    bench.evolver("run", exit=0)
    bench.evolver("revert", "last", exit=0)
    loop(bench, PATTERN, scripted(4), iters=1)
    bench.evolver("run", exit=0)
    assert bench.last("run.finished")["best_score"] == "4"


def test_a_goal_of_a_score_ends_the_run(bench: Bench) -> None:
    loop(bench, PATTERN, "echo $EVOLVER_ITERATION > app.txt", more="until = 'score >= 3'", iters=9)
    bench.evolver("run", exit=0)
    finished = bench.last("run.finished")
    assert (finished["reason"], finished["iterations"]) == ("goal", 3)


def test_a_goal_that_is_reached_already_starts_no_agent(bench: Bench) -> None:
    bench.write("app.txt", "3\n")
    loop(bench, PATTERN, "echo 9 > app.txt", more="until = 'score >= 3'")
    bench.evolver("run", exit=0)
    assert bench.calls() == 0
    assert bench.last("run.finished")["reason"] == "goal"
