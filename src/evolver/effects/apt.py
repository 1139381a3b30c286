"""The apt family. dpkg changes the running system in place and keeps no earlier deployment: nothing here can be reverted."""

from __future__ import annotations

from evolver.effects.spec import ActionSpec, Arguments

WARNING = " (no deployment rollback on apt)"
NOTE = "no deployment rollback on apt: what it changed stays when the iteration is rejected"


def _action(name: str, summary: str, argv: tuple[str, ...], takes: str = "") -> ActionSpec:
    def build(args: Arguments) -> tuple[str, ...]:
        match takes:
            case "":
                return argv
            case "ppa":
                return (*argv, args.word("ppa"))
            case _:
                return (*argv, *args.words(takes))

    return ActionSpec(name=name, family="apt", summary=summary + WARNING, argv=build, risk="high", rollback=None, note=NOTE)


ACTIONS = (
    _action("AptUpdate", "refresh the package lists", ("apt-get", "update")),
    _action("AptUpgrade", "upgrade installed packages", ("apt-get", "upgrade", "--yes")),
    _action("AptInstall", "install args.packages", ("apt-get", "install", "--yes"), "packages"),
    _action("AptRemove", "remove args.packages", ("apt-get", "remove", "--yes"), "packages"),
    _action("AddPpa", "add the archive args.ppa", ("add-apt-repository", "--yes"), "ppa"),
    # Undoing AddPpa by hand is possible; evolver does not do it on failure, so AddPpa has no rollback.
    _action("RemovePpa", "remove the archive args.ppa", ("add-apt-repository", "--yes", "--remove"), "ppa"),
)
