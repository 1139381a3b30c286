"""Shows: `rpm-ostree` by its exact argv through a stand-in on PATH. It has not been run on a real host."""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path

import pytest

from evolver.definition import EffectSection
from evolver.durations import Duration
from support import Repo, in_fork

from .conftest import World
from .rpm_ostree_standin import deployment

ROLLBACK = ["rpm-ostree", "rollback"]
CLEANUP = ["rpm-ostree", "cleanup", "--pending"]
STATUS = ["rpm-ostree", "status", "--json"]
INSTALL = EffectSection(name="install", action="InstallPackages", args={"packages": "vim"})
KARGS = EffectSection(name="kargs", action="SetKernelArguments", args={"append": "quiet"})

# Kinds of hosts, the deployment that is the default at first always 5: how they are set up, and what leads back there.
KINDS = {
    "booted, nothing older": ([deployment(5, booted=True)], False, ROLLBACK),
    "not booted (an image being built)": ([deployment(5), deployment(4)], False, ROLLBACK),
    "booted, stages": ([deployment(5, booted=True), deployment(4)], True, CLEANUP),
    "booted, something older": ([deployment(5, booted=True), deployment(4)], False, CLEANUP),
}


class Host:
    """A host whose default is deployment 5."""

    def __init__(self, folder: Path, world: World | Repo, kind: str = "booted, nothing older") -> None:
        deployments, staging, self.undo = KINDS[kind]
        self.state = folder / "host.json"
        self.state.write_text(json.dumps({"deployments": deployments, "transaction": None, "staging": staging}))
        program = folder / "bin/rpm-ostree"
        program.parent.mkdir()
        standin = Path(__file__).with_name("rpm_ostree_standin.py")
        program.write_text(f'#!/bin/sh\nexec "{sys.executable}" "{standin}" "$@"\n')
        program.chmod(0o755)
        path = f"{program.parent}:{world.env.get('PATH', os.environ['PATH'])}"
        world.env |= {"PATH": path, "RPM_OSTREE_STATE": str(self.state)}

    @property
    def deployments(self) -> list[int]:
        return [int(d["checksum"], 16) for d in json.loads(self.state.read_text())["deployments"]]

    @property
    def default(self) -> int:
        return self.deployments[0]

    def set(self, **fields: object) -> None:
        self.state.write_text(json.dumps(json.loads(self.state.read_text()) | fields))

    @property
    def ran(self) -> list[list[str]]:
        """Every exact argv but the questions."""
        log = self.state.with_suffix(".argv")
        every = [json.loads(line) for line in log.read_text().splitlines()] if log.exists() else []
        return [argv for argv in every if argv != STATUS]

    @property
    def backs(self) -> list[list[str]]:
        return [argv for argv in self.ran if argv in (ROLLBACK, CLEANUP)]


@pytest.fixture(params=KINDS)
def host(world: World, tmp_path: Path, request: pytest.FixtureRequest) -> Host:
    return Host(tmp_path, world, request.param)


@pytest.fixture
def plain(world: World, tmp_path: Path) -> Host:
    return Host(tmp_path, world)


def test_a_change_that_fails_late_is_rolled_back_at_once(world: World, host: Host) -> None:
    world.env["RPM_OSTREE_FAIL"] = "late"
    verdict, person = world.runner(INSTALL).run("after_validate", world.context())
    assert verdict is not None and not person
    assert host.ran == [["rpm-ostree", "install", "--idempotent", "vim"], host.undo]
    assert host.default == 5
    name, data = world.told()[-1]
    assert name == "effect.rolled_back" and data["rollback_ref"] == " ".join(host.undo)


def test_a_failed_depsolve_changed_nothing_and_does_not_move_the_host_back(world: World, host: Host) -> None:
    world.env["RPM_OSTREE_FAIL"] = "depsolve"
    before, runner = host.deployments, world.runner(INSTALL)
    verdict, person = runner.run("after_validate", world.context())
    assert verdict is not None and "nothing was rolled back" in verdict.reason and not person
    assert runner.compensate(world.iteration).ok
    assert host.backs == [] and host.deployments == before
    assert world.edges()[-2:] == [("running", "rolling_back"), ("rolling_back", "failed")]


def test_a_later_rejection_rolls_back_once(world: World, host: Host) -> None:
    runner = world.runner(INSTALL)
    assert runner.run("after_validate", world.context()) == (None, False)
    assert host.default == 6
    for again in (runner, runner, world.runner()):
        assert again.compensate(world.iteration).ok
    assert host.backs == [host.undo] and host.default == 5


def test_twice_in_a_row(world: World, host: Host) -> None:
    runner = world.runner(INSTALL)
    for number in (1, 2):
        assert runner.run("after_validate", world.context(number)) == (None, False)
        assert runner.compensate(f"{world.run_id}/{number}").ok
        assert host.default == 5
    assert len(host.backs) == 2


BOOTED = [kind for kind in KINDS if kind.startswith("booted")]


@pytest.mark.parametrize("kind", BOOTED)
def test_two_changes_of_one_iteration_end_where_it_began(world: World, tmp_path: Path, kind: str) -> None:
    """The second pending deployment replaces the first, so one way back already reaches the earlier default."""
    host = Host(tmp_path, world, kind)
    runner = world.runner(INSTALL, KARGS)
    assert runner.run("after_validate", world.context()) == (None, False)
    assert runner.compensate(world.iteration).ok
    assert host.default == 5 and len(host.backs) == 1
    assert [data["effect"] for name, data in world.told() if name == "effect.rolled_back"] == ["kargs", "install"]


