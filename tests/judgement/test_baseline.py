"""What the validators say before the first attempt, and that every later reason tells already red from broken."""

from __future__ import annotations

from judgement.bench import Bench


def test_a_green_start_is_recorded_and_what_fails_was_broken_by_the_attempt(bench: Bench) -> None:
    bench.run("echo 9 > app.txt", validate="grep -qx 0 app.txt", exit=1)
    assert bench.last("baseline.validated") == {"red": False, "failed": [], "reason": "green", "restored": 0}
    assert bench.reasons() == ["validate: exit 1 (green before, broken by the attempt)"]


def test_a_red_start_is_recorded_and_what_still_fails_was_already_red(bench: Bench) -> None:
    bench.run("echo 9 > app.txt", validate="grep -qx 1 app.txt", exit=1)
    baseline = bench.last("baseline.validated")
    assert baseline["red"] is True
    assert baseline["reason"] == "validate: exit 1"
    assert bench.reasons() == ["validate: exit 1 (already red before the attempt)"]


def test_already_red_is_told_for_each_validator(bench: Bench) -> None:
    bench.loop(
        """[loop]
max_iters = 2
[codegen]
command = "if [ $EVOLVER_ITERATION = 1 ]; then echo a > app.txt; else echo b > app.txt; rm -f keep; fi"
[[validator]]
name = "red"
command = "grep -q b app.txt"
[[validator]]
name = "green"
command = "test -e keep"
"""
    )
    bench.write("keep", "")
    bench.commit()
    bench.evolver("run", exit=1)
    assert bench.last("baseline.validated")["failed"] == ["red"]
    assert bench.reasons() == [
        "red: exit 1 (already red before the attempt)",
        "green: exit 1 (green before, broken by the attempt)",
    ]


def test_after_an_acceptance_nothing_is_already_red(bench: Bench) -> None:
    bench.run("echo $EVOLVER_ITERATION > app.txt", validate="grep -qx 1 app.txt", iters=2, exit=0)
    assert bench.reasons() == ["validate: exit 1 (green before, broken by the attempt)"]


def test_a_red_start_does_not_block_by_default(bench: Bench) -> None:
    bench.run("echo 1 > app.txt", validate="grep -qx 1 app.txt", exit=0)
    assert bench.git("show", "HEAD:app.txt") == "1"


def loop(bench: Bench, policy: str, validate: str) -> None:
    bench.loop(
        f"""[loop]
max_iters = 1
[validate]
baseline = "{policy}"
[codegen]
command = "echo 1 > app.txt"
[[validator]]
name = "check"
command = "{validate}"
"""
    )


def test_baseline_require_refuses_a_red_start_with_exit_5(bench: Bench) -> None:
    loop(bench, "require", "touch dropped; false")
    before = bench.tree()
    ended = bench.evolver("run", exit=5)
    assert "already red: check: exit 1" in ended.err
    assert bench.calls() == 0
    assert bench.tree() == before
    assert bench.last("run.finished")["exit_code"] == 5


def test_baseline_require_lets_a_green_start_pass(bench: Bench) -> None:
    loop(bench, "require", "true")
    bench.evolver("run", exit=0)


def test_baseline_skip_runs_no_validator_before_the_first_attempt(bench: Bench) -> None:
    loop(bench, "skip", "false")
    bench.evolver("run", exit=1)
    assert not bench.events("baseline.validated")
    assert bench.reasons() == ["check: exit 1"]


def test_what_validators_drop_on_the_baseline_is_removed(bench: Bench) -> None:
    before = bench.tree()
    bench.run("true", validate="mkdir -p junk/deep; touch junk/deep/x; echo changed > app.txt", exit=1)
    assert bench.tree() == before
    assert bench.last("baseline.validated")["restored"] > 0


def test_retries_of_a_flaky_validator_are_marked(bench: Bench) -> None:
    counter = bench.root.parent / "count"
    bench.loop(
        f"""[loop]
max_iters = 1
[validate]
baseline = "skip"
[codegen]
command = "echo 1 > app.txt"
[[validator]]
name = "flaky"
retries = 2
command = "echo x >> {counter}; test $(wc -l < {counter}) -ge 2"
"""
    )
    bench.evolver("run", exit=0)
    step = [e["data"] for e in bench.events("step.finished") if e["data"]["name"] == "flaky"]
    assert [s["flaky"] for s in step] == [True]


def test_validators_with_when_run_only_for_matching_paths(bench: Bench) -> None:
    bench.loop(
        """[loop]
max_iters = 2
[validate]
baseline = "skip"
[codegen]
command = "if [ $EVOLVER_ITERATION = 1 ]; then echo 1 > a.md; else echo 1 > a.py; fi"
[[validator]]
name = "python"
when = ["*.py"]
command = "false"
"""
    )
    bench.evolver("run", exit=0)
    finished = bench.last("run.finished")
    assert (finished["accepted"], finished["rolled_back"]) == (1, 1)


def test_a_formatters_work_belongs_to_the_attempt(bench: Bench) -> None:
    bench.loop(
        """[loop]
max_iters = 1
[codegen]
command = "printf 'b  b' > app.txt"
[[validator]]
name = "check"
command = "grep -qx 'b b' app.txt"
[[validator]]
name = "format"
writes = true
command = "sed -i 's/  / /' app.txt"
"""
    )
    bench.evolver("run", exit=0)
    assert bench.git("show", "HEAD:app.txt") == "b b"


FORMATTER = """[loop]
max_iters = 1
[codegen]
command = "echo x >> app.txt"
[[validator]]
name = "format"
writes = true
command = "echo formed > formed.txt"
[[validator]]
name = "check"
"""


def test_what_a_validator_leaves_behind_a_formatter_is_not_committed(bench: Bench) -> None:
    """Only the formatter's writes are the attempt's: a report, or an edit, of the validator after it was never validated."""
    bench.loop(FORMATTER + 'command = "echo dropped > junit.xml; echo edited >> app.txt"\n')
    bench.evolver("run", exit=0)
    assert bench.git("show", "HEAD:app.txt") == "0\nx" and bench.git("show", "HEAD:formed.txt") == "formed"
    assert "junit.xml" not in bench.git("ls-tree", "--name-only", "HEAD") and not (bench.root / "junit.xml").exists()
    assert bench.git("status", "--porcelain") == ""


def test_a_formatters_work_counts_for_when(bench: Bench) -> None:
    bench.loop(FORMATTER + 'when = ["formed.txt"]\ncommand = "false"\n[validate]\nbaseline = "skip"\n')
    bench.evolver("run", exit=1)
    assert bench.reasons() == ["check: exit 1"]


def test_an_acceptance_says_nothing_of_a_validator_it_did_not_run(bench: Bench) -> None:
    bench.loop(
        """[loop]
max_iters = 2
[codegen]
command = "if [ $EVOLVER_ITERATION = 1 ]; then echo 1 > a.md; else echo 1 > a.py; fi"
[[validator]]
name = "python"
when = ["*.py"]
command = "false"
"""
    )
    bench.evolver("run", exit=0)
    assert bench.reasons() == ["python: exit 1 (already red before the attempt)"]
