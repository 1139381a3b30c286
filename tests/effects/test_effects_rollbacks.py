"""Shows: rollback_available is an equivalence over every registered action, and each available rollback is executed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from evolver.definition import EffectSection
from evolver.effects.plan import plan
from evolver.effects.registry import REGISTRY

from . import test_effects_alembic as alembic
from . import test_effects_plan as argvs
from .conftest import World, command, git
from .sysroot import BRANCH, ENV, OSNAME, WHY_NOT, Sysroot
from .test_effects_rpm_ostree import ROLLBACK, Host

State = Callable[[], object]
Scenario = tuple[EffectSection, State]


def _command(world: World, tmp_path: Path) -> Scenario:
    (tmp_path / "outside").write_text("before")
    effect = command(run=f"echo after > {tmp_path}/outside", undo=f"printf before > {tmp_path}/outside")
    return effect, (tmp_path / "outside").read_text


def _git_worktree(world: World, tmp_path: Path) -> Scenario:
    effect = EffectSection(
        name="x", action="git-worktree", when="before_validate", run="echo x >> file.txt; echo y > new; git add new"
    )
    return effect, lambda: (git(world.root, "status", "--porcelain"), (world.root / "file.txt").read_text())


def _alembic(world: World, tmp_path: Path) -> Scenario:
    if not alembic.PROGRAM.exists():
        pytest.skip("alembic is not installed beside this Python")
    world.env["PATH"] = f"{alembic.PROGRAM.parent}:{world.env['PATH']}"
    project = alembic.Project(world.root)
    project.at_r1()
    project.migration("r2", "r1", alembic.TABLE.format("more"), 'op.drop_table("more")')
    return EffectSection(name="x", action="alembic"), project.schema


def _ostree(world: World, tmp_path: Path) -> Scenario:
    if WHY_NOT:
        pytest.skip(WHY_NOT)
    world.env |= ENV
    sysroot = Sysroot(tmp_path)
    args = {"sysroot": str(sysroot.path), "os": OSNAME, "ref": BRANCH}
    return EffectSection(name="x", action="ostree", args=args), lambda: (sysroot.deployments(), sysroot.boots())


def _rpm_ostree(action: str) -> Callable[[World, Path], Scenario]:
    def scenario(world: World, tmp_path: Path) -> Scenario:
        host = Host(tmp_path, world)
        args, _ = argvs.ARGV[action]
        return EffectSection(name="x", action=action, args=args), lambda: host.default

    return scenario


SCENARIOS: dict[str, Callable[[World, Path], Scenario]] = {
    "command": _command,
    "git-worktree": _git_worktree,
    "alembic": _alembic,
    "ostree": _ostree,
    **{name: _rpm_ostree(name) for name, spec in REGISTRY.items() if spec.family == "rpm-ostree"},
}


@pytest.mark.parametrize("name", REGISTRY)
def test_rollback_available_says_exactly_that_a_rollback_spec_exists(name: str) -> None:
    spec = REGISTRY[name]
    assert spec.name == name
    assert spec.rollback_available == (spec.rollback is not None)
    assert not spec.rollback_available or spec.mutating  # what changes nothing needs no way back


def test_every_available_rollback_is_executed_below() -> None:
    assert set(SCENARIOS) == {name for name, spec in REGISTRY.items() if spec.rollback_available}


def test_the_documents_rpm_ostree_actions_are_all_there() -> None:
    named = """UpdateSystem InstallPackages RemovePackages RebaseSystem SetKernelArguments AddLayeredPackage
        RemoveLayeredPackage ReplaceLayeredPackage ResetLayeredPackageOverride RemoveBasePackage"""
    found = {name: spec for name, spec in REGISTRY.items() if spec.family == "rpm-ostree"}
    assert set(found) == set(named.split())
    assert {spec.rollback.ref for spec in found.values() if spec.rollback is not None} == {"rpm-ostree rollback"}


def test_nothing_of_the_apt_family_can_be_rolled_back_and_each_says_so() -> None:
    family = [spec for spec in REGISTRY.values() if spec.family == "apt"]
    assert family
    for spec in family:
        assert not spec.rollback_available and "no deployment rollback on apt" in spec.note


@pytest.mark.parametrize("name", SCENARIOS)
def test_an_available_rollback_reverts_what_failed(name: str, world: World, tmp_path: Path) -> None:
    effect, state = SCENARIOS[name](world, tmp_path)
    before = state()
    argv = plan(effect).argv
    quoted = " ".join("'" + word.replace("'", "'\\''") + "'" for word in argv)
    failing = EffectSection(
        name="x", action=effect.action, when=effect.when, args=effect.args, undo=effect.undo, run=f"{quoted} && exit 7"
    )
    verdict, person = world.runner(failing).run(effect.when, world.context())
    assert verdict is not None and "exit 7" in verdict.reason and not person
    assert state() == before
    assert world.edges()[-1] == ("rolling_back", "rolled_back")


@pytest.mark.parametrize("name", SCENARIOS)
def test_an_available_rollback_reverts_what_was_rejected_later(name: str, world: World, tmp_path: Path) -> None:
    effect, state = SCENARIOS[name](world, tmp_path)
    before = state()
    runner = world.runner(effect)
    assert runner.run(effect.when, world.context()) == (None, False)
    assert state() != before
    assert runner.compensate(world.iteration).ok
    assert state() == before
    assert world.edges()[-1] == ("rolling_back", "rolled_back")
    if REGISTRY[name].family == "rpm-ostree":
        assert (tmp_path / "host.argv").read_text().count('"rollback"') == 1 and ROLLBACK == ["rpm-ostree", "rollback"]
