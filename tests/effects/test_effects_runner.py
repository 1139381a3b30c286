"""Effects of commands, run and taken back as an iteration does it. Real processes, the real stream."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from evolver.definition import EffectSection
from evolver.durations import Duration
from evolver.effects.runner import EffectRunner
from evolver.model import Judgement
from support import in_fork

from .conftest import World, command, make_world


def ledger(
    tmp_path: Path, *, fail: bool = False, undo_fails: bool = False, name: str = "act", when: str = "after_validate"
) -> EffectSection:
    """Writes `do NAME` and `undo NAME` into a file outside the worktree."""
    book = tmp_path / "ledger"
    return command(
        name,
        run=f"echo do {name} >> {book}; exit {int(fail)}",
        undo=f"echo undo {name} >> {book}; exit {int(undo_fails)}",
        when=when,
    )


def lines(tmp_path: Path) -> list[str]:
    book = tmp_path / "ledger"
    return book.read_text().splitlines() if book.exists() else []


def test_an_effect_that_succeeds_stays_until_its_iteration_is_rejected(world: World, tmp_path: Path) -> None:
    runner = world.runner(ledger(tmp_path))
    assert runner.run("after_validate", world.context()) == (None, False)
    assert lines(tmp_path) == ["do act"]
    done = runner.compensate(world.iteration)
    assert done.ok and not done.reason and not done.left
    assert lines(tmp_path) == ["do act", "undo act"]
    assert world.edges() == [
        ("approved", "running"),
        ("running", "succeeded"),
        ("succeeded", "rolling_back"),
        ("rolling_back", "rolled_back"),
    ]
    name, data = world.told()[-1]
    assert name == "effect.rolled_back"
    assert data["rollback_ref"] == "undo"


def test_a_failing_effect_is_rolled_back_at_once_without_another_approval(world: World, tmp_path: Path) -> None:
    verdict, person = world.runner(ledger(tmp_path, fail=True)).run("after_validate", world.context())
    assert verdict is not None and verdict.judgement is Judgement.FAIL and not person
    assert "exit 1" in verdict.reason and "(rolled back)" in verdict.reason
    assert lines(tmp_path) == ["do act", "undo act"]
    assert world.edges() == [("approved", "running"), ("running", "rolling_back"), ("rolling_back", "rolled_back")]
    assert [name for name, _ in world.told()].count("effect.approved") == 1


def test_an_effect_that_cannot_be_started_is_rolled_back_at_once(world: World, tmp_path: Path) -> None:
    effect = command(run=("/no/such/program",), undo=f"echo undone >> {tmp_path / 'ledger'}")
    verdict, person = world.runner(effect).run("after_validate", world.context())
    assert verdict is not None and "could not start" in verdict.reason and not person
    assert lines(tmp_path) == ["undone"]
    assert world.edges()[-1] == ("rolling_back", "rolled_back")


def test_an_effect_that_outlasts_its_timeout_is_rolled_back(world: World, tmp_path: Path) -> None:
    effect = command(run="sleep 60", undo=f"echo undone >> {tmp_path / 'ledger'}", timeout=Duration(300))
    begun = time.monotonic()
    verdict, _ = world.runner(effect).run("after_validate", world.context())
    assert time.monotonic() - begun < 10
    assert verdict is not None and "timed out" in verdict.reason
    assert lines(tmp_path) == ["undone"]


def test_a_rollback_that_fails_needs_a_person_and_is_not_tried_again(world: World, tmp_path: Path) -> None:
    runner = world.runner(ledger(tmp_path, fail=True, undo_fails=True))
    verdict, person = runner.run("after_validate", world.context())
    assert verdict is not None and person
    assert world.edges()[-1] == ("rolling_back", "needs_person")
    assert world.told()[-1][0] == "effect.failed"
    for again in (runner, world.runner()):
        done = again.compensate(world.iteration)
        assert not done.ok and "act" in done.reason
    assert lines(tmp_path) == ["do act", "undo act"]


def test_an_effect_without_a_rollback_ends_failed_and_rejects(world: World, tmp_path: Path) -> None:
    effect = command(run=f"echo did >> {tmp_path / 'ledger'}; exit 7", undo="")
    runner = world.runner(effect)
    verdict, person = runner.run("after_validate", world.context())
    assert verdict is not None and verdict.judgement is Judgement.FAIL and not person
    assert world.edges() == [("approved", "running"), ("running", "failed")]
    assert all(data["rollback_available"] is False for _, data in world.told())
    done = runner.compensate(world.iteration)
    assert done.ok and done.left == ("effect act (command): nothing reverts it",)
    assert lines(tmp_path) == ["did"]


def test_what_nothing_reverts_is_named_when_its_iteration_is_rejected(world: World) -> None:
    runner = world.runner(command(undo=""))
    assert runner.run("after_validate", world.context()) == (None, False)
    assert runner.compensate(world.iteration).left == ("effect act (command): nothing reverts it",)
    assert world.edges()[-1] == ("running", "succeeded")


def test_effects_are_compensated_newest_first_across_both_places(world: World, tmp_path: Path) -> None:
    effects = [
        ledger(tmp_path, name=name, when=when)
        for name, when in (("a", "after_validate"), ("b", "before_validate"), ("c", "after_validate"))
    ]
    runner, context = world.runner(*effects), world.context()
    runner.run("before_validate", context)
    runner.run("after_validate", context)
    runner.compensate(world.iteration)
    assert lines(tmp_path) == ["do b", "do a", "do c", "undo c", "undo a", "undo b"]


def test_the_first_failure_stops_the_others_and_rejection_takes_back_the_earlier(world: World, tmp_path: Path) -> None:
    runner = world.runner(ledger(tmp_path, name="a"), ledger(tmp_path, name="b", fail=True), ledger(tmp_path, name="c"))
    verdict, _ = runner.run("after_validate", world.context())
    assert verdict is not None and verdict.step == "b"
    assert lines(tmp_path) == ["do a", "do b", "undo b"]
    runner.compensate(world.iteration)
    assert lines(tmp_path) == ["do a", "do b", "undo b", "undo a"]


def test_one_that_cannot_be_reverted_does_not_keep_the_others_from_being_reverted(world: World, tmp_path: Path) -> None:
    runner = world.runner(ledger(tmp_path, name="a"), ledger(tmp_path, name="b", undo_fails=True))
    runner.run("after_validate", world.context())
    done = runner.compensate(world.iteration)
    assert not done.ok and "effect b" in done.reason and "effect a" not in done.reason
    assert lines(tmp_path) == ["do a", "do b", "undo b", "undo a"]


def test_compensating_twice_does_it_once(world: World, tmp_path: Path) -> None:
    runner = world.runner(ledger(tmp_path))
    runner.run("after_validate", world.context())
    for again in (runner, runner, world.runner()):
        assert again.compensate(world.iteration).ok
    assert lines(tmp_path) == ["do act", "undo act"]


def test_another_process_compensates_from_the_stream_alone(world: World, tmp_path: Path) -> None:
    """The loop file may be gone: the new runner knows no effect."""
    world.runner(ledger(tmp_path, name="a"), ledger(tmp_path, name="b")).run("after_validate", world.context())
    done = world.runner().compensate(world.iteration)
    assert done.ok
    assert lines(tmp_path) == ["do a", "do b", "undo b", "undo a"]
    assert world.edges()[-1] == ("rolling_back", "rolled_back")


def test_what_succeeded_is_left_alone_where_only_the_unsettled_is_settled(world: World, tmp_path: Path) -> None:
    """Mode none: until `resume --rollback`."""
    world.runner(ledger(tmp_path)).run("after_validate", world.context())
    assert world.runner().settle(world.iteration).ok
    assert lines(tmp_path) == ["do act"]
    assert world.runner().compensate(world.iteration).ok
    assert lines(tmp_path) == ["do act", "undo act"]


def test_a_kept_plan_that_was_altered_is_not_run(world: World, tmp_path: Path) -> None:
    world.runner(ledger(tmp_path)).run("after_validate", world.context())
    for kept in (world.layout.state / "effects").rglob("plan.json"):
        kept.write_bytes(kept.read_bytes().replace(b"undo act", b"evil act"))
    done = world.runner().compensate(world.iteration)
    assert not done.ok and "not the one in the event stream" in done.reason
    assert lines(tmp_path) == ["do act"]


def test_a_repair_round_takes_the_earlier_round_back_first(world: World, tmp_path: Path) -> None:
    runner, context = world.runner(ledger(tmp_path)), world.context()
    runner.run("after_validate", context)
    runner.run("after_validate", context)
    assert lines(tmp_path) == ["do act", "undo act", "do act"]
    assert world.runner().compensate(world.iteration).ok
    assert lines(tmp_path) == ["do act", "undo act", "do act", "undo act"]


def test_an_interrupt_takes_the_running_effect_back_uninterrupted(world: World, tmp_path: Path) -> None:
    book = tmp_path / "ledger"
    effect = command(run=f"echo do >> {book}; sleep 60", undo=f"sleep 0.5; echo undo >> {book}")
    threading.Timer(0.5, world.interrupts.trigger, (signal.SIGTERM,)).start()
    threading.Timer(0.8, world.interrupts.trigger, (signal.SIGTERM,)).start()
    begun = time.monotonic()
    verdict, person = world.runner(effect, ledger(tmp_path, name="next")).run("after_validate", world.context())
    assert time.monotonic() - begun < 15
    assert verdict is not None and verdict.judgement is Judgement.INCONCLUSIVE and not person
    assert lines(tmp_path) == ["do", "undo"]


def test_no_effect_is_started_after_a_signal(world: World, tmp_path: Path) -> None:
    world.interrupts.trigger(signal.SIGINT)
    verdict, _ = world.runner(ledger(tmp_path)).run("after_validate", world.context())
    assert verdict is not None and "SIGINT" in verdict.reason
    assert lines(tmp_path) == [] and world.edges() == []


def test_effects_know_their_iteration_and_where_they_are(world: World, tmp_path: Path) -> None:
    (world.root / "sub").mkdir()
    effect = command(
        run=f"env > {tmp_path}/do; pwd >> {tmp_path}/do; exit 1", undo=f"env > {tmp_path}/undo; pwd >> {tmp_path}/undo"
    )
    world.runner(effect).run("after_validate", world.context(cwd=world.root / "sub"))
    for what in ("do", "undo"):
        told = (tmp_path / what).read_text()
        assert f"EVOLVER_RUN_ID={world.run_id}\n" in told
        assert f"EVOLVER_ITERATION_ID={world.iteration}\n" in told
        assert "EVOLVER_PRE_REF=" in told
        assert told.endswith(f"{world.root / 'sub'}\n")


def test_the_undo_runs_although_the_attempt_removed_its_folder(world: World, tmp_path: Path) -> None:
    folder = world.root / "sub"
    folder.mkdir()
    runner = world.runner(ledger(tmp_path))
    runner.run("after_validate", world.context(cwd=folder))
    folder.rmdir()
    assert runner.compensate(world.iteration).ok
    assert lines(tmp_path) == ["do act", "undo act"]


def test_output_is_kept_and_no_command_line_is_in_the_stream(world: World) -> None:
    runner = world.runner(command(run="echo hello; echo sesame-run", undo="echo bye; echo sesame-undo"))
    runner.run("after_validate", world.context())
    logs = {path.name: path.read_text() for path in world.layout.step_logs.rglob("*.log")}
    assert logs == {"effect-act.log": "hello\nsesame-run\n"}
    runner.compensate(world.iteration)
    assert any("bye" in path.read_text() for path in world.layout.step_logs.rglob("*.undo.log"))
    started = [data for name, data in world.told() if name == "effect.started"]
    assert set(started[0]["recorded"]) == {"cwd", "pre_ref"}  # type: ignore[call-overload]
    assert "sesame" not in world.log.path.read_text()


def test_odd_names_are_told_apart(world: World, tmp_path: Path) -> None:
    names = ["../../x", "a/b", "ä ö", "a_b", "a b"]
    runner = world.runner(
        *(command(name, run="true", undo=f"echo {i} >> {tmp_path / 'ledger'}") for i, name in enumerate(names)),
    )
    assert runner.run("after_validate", world.context()) == (None, False)
    assert world.runner().compensate(world.iteration).ok
    assert lines(tmp_path) == ["4", "3", "2", "1", "0"]


def test_a_new_iteration_drops_what_the_earlier_ones_kept(world: World, tmp_path: Path) -> None:
    runner = world.runner(ledger(tmp_path))
    runner.run("after_validate", world.context(1))
    runner.run("after_validate", world.context(2))
    kept = {path.parent.parent.name for path in (world.layout.state / "effects").rglob("plan.json")}
    assert kept == {"2"}


def test_an_accepted_iterations_effects_are_no_longer_anybodys_to_revert(world: World, tmp_path: Path) -> None:
    from evolver.events.types import IterationAccepted

    world.runner(ledger(tmp_path)).run("after_validate", world.context())
    accepted = IterationAccepted(
        from_="accepting",
        to="accepted",
        iteration_id=world.iteration,
        pre_ref="",
        commit="",
        branch=None,
        paths=(),
        paths_total=0,
    )
    world.log.bind(world.run_id).emit(accepted, iteration=1)
    assert world.runner().compensate(world.iteration).ok
    assert lines(tmp_path) == ["do act"]


def test_a_person_who_was_told_is_not_told_again(world: World, tmp_path: Path) -> None:
    """After `resume` the effect that needed a person is theirs; it does not hold the worktree for ever."""
    from evolver.events.types import RunHeld

    world.runner(ledger(tmp_path, fail=True, undo_fails=True)).run("after_validate", world.context())
    assert not world.runner().compensate(world.iteration).ok
    held = RunHeld(
        from_="running",
        to="held",
        iteration_id=world.iteration,
        rollback_mode="hard",
        pre_ref="",
        post_ref=None,
        reason="",
        exit_code=4,
    )
    world.log.bind(world.run_id).emit(held, iteration=1)
    assert world.runner().compensate(world.iteration).ok


# ---------------------------------------------------------------- killed in between

CHILD = """
import sys
from pathlib import Path
sys.path[:0] = [{tests!r}, {tests!r} + "/tests"]
from evolver.events.log import EventLog
from evolver.layout import locate
from tests.effects.conftest import World
from tests.effects.test_effects_runner import ledger
import os
root, tmp = Path(sys.argv[1]), Path(sys.argv[2])
layout = locate(root)
log = EventLog.open(layout.events(None), source="evolver:test", mirror=layout.lifeboat)
world = World(root, layout, log, sys.argv[3], dict(os.environ))
verb = sys.argv[4]
if verb == "run":
    world.runner(ledger(tmp, name="a"), ledger(tmp, name="b", fail="fail" in sys.argv)).run("after_validate", world.context())
