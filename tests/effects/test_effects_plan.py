"""What a loop file may say of an effect, and what its approval covers."""

from __future__ import annotations

from pathlib import Path

import pytest

from evolver.definition import EffectSection
from evolver.durations import Duration
from evolver.effects.plan import load, plan, plans, store
from evolver.effects.registry import REGISTRY
from evolver.errors import UsageError

from .conftest import command

ARGV = {
    "UpdateSystem": ({}, "rpm-ostree upgrade"),
    "InstallPackages": ({"packages": "vim  htop"}, "rpm-ostree install --idempotent vim htop"),
    "RemovePackages": ({"packages": "vim"}, "rpm-ostree uninstall vim"),
    "RebaseSystem": ({"ref": "fedora:fedora/41/x86_64/silverblue"}, "rpm-ostree rebase fedora:fedora/41/x86_64/silverblue"),
    "SetKernelArguments": (
        {"append": "quiet mitigations=off", "delete": "rhgb"},
        "rpm-ostree kargs --append=quiet --append=mitigations=off --delete=rhgb",
    ),
    "AddLayeredPackage": ({"package": "vim"}, "rpm-ostree install --idempotent vim"),
    "RemoveLayeredPackage": ({"package": "vim"}, "rpm-ostree uninstall vim"),
    "ReplaceLayeredPackage": ({"package": "./kernel-6.rpm"}, "rpm-ostree override replace ./kernel-6.rpm"),
    "ResetLayeredPackageOverride": ({"package": "kernel"}, "rpm-ostree override reset kernel"),
    "RemoveBasePackage": ({"package": "firefox"}, "rpm-ostree override remove firefox"),
    "AptUpdate": ({}, "apt-get update"),
    "AptUpgrade": ({}, "apt-get upgrade --yes"),
    "AptInstall": ({"packages": "vim htop"}, "apt-get install --yes vim htop"),
    "AptRemove": ({"packages": "vim"}, "apt-get remove --yes vim"),
    "AddPpa": ({"ppa": "ppa:me/mine"}, "add-apt-repository --yes ppa:me/mine"),
    "RemovePpa": ({"ppa": "ppa:me/mine"}, "add-apt-repository --yes --remove ppa:me/mine"),
    "alembic": ({"config": "db/alembic.ini", "revision": "abc"}, "alembic -c db/alembic.ini upgrade abc"),
    "ostree": (
        {"sysroot": "/sysroot", "os": "debian", "ref": "debian/x86_64"},
        "ostree admin deploy --sysroot=/sysroot --os=debian --retain debian/x86_64",
    ),
}


@pytest.mark.parametrize("action", ARGV)
def test_an_action_builds_its_exact_argv(action: str) -> None:
    args, argv = ARGV[action]
    assert " ".join(plan(EffectSection(name="x", action=action, args=args)).argv) == argv


def test_every_action_has_its_argv_tested() -> None:
    assert set(ARGV) | {"command", "git-worktree"} == set(REGISTRY)


