"""Shows: `rpm-ostree` by its exact argv through a stand-in on PATH. It has not been run on a real host."""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path

import pytest

from evolver.definition import EffectSection

from .conftest import World
from .rpm_ostree_standin import deployment

ROLLBACK = ["rpm-ostree", "rollback"]
STATUS = ["rpm-ostree", "status", "--json"]
INSTALL = EffectSection(name="install", action="InstallPackages", args={"packages": "vim"})
KARGS = EffectSection(name="kargs", action="SetKernelArguments", args={"append": "quiet"})


class Host:
    """A host with the booted deployment 1 as its default and an older one, 0, behind it."""

    def __init__(self, folder: Path, world: World) -> None:
        self.state = folder / "host.json"
        self.state.write_text(json.dumps({"deployments": [deployment(1), deployment(0)], "transaction": None}))
        program = folder / "bin/rpm-ostree"
        program.parent.mkdir()
        standin = Path(__file__).with_name("rpm_ostree_standin.py")
        program.write_text(f'#!/bin/sh\nexec "{sys.executable}" "{standin}" "$@"\n')
        program.chmod(0o755)
        world.env |= {"PATH": f"{program.parent}:{world.env['PATH']}", "RPM_OSTREE_STATE": str(self.state)}

    @property
    def default(self) -> int:
        return int(json.loads(self.state.read_text())["deployments"][0]["checksum"], 16)

    @property
    def deployments(self) -> list[int]:
        return [int(d["checksum"], 16) for d in json.loads(self.state.read_text())["deployments"]]

    def set(self, **fields: object) -> None:
        self.state.write_text(json.dumps(json.loads(self.state.read_text()) | fields))

    @property
    def ran(self) -> list[list[str]]:
        """Every exact argv but the questions."""
        log = self.state.with_suffix(".argv")
        every = [json.loads(line) for line in log.read_text().splitlines()] if log.exists() else []
        return [argv for argv in every if argv != STATUS]


@pytest.fixture
def host(world: World, tmp_path: Path) -> Host:
    return Host(tmp_path, world)


def test_a_change_that_fails_late_is_rolled_back_at_once(world: World, host: Host) -> None:
    world.env["RPM_OSTREE_FAIL"] = "late"
    verdict, person = world.runner(INSTALL).run("after_validate", world.context())
    assert verdict is not None and not person
    assert host.ran == [["rpm-ostree", "install", "--idempotent", "vim"], ROLLBACK]
    assert host.default == 1
    name, data = world.told()[-1]
    assert name == "effect.rolled_back" and data["rollback_ref"] == "rpm-ostree rollback"


def test_a_failed_depsolve_changed_nothing_and_does_not_move_the_host_back(world: World, host: Host) -> None:
    world.env["RPM_OSTREE_FAIL"] = "depsolve"
    runner = world.runner(INSTALL)
    verdict, person = runner.run("after_validate", world.context())
    assert verdict is not None and "nothing was rolled back" in verdict.reason and not person
    assert runner.compensate(world.iteration).ok
    assert ROLLBACK not in host.ran and host.deployments == [1, 0]
    assert world.edges()[-2:] == [("running", "rolling_back"), ("rolling_back", "failed")]


def test_a_later_rejection_rolls_back_once(world: World, host: Host) -> None:
    runner = world.runner(INSTALL)
    assert runner.run("after_validate", world.context()) == (None, False)
    assert host.default == 2
    for again in (runner, runner, world.runner()):
        assert again.compensate(world.iteration).ok
    assert host.ran.count(ROLLBACK) == 1 and host.default == 1


def test_two_changes_of_one_iteration_end_where_it_began(world: World, host: Host) -> None:
    """The second pending deployment replaces the first, so one swap already reaches the earlier default; a second would leave it."""
    runner = world.runner(INSTALL, KARGS)
    assert runner.run("after_validate", world.context()) == (None, False)
    assert host.deployments == [3, 1, 0]
    assert runner.compensate(world.iteration).ok
    assert host.default == 1 and host.ran.count(ROLLBACK) == 1
    assert [data["effect"] for name, data in world.told() if name == "effect.rolled_back"] == ["kargs", "install"]


def test_the_second_fails_late_and_the_first_is_compensated(world: World, host: Host) -> None:
    late = EffectSection(
        name="late", action="SetKernelArguments", run=("sh", "-c", "RPM_OSTREE_FAIL=late rpm-ostree kargs --append=x")
    )
    runner = world.runner(INSTALL, late)
    verdict, person = runner.run("after_validate", world.context())
    assert verdict is not None and not person
    assert runner.compensate(world.iteration).ok
    assert host.default == 1 and host.ran.count(ROLLBACK) == 1