elif verb == "compensate":
    assert world.runner().compensate(world.iteration).ok
"""


def in_child(world: World, tmp_path: Path, verb: str, crash: str = "", *more: str) -> int:
    code = CHILD.format(tests=str(Path(__file__).parents[2]))
    env = {**os.environ, "EVOLVER_CRASH_AT": crash} if crash else dict(os.environ)
    argv = [sys.executable, "-c", code, str(world.root), str(tmp_path), world.run_id, verb, *more]
    return subprocess.run(argv, env=env, check=False).returncode


POINTS = ["effect.started:1", "effect.started:2", "effect.ran:1", "effect.ran:2", "effect.succeeded:1", "effect.succeeded:2"]


@pytest.mark.parametrize("point", POINTS)
def test_a_run_killed_in_between_is_compensated_by_the_next(world: World, tmp_path: Path, point: str) -> None:
    assert in_child(world, tmp_path, "run", point) == -signal.SIGKILL
    assert world.runner().compensate(world.iteration).ok
    book = lines(tmp_path)
    for name in "ab":
        # Undone exactly once whenever it was begun; an undo of what had only been announced is allowed, a missing one is not.
        assert book.count(f"undo {name}") == any(data["effect"] == name for _, data in world.told())
        assert f"do {name}" not in book or book.index(f"undo {name}") > book.index(f"do {name}")
    assert not [edge for edge in world.edges() if edge[1] == "needs_person"]


@pytest.mark.parametrize("point", ["effect.rolling_back:1", "effect.undone:1"])
def test_a_rollback_killed_in_between_is_finished_by_the_next(world: World, tmp_path: Path, point: str) -> None:
    assert in_child(world, tmp_path, "run", point, "fail") == -signal.SIGKILL
    assert world.edges()[-1] == ("running", "rolling_back")
    assert in_child(world, tmp_path, "compensate", point) == -signal.SIGKILL  # and recovery can be killed as well
    assert in_child(world, tmp_path, "compensate") == 0
    book = lines(tmp_path)
    assert book.index("undo b") < book.index("undo a")
    assert world.edges()[-1] == ("rolling_back", "rolled_back")
    before = lines(tmp_path)
    assert world.runner().compensate(world.iteration).ok
    assert lines(tmp_path) == before


def test_an_effect_without_a_rollback_that_was_killed_ends_failed(world: World, tmp_path: Path) -> None:
    effect = command(run="true", undo="")
    runner = world.runner(effect)

    def doomed() -> None:
        os.environ["EVOLVER_CRASH_AT"] = "effect.ran"
        runner.run("after_validate", world.context())

    pid = in_fork(doomed)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == -signal.SIGKILL
    done = world.runner().compensate(world.iteration)
    assert done.ok and done.left
    assert world.edges()[-1] == ("running", "failed")


def test_two_worktrees_do_not_mix_their_effects(world: World, tmp_path: Path) -> None:
    other = make_world(tmp_path / "other")
    runners: list[EffectRunner] = []
    for each, folder in ((world, "one"), (other, "two")):
        (tmp_path / folder).mkdir()
        runners.append(each.runner(ledger(tmp_path / folder)))
        runners[-1].run("after_validate", each.context())
    assert runners[0].compensate(world.iteration).ok
    assert lines(tmp_path / "one") == ["do act", "undo act"] and lines(tmp_path / "two") == ["do act"]
