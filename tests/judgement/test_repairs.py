"""Repair rounds: more calls on top of a failed attempt, told what failed; one iteration, one verdict."""

from __future__ import annotations

from judgement.bench import Bench


def loop(bench: Bench, codegen: str, validate: str, repairs: int = 2, iters: int = 1) -> None:
    bench.loop(
        f"""[loop]
max_iters = {iters}
[codegen]
command = '''{codegen}'''
repairs = {repairs}
[[validator]]
name = "check"
command = '''{validate}'''
"""
    )


def test_a_repair_builds_on_the_failed_attempt_and_is_told_what_failed(bench: Bench) -> None:
    told = bench.root.parent / "told"
    loop(bench, f"echo x >> app.txt; cat $EVOLVER_LAST_FAILURE >> {told}", "echo want three; test $(grep -c x app.txt) = 3")
    bench.evolver("run", exit=0)
    assert bench.git("show", "HEAD:app.txt") == "0\nx\nx\nx"
    assert bench.last("run.finished")["iterations"] == 1
    rounds = [e["data"]["round"] for e in bench.events("step.started", 1) if e["data"]["step"] == "codegen"]
    assert rounds == [0, 1, 2]
    assert told.read_text().count("want three") == 2
    assert len(bench.events("iteration.accepted")) == 1
    assert not bench.events("rollback.started")


def test_when_repairs_are_used_up_the_whole_attempt_is_rejected_once(bench: Bench) -> None:
    before = bench.tree()
    loop(bench, "echo x >> app.txt", "false")
    tree = bench.tree()
    bench.evolver("run", exit=1)
    assert bench.calls() == 3
    assert len(bench.events("rollback.finished")) == 1
    assert bench.last("run.finished")["rolled_back"] == 1
    assert bench.tree() == tree
    assert before["app.txt"] == tree["app.txt"]


def test_a_failed_codegen_is_repaired_as_well(bench: Bench) -> None:
    loop(bench, "echo x >> app.txt; test $(grep -c x app.txt) = 2", "true")
    bench.evolver("run", exit=0)
    assert bench.calls() == 2


def test_a_broken_guard_is_repaired_as_well(bench: Bench) -> None:
    loop(bench, "if [ -e loops/x ]; then rm loops/x; echo 1 > app.txt; else echo > loops/x; fi", "true")
    path = bench.root / "loops/default.toml"
    path.write_text(path.read_text() + '[guard]\nprotected = ["loops/"]\n')
    bench.commit()
    bench.evolver("run", exit=0)
    assert bench.git("show", "--name-only", "--format=", "HEAD") == "app.txt"