WRONG = {
    "unknown action": (EffectSection(name="x", action="Reboot"), "unknown action 'Reboot'"),
    "no run": (EffectSection(name="x", undo="true"), "run"),
    "empty run": (EffectSection(name="x", run="", undo="true"), "run"),
    "no undo": (EffectSection(name="x", run="true"), "undo"),
    "undo beside an action": (EffectSection(name="x", action="UpdateSystem", undo="true"), "has its own rollback"),
    "undo beside apt": (EffectSection(name="x", action="AptUpdate", undo="true"), "has no rollback"),
    "missing arg": (EffectSection(name="x", action="InstallPackages"), "args.packages"),
    "blank arg": (EffectSection(name="x", action="InstallPackages", args={"packages": "  "}), "args.packages"),
    "option": (EffectSection(name="x", action="InstallPackages", args={"packages": "vim --reboot"}), "args.packages"),
    "option in a word": (EffectSection(name="x", action="RebaseSystem", args={"ref": "--experimental"}), "args.ref"),
    "newline": (EffectSection(name="x", action="AddPpa", args={"ppa": "ppa:a\nb"}), "args.ppa"),
    "unknown arg": (EffectSection(name="x", action="UpdateSystem", args={"reboot": "1"}), "args.reboot"),
    "unknown arg of a command": (command(args={"a": "b"}), "args.a"),
    "no karg": (EffectSection(name="x", action="SetKernelArguments"), "args.append"),
    "relative sysroot": (
        EffectSection(name="x", action="ostree", args={"sysroot": "x", "os": "o", "ref": "r"}),
        "args.sysroot",
    ),
    "transactional": (EffectSection(name="x", action="alembic", args={"transactional": "maybe"}), "args.transactional"),
    "generator after validation": (EffectSection(name="x", action="git-worktree", run="true"), "before_validate"),
    "lower risk": (EffectSection(name="x", action="UpdateSystem", risk="low"), "risk"),
    "NUL in a command": (command(run=("a\0b",)), "NUL"),
    "NUL in an arg": (EffectSection(name="x", action="alembic", args={"config": "a\0b"}), "NUL"),
    "no name": (command(name=" "), "name"),
    "newline in the name": (command(name="a\nb"), "name"),
    "long name": (command(name="a" * 81), "name"),
}


@pytest.mark.parametrize("case", WRONG)
def test_a_wrong_effect_is_a_usage_error_that_names_it(case: str) -> None:
    effect, says = WRONG[case]
    with pytest.raises(UsageError) as caught:
        plan(effect)
    assert says in caught.value.message
    assert caught.value.hint


def test_a_name_may_stand_there_once() -> None:
    with pytest.raises(UsageError, match="twice"):
        plans((command(), command()))


def test_run_may_replace_an_actions_command_and_keeps_its_rollback() -> None:
    found = plan(EffectSection(name="x", action="UpdateSystem", run=("./update.sh",)))
    assert found.argv == ("./update.sh",) and found.rollback_available


def test_rollback_available_of_a_command_is_its_undo() -> None:
    assert plan(command(undo="true")).rollback_available
    assert not plan(command(undo="")).rollback_available
    assert not plan(command(undo=())).rollback_available


def test_risk_may_be_raised_and_for_a_command_set() -> None:
    assert plan(EffectSection(name="x", action="alembic", risk="high")).risk == "high"
    assert plan(command()).risk == "high"
    assert not plan(command(risk="low")).risky


CHANGES = {
    "run": command(run="false"),
    "undo": command(undo="false"),
    "no undo": command(undo=""),
    "when": command(when="before_validate"),
    "risk": command(risk="medium"),
    "timeout": command(timeout=Duration.parse("1s")),
    "name": command(name="other"),
    "action": EffectSection(name="act", action="git-worktree", when="before_validate", run="true"),
}


@pytest.mark.parametrize("change", CHANGES)
def test_any_change_changes_the_hash_that_is_approved(change: str) -> None:
    assert plan(CHANGES[change]).definition_hash != plan(command()).definition_hash


def test_the_hash_is_stable() -> None:
    assert plan(command()).definition_hash == plan(command()).definition_hash
    assert len(plan(command()).definition_hash) == 64


def test_a_kept_plan_is_believed_only_under_its_hash(tmp_path: Path) -> None:
    one = plan(command())
    store(tmp_path / "kept", one)
    assert load(tmp_path / "kept", one.definition_hash) == one
    assert isinstance(load(tmp_path / "kept", "0" * 64), str)
    other = tmp_path / "kept/plan.json"
    other.write_bytes(other.read_bytes().replace(b'"true"', b'"evil"'))
    assert isinstance(load(tmp_path / "kept", one.definition_hash), str)
    assert isinstance(load(tmp_path / "none", one.definition_hash), str)
