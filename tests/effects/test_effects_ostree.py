"""Shows, in a real ostree sysroot: deploy fails, the earlier deployment is the default again; twice in a row; killed in the
middle; a failed action that changed nothing rolls nothing back."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import pytest

from evolver.definition import EffectSection
from evolver.effects.runner import EffectRunner
from evolver.process import sweep_dead_run
from support import in_fork

from .conftest import World
from .sysroot import BRANCH, ENV, OSNAME, WHY_NOT, Sysroot

pytestmark = pytest.mark.skipif(bool(WHY_NOT), reason=WHY_NOT)


@pytest.fixture
def sysroot(world: World, tmp_path: Path) -> Sysroot:
    world.env |= ENV
    return Sysroot(tmp_path)


def deploy(sysroot: Sysroot, *, name: str = "deploy", ref: str = "", script: str = "") -> EffectSection:
    """The registry's own deploy, or a script in its place (`$DEPLOY` is the command up to the ref)."""
    args = {"sysroot": str(sysroot.path), "os": OSNAME, "ref": ref or BRANCH}
    command = f"DEPLOY='ostree admin deploy --sysroot={sysroot.path} --os={OSNAME} --retain'; {script}" if script else None
    return EffectSection(name=name, action="ostree", args=args, run=command)


def run(world: World, *effects: EffectSection, number: int = 1) -> tuple[EffectRunner, str, bool]:
    runner = world.runner(*effects)
    verdict, person = runner.run("after_validate", world.context(number))
    return runner, verdict.reason if verdict is not None else "", person


def test_a_deploy_that_fails_leaves_the_earlier_deployment_the_default(world: World, sysroot: Sysroot) -> None:
    before = sysroot.deployments()
    _, reason, person = run(world, deploy(sysroot, script=f"$DEPLOY {sysroot.v3} && exit 9"))
    assert "exit 9" in reason and "(rolled back)" in reason and not person
    assert sysroot.deployments() == before and sysroot.boots() == sysroot.v2
    assert world.told()[-1][1]["rollback_ref"] == "ostree admin undeploy"


def test_a_deploy_rejected_later_leaves_the_earlier_deployment_the_default(world: World, sysroot: Sysroot) -> None:
    before = sysroot.deployments()
    runner, reason, _ = run(world, deploy(sysroot))
    assert not reason and sysroot.boots() == sysroot.v3
    assert runner.compensate(world.iteration).ok
    assert sysroot.deployments() == before and sysroot.boots() == sysroot.v2


def test_twice_in_a_row(world: World, sysroot: Sysroot) -> None:
    before, effect = sysroot.deployments(), deploy(sysroot, script=f"$DEPLOY {sysroot.v3} && exit 9")
    for number in (1, 2):
        _, reason, person = run(world, effect, number=number)
        assert reason and not person
        assert sysroot.deployments() == before
    runner, _, _ = run(world, deploy(sysroot), number=3)
    for again in (runner, runner, world.runner()):
        assert again.compensate(f"{world.run_id}/3").ok
        assert sysroot.deployments() == before and sysroot.boots() == sysroot.v2


def test_a_failed_action_that_changed_nothing_rolls_nothing_back(world: World, sysroot: Sysroot) -> None:
    before = sysroot.deployments()
    runner, reason, person = run(world, deploy(sysroot, ref="no/such/branch"))
    assert "nothing was rolled back" in reason and not person
    assert runner.compensate(world.iteration).ok
    assert sysroot.deployments() == before
    assert world.edges()[-1] == ("rolling_back", "failed")
    assert not list(world.layout.step_logs.rglob("*.undo.log"))


def test_two_deploys_of_one_iteration_are_both_taken_back(world: World, sysroot: Sysroot) -> None:
    before = sysroot.deployments()
    runner, reason, _ = run(world, deploy(sysroot), deploy(sysroot, name="again", ref=sysroot.v1))
    assert not reason and len(sysroot.deployments()) == 4
    assert runner.compensate(world.iteration).ok
    assert sysroot.deployments() == before and sysroot.boots() == sysroot.v2