@pytest.mark.parametrize("kind", BOOTED)
@pytest.mark.parametrize("fail", ["late", "depsolve"])
def test_the_second_change_fails_and_the_first_is_compensated(world: World, tmp_path: Path, kind: str, fail: str) -> None:
    host = Host(tmp_path, world, kind)
    second = EffectSection(
        name="second", action="SetKernelArguments", run=f"RPM_OSTREE_FAIL={fail} rpm-ostree kargs --append=x"
    )
    runner = world.runner(INSTALL, second)
    verdict, person = runner.run("after_validate", world.context())
    assert verdict is not None and not person
    assert runner.compensate(world.iteration).ok
    assert host.default == 5 and len(host.backs) == 1


def test_a_rollback_that_fails_needs_a_person_and_is_not_run_again(world: World, host: Host) -> None:
    world.runner(INSTALL).run("after_validate", world.context())
    world.env["RPM_OSTREE_FAIL"] = "rollback"
    again = world.runner()
    for runner in (again, again, world.runner()):
        assert not runner.compensate(world.iteration).ok
    assert "Read-only file system" in str(world.told()[-1][1]["reason"])
    assert len(host.backs) == 1
    assert world.edges()[-1] == ("rolling_back", "needs_person")


def test_a_pending_update_that_the_action_replaced_is_not_traded_for_another_deployment(world: World, plain: Host) -> None:
    plain.set(deployments=[deployment(7), deployment(5, booted=True), deployment(4)])
    runner = world.runner(INSTALL)
    runner.run("after_validate", world.context())
    done = runner.compensate(world.iteration)
    assert not done.ok and "none was run" in done.reason
    assert plain.backs == []


def test_a_way_back_that_reaches_another_deployment_needs_a_person(world: World, plain: Host) -> None:
    world.runner(INSTALL).run("after_validate", world.context())
    program = plain.state.with_name("bin") / "rpm-ostree"
    lies = json.dumps({"deployments": [deployment(9)]})
    program.write_text(
        program.read_text().replace("exec", f"[ \"$1\" = rollback ] && echo '{lies}' > {plain.state} && exit 0\nexec")
    )
    done = world.runner().compensate(world.iteration)
    assert not done.ok
    assert "it ran, but the default is" in str(world.told()[-1][1]["reason"])


@pytest.mark.parametrize("where", ["kill-first", "kill"])
def test_killed_in_the_middle_the_next_run_completes_and_never_goes_back_twice(world: World, host: Host, where: str) -> None:
    """The stand-in kills evolver: after the change was made, or after the way back was."""
    context = world.context()

    def doomed() -> None:
        world.env["RPM_OSTREE_FAIL"] = where
        runner = world.runner(INSTALL)
        runner.run("after_validate", context)
        runner.compensate(world.iteration)

    pid = in_fork(doomed)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == -signal.SIGKILL
    assert world.runner().compensate(world.iteration).ok
    assert world.runner().compensate(world.iteration).ok
    assert host.backs == [host.undo] and host.default == 5
    assert world.edges()[-1] == ("rolling_back", "rolled_back")


def test_killed_between_the_intent_and_the_swap_a_person_is_asked(world: World, host: Host) -> None:
    """Nobody can tell whether the daemon still has the swap before it: a second one could undo the first."""
    runner, context = world.runner(INSTALL), world.context()
    runner.run("after_validate", context)

    def doomed() -> None:
        os.environ["EVOLVER_CRASH_AT"] = "effect.rolling_back"
        runner.compensate(world.iteration)

    pid = in_fork(doomed)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == -signal.SIGKILL
    assert not world.runner().compensate(world.iteration).ok
    assert "not run twice" in str(world.told()[-1][1]["reason"])
    assert host.backs == []


def test_without_the_tool_the_action_is_not_run(world: World) -> None:
    verdict, person = world.runner(INSTALL).run("after_validate", world.context())
    assert verdict is not None and "not run" in verdict.reason and not person
    assert world.edges() == [("approved", "failed")]


def test_a_busy_daemon_is_waited_for(world: World, plain: Host) -> None:
    plain.set(transaction=["install", ":1.1", "/"])
    effect = EffectSection(name="install", action="InstallPackages", args={"packages": "vim"}, timeout=Duration(700))
    verdict, _ = world.runner(effect).run("after_validate", world.context())
    assert verdict is not None and "busy" in verdict.reason
    assert plain.ran == []


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"deployments": []}', '{"deployments": [{"id": 3}]}'])
def test_an_answer_that_is_not_understood_stops_the_action(world: World, plain: Host, text: str) -> None:
    program = plain.state.with_name("bin") / "rpm-ostree"
    program.write_text(f"#!/bin/sh\necho '{text}'; echo \"$@\" >> {plain.state}.ran\n")
    verdict, _ = world.runner(INSTALL).run("after_validate", world.context())
    assert verdict is not None and "not run" in verdict.reason
    assert set(Path(f"{plain.state}.ran").read_text().splitlines()) == {"status --json"}
