"""Shows: an unapproved effect, an approved one, a definition changed after approval (asks again), approve = "never"."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from evolver.effects import approval
from evolver.effects.plan import plan
from evolver.errors import PreflightError
from evolver.events.log import EventLog
from evolver.events.types import RunPaused

from .conftest import World, command


def grant(world: World, *effects: object) -> None:
    for effect in effects:
        world.log.emit(approval.event(plan(effect), "ann"))  # type: ignore[arg-type]


def test_a_risky_effect_nobody_approved_is_refused_with_the_command_to_run(world: World) -> None:
    with pytest.raises(PreflightError) as caught:
        world.runner(command(), approve="ask", loop="night").preflight()
    assert "'act'" in caught.value.message and "risk high" in caught.value.message
    assert "`evolver effects approve night`" in caught.value.hint
    assert caught.value.exit_code == 5
    assert world.told() == []


def test_an_approved_effect_runs(world: World) -> None:
    grant(world, command())
    runner = world.runner(command(), approve="ask")
    runner.preflight()
    assert runner.run("after_validate", world.context()) == (None, False)


@pytest.mark.parametrize("changed", [command(run="false"), command(undo="false"), command(risk="medium")])
def test_a_definition_changed_after_approval_asks_again(world: World, changed: object) -> None:
    grant(world, command())
    with pytest.raises(PreflightError):
        world.runner(changed, approve="ask").preflight()  # type: ignore[arg-type]
    grant(world, changed)
    world.runner(changed, approve="ask").preflight()  # type: ignore[arg-type]
    world.runner(command(), approve="ask").preflight()  # the earlier grant holds as well


def test_one_approval_does_not_cover_another_effect(world: World) -> None:
    grant(world, command("a"))
    with pytest.raises(PreflightError) as caught:
        world.runner(command("a"), command("b"), approve="ask").preflight()
    assert "'b'" in caught.value.message and "'a'" not in caught.value.message


def test_never_refuses_an_approved_effect_too(world: World) -> None:
    grant(world, command())
    with pytest.raises(PreflightError, match='"never"'):
        world.runner(command(), approve="never").preflight()


@pytest.mark.parametrize("policy", ["ask", "listed", "never"])
def test_an_effect_without_risk_needs_nobody(world: World, policy: approval.Policy) -> None:
    world.runner(command(risk="low"), approve=policy).preflight()


def test_what_the_loop_file_approves_is_in_the_chain_and_is_no_persons_grant(world: World) -> None:
    runner = world.runner(command(), approve="listed")
    runner.preflight()
    runner.run("after_validate", world.context(1))
    runner.run("after_validate", world.context(2))
    told = [data for name, data in world.told() if name == "effect.approved"]
    assert [(data["from"], data["to"], data["by"]) for data in told] == [("queued", "approved", "loop file")]
    with pytest.raises(PreflightError):
        world.runner(command(), approve="ask").preflight()


def test_an_event_that_only_mentions_the_hash_approves_nothing(world: World) -> None:
    digest = plan(command()).definition_hash
    world.log.emit(
        RunPaused(from_="running", to="paused", reason=f'"type":"dev.evolver.effect.approved" "definition_hash":"{digest}"')
    )
    with pytest.raises(PreflightError):
        world.runner(command(), approve="ask").preflight()


def test_a_line_whose_hash_does_not_fit_approves_nothing(world: World) -> None:
    grant(world, command("other"))
    path = world.log.path
    old, new = (plan(command(name)).definition_hash for name in ("other", "act"))
    path.write_bytes(path.read_bytes().replace(old.encode(), new.encode()))
    assert approval.granted(path, {new}) == frozenset()


def test_approvals_are_found_in_closed_segments(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    with EventLog.open(path, source="evolver:test", segment_size=2000) as log:
        log.emit(approval.event(plan(command()), "ann"))
        for _ in range(20):
            log.emit(RunPaused(from_="running", to="paused"))
    digest = plan(command()).definition_hash
    assert len(list(tmp_path.glob("events*.jsonl"))) > 2
    assert approval.granted(path, {digest, "0" * 64}) == {digest}


def test_no_stream_is_no_approval(tmp_path: Path) -> None:
    assert approval.granted(tmp_path / "events.jsonl", {"0" * 64}) == frozenset()
    (tmp_path / "events.jsonl").write_bytes(b"")
    assert approval.granted(tmp_path / "events.jsonl", {"0" * 64}) == frozenset()


def test_looking_it_up_in_a_long_stream_is_quick(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    with EventLog.open(path, source="evolver:test") as log:
        log.emit(approval.event(plan(command()), "ann"))
        log.emit(RunPaused(from_="running", to="paused", reason="x" * 100))
    line = path.read_bytes().splitlines(keepends=True)[-1]
    with path.open("ab") as file:
        for _ in range(100):
            file.write(line * 2000)
    begun = time.monotonic()
    assert approval.granted(path, {plan(command()).definition_hash})
    assert time.monotonic() - begun < 3  # about 130 MB