def test_the_second_changes_nothing_and_the_first_is_compensated(world: World, host: Host) -> None:
    depsolve = EffectSection(
        name="late", action="InstallPackages", run=("sh", "-c", "RPM_OSTREE_FAIL=depsolve rpm-ostree install x")
    )
    runner = world.runner(INSTALL, depsolve)
    verdict, person = runner.run("after_validate", world.context())
    assert verdict is not None and not person and host.default == 2
    assert runner.compensate(world.iteration).ok
    assert host.default == 1 and host.ran.count(ROLLBACK) == 1


def test_a_rollback_that_fails_needs_a_person_and_is_not_run_again(world: World, host: Host) -> None:
    runner = world.runner(INSTALL)
    runner.run("after_validate", world.context())
    world.env["RPM_OSTREE_FAIL"] = "rollback"
    again = world.runner()
    for again in (again, again, world.runner()):
        done = again.compensate(world.iteration)
        assert not done.ok and "No rollback deployment found" in done.reason + str(world.told()[-1])
    assert host.ran.count(ROLLBACK) == 1
    assert world.edges()[-1] == ("rolling_back", "needs_person")


def test_a_pending_deployment_that_is_gone_is_not_replaced_by_another(world: World, host: Host) -> None:
    """The default was an update waiting for a reboot; the action replaced it. A swap would reach a third deployment."""
    host.set(deployments=[deployment(7) | {"booted": False}, deployment(1), deployment(0)])
    runner = world.runner(INSTALL)
    runner.run("after_validate", world.context())
    done = runner.compensate(world.iteration)
    assert not done.ok and "is gone" in done.reason
    assert ROLLBACK not in host.ran


def test_a_rollback_that_reaches_another_deployment_needs_a_person(world: World, host: Host) -> None:
    host.set(
        deployments=[deployment(1) | {"booted": False}, deployment(5) | {"booted": False}, deployment(0) | {"booted": False}]
    )
    runner = world.runner(INSTALL)
    runner.run("after_validate", world.context())
    state = json.loads(host.state.read_text())["deployments"]
    host.set(deployments=[state[0], deployment(5) | {"booted": True}, deployment(1) | {"booted": False}])
    done = runner.compensate(world.iteration)
    assert not done.ok and "it ran, but the default is" in done.reason


@pytest.mark.parametrize(("where", "rollbacks"), [("kill-first", 1), ("kill", 1)])
def test_killed_in_the_middle_the_next_run_completes_and_never_swaps_twice(
    world: World, host: Host, where: str, rollbacks: int
) -> None:
    """The stand-in kills evolver: after the change was made, or after the swap was made."""
    context = world.context()
    pid = os.fork()
    if pid == 0:  # pragma: no cover
        world.env["RPM_OSTREE_FAIL"] = where
        runner = world.runner(INSTALL)
        runner.run("after_validate", context)
        runner.compensate(world.iteration)
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == -signal.SIGKILL
    assert world.runner().compensate(world.iteration).ok
    assert world.runner().compensate(world.iteration).ok
    assert host.ran.count(ROLLBACK) == rollbacks and host.default == 1
    assert world.edges()[-1] == ("rolling_back", "rolled_back")


def test_killed_between_the_intent_and_the_swap_a_person_is_asked(world: World, host: Host) -> None:
    """Nobody can tell whether the daemon still has the swap before it: a second one could undo the first."""
    runner, context = world.runner(INSTALL), world.context()
    runner.run("after_validate", context)
    pid = os.fork()
    if pid == 0:  # pragma: no cover
        os.environ["EVOLVER_CRASH_AT"] = "effect.rolling_back"
        runner.compensate(world.iteration)
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == -signal.SIGKILL
    done = world.runner().compensate(world.iteration)
    assert not done.ok and "not run twice" in done.reason
    assert ROLLBACK not in host.ran


def test_without_the_tool_the_action_is_not_run(world: World) -> None:
    verdict, person = world.runner(INSTALL).run("after_validate", world.context())
    assert verdict is not None and "not run" in verdict.reason and not person
    assert world.edges() == [("approved", "failed")]


def test_a_busy_daemon_is_waited_for(world: World, host: Host) -> None:
    from evolver.durations import Duration

    host.set(transaction=["install", ":1.1", "/"])
    effect = EffectSection(name="install", action="InstallPackages", args={"packages": "vim"}, timeout=Duration(700))
    verdict, _ = world.runner(effect).run("after_validate", world.context())
    assert verdict is not None and "busy" in verdict.reason
    assert host.ran == []


def test_an_answer_that_is_not_understood_stops_the_action(world: World, host: Host) -> None:
    for text in ("", "[]", '{"deployments": []}', '{"deployments": [{"id": 3}]}'):
        host.state.write_text(text if text.startswith("{") else "{}")
        verdict, _ = world.runner(INSTALL).run("after_validate", world.context())
        assert verdict is not None and "not run" in verdict.reason
    assert host.ran == []
