"""`until`: what a run is for. A promise counts only when the validators agree, and only when it was made in this attempt."""

from __future__ import annotations

from judgement.bench import Bench


def loop(bench: Bench, codegen: str, validate: str = "true", more: str = "", iters: int = 4) -> None:
    bench.loop(
        f"""[loop]
max_iters = {iters}
until = "promise"
{more}
[codegen]
command = '''{codegen}'''
[[validator]]
name = "check"
command = '''{validate}'''
"""
    )


def stopped(bench: Bench) -> tuple[str, int]:
    finished = bench.last("run.finished")
    return finished["reason"], finished["iterations"]


SAID = "promise = '^ALL DONE$'"
FILE = "promise = '.'\npromise_file = 'done'"


def test_until_accepted_ends_at_the_first(bench: Bench) -> None:
    bench.run("echo $EVOLVER_ITERATION > app.txt", "--until", "accepted", validate="grep -qx 2 app.txt", iters=9, exit=0)
    assert stopped(bench) == ("goal", 2)


def test_a_promise_in_the_last_message_ends_the_run(bench: Bench) -> None:
    loop(bench, "echo $EVOLVER_ITERATION > app.txt; [ $EVOLVER_ITERATION != 2 ] || echo ALL DONE", more=SAID)
    bench.evolver("run", exit=0)
    assert stopped(bench) == ("goal", 2)


def test_a_promise_does_not_count_when_the_validators_disagree(bench: Bench) -> None:
    loop(bench, "echo $EVOLVER_ITERATION > app.txt; echo ALL DONE", "grep -qx 3 app.txt", more=SAID)
    bench.evolver("run", exit=0)
    assert stopped(bench) == ("goal", 3)
    assert bench.last("run.finished")["accepted"] == 1


def test_a_promise_without_a_change_runs_the_validators_and_counts(bench: Bench) -> None:
    loop(bench, "echo ALL DONE", "grep -qx 0 app.txt", more=SAID)
    bench.evolver("run", exit=0)
    assert stopped(bench) == ("goal", 1)
    assert [e["data"]["name"] for e in bench.events("step.started", 1)] == ["codegen", "check"]


def test_a_promise_without_a_change_that_validators_deny_does_not_count(bench: Bench) -> None:
    loop(bench, "echo ALL DONE", "false", more=SAID, iters=2)
    bench.evolver("run", exit=1)
    assert stopped(bench) == ("max_iterations", 2)


def test_a_promise_of_a_failed_agent_does_not_count(bench: Bench) -> None:
    loop(bench, "echo 1 > app.txt; echo ALL DONE; exit 3", more=SAID, iters=2)
    bench.evolver("run", exit=1)
    assert stopped(bench) == ("max_iterations", 2)


def test_a_promise_file_written_by_the_attempt_ends_the_run(bench: Bench) -> None:
    loop(bench, "echo $EVOLVER_ITERATION > app.txt; [ $EVOLVER_ITERATION != 2 ] || echo yes > done", more=FILE)
    bench.evolver("run", exit=0)
    assert stopped(bench) == ("goal", 2)


def test_a_leftover_done_file_of_a_crashed_run_does_not_end_the_next(bench: Bench) -> None:
    bench.write(".gitignore", "done\n")
    once = bench.root.parent / "once"
    loop(bench, f"echo $EVOLVER_ITERATION >> app.txt; [ -e {once} ] || echo yes > done", more=FILE, iters=2)
    crashed = bench.evolver("run", env={"EVOLVER_CRASH_AT": "iteration.codegen_done"})
    assert crashed.code == -9
    assert (bench.root / "done").exists()
    once.touch()  # from here on the agent promises nothing
    bench.evolver("run", exit=0)
    assert stopped(bench) == ("max_iterations", 2)


def test_a_done_file_that_was_there_before_does_not_end_the_run(bench: Bench) -> None:
    bench.write("done", "yes\n")
    loop(bench, "echo $EVOLVER_ITERATION >> app.txt", more=FILE, iters=2)
    bench.evolver("run", exit=0)
    assert stopped(bench) == ("max_iterations", 2)


def test_a_promise_is_put_to_validators_that_no_change_concerns(bench: Bench) -> None:
    """`when` matches nothing where nothing changed: not asking anybody is not agreement."""
    bench.loop(
        """[loop]
max_iters = 2
until = "promise"
promise = "DONE"
[codegen]
command = "if [ $EVOLVER_ITERATION = 2 ]; then echo 1 > a.md; fi; echo DONE"
[[validator]]
name = "python"
when = ["*.py"]
command = "false"
"""
    )
    bench.evolver("run", exit=0)
    assert bench.last("run.finished")["reason"] == "max_iterations"
    assert bench.reasons() == ["python: exit 1 (already red before the attempt)"]