def test_the_same_commit_deployed_anew_is_taken_back(world: World, sysroot: Sysroot) -> None:
    """The checksum alone would say that nothing changed."""
    before = sysroot.deployments()
    runner, reason, _ = run(world, deploy(sysroot, script=f"$DEPLOY --karg=quiet {sysroot.v2}"))
    assert not reason and sysroot.deployments() != before
    assert runner.compensate(world.iteration).ok
    assert sysroot.deployments() == before


def test_the_earlier_default_is_deployed_anew_when_the_action_removed_it(world: World, sysroot: Sysroot) -> None:
    # Another branch keeps the commit: what ostree has pruned, nothing brings back.
    sysroot.ostree(f"--repo={sysroot.path}/ostree/repo", "refs", "--create=keep", sysroot.v2)
    script = f"$DEPLOY {sysroot.v3} && ostree admin undeploy --sysroot={sysroot.path} 1 && exit 9"
    _, reason, person = run(world, deploy(sysroot, script=script))
    assert reason and not person
    assert sysroot.boots() == sysroot.v2
    assert [d.partition(".")[0] for d in sysroot.deployments()] == [sysroot.v2, sysroot.v1]


def test_an_earlier_default_that_is_gone_for_good_needs_a_person(world: World, sysroot: Sysroot) -> None:
    script = f"$DEPLOY {sysroot.v3} && ostree admin undeploy --sysroot={sysroot.path} 1 && exit 9"
    _, reason, person = run(world, deploy(sysroot, script=script))
    assert person and "(needs person)" in reason
    assert sysroot.boots() == sysroot.v3


@pytest.mark.parametrize("after", ["before the deploy", "after the deploy"])
def test_killed_in_the_middle_the_next_run_puts_the_default_back(
    world: World, sysroot: Sysroot, tmp_path: Path, after: str
) -> None:
    before, marker = sysroot.deployments(), tmp_path / "marker"
    wait = f"touch {marker}; sleep 600"
    script = f"{wait}; $DEPLOY {sysroot.v3}" if after == "before the deploy" else f"$DEPLOY {sysroot.v3}; {wait}"
    runner, context = world.runner(deploy(sysroot, script=script)), world.context()

    def doomed() -> None:
        runner.run("after_validate", context)

    pid = in_fork(doomed)
    deadline = time.monotonic() + 30
    while not marker.exists():
        assert time.monotonic() < deadline
        time.sleep(0.02)
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    sweep_dead_run(world.run_id, [])
    assert (sysroot.boots() == sysroot.v3) == (after == "after the deploy")
    assert world.runner().compensate(world.iteration).ok
    assert sysroot.deployments() == before and sysroot.boots() == sysroot.v2
    assert world.edges()[-1] == ("rolling_back", "rolled_back" if after == "after the deploy" else "failed")


@pytest.mark.parametrize("point", ["effect.rolling_back", "effect.undone"])
def test_a_rollback_killed_in_the_middle_is_finished_by_the_next_run(world: World, sysroot: Sysroot, point: str) -> None:
    before = sysroot.deployments()
    runner, _, _ = run(world, deploy(sysroot))

    def doomed() -> None:
        os.environ["EVOLVER_CRASH_AT"] = point
        runner.compensate(world.iteration)

    pid = in_fork(doomed)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == -signal.SIGKILL
    assert world.runner().compensate(world.iteration).ok
    assert sysroot.deployments() == before and sysroot.boots() == sysroot.v2


def test_a_sysroot_that_is_none_stops_the_action(world: World, sysroot: Sysroot, tmp_path: Path) -> None:
    effect = EffectSection(name="x", action="ostree", args={"sysroot": str(tmp_path / "none"), "os": OSNAME, "ref": BRANCH})
    verdict, person = world.runner(effect).run("after_validate", world.context())
    assert verdict is not None and "not run" in verdict.reason and not person
