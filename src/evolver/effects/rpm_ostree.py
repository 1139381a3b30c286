"""The rpm-ostree family: changes of what boots next, reverted by `rpm-ostree rollback`.

That command swaps deployments: run when nothing has changed, or twice, it moves the host to a deployment nobody asked for. So
it runs only when the default deployment is another one than before the action, at most once for an action, and it counts as
done only when the default afterwards is the earlier one.

Where it would lead is known beforehand. A booted host stages what it deploys, and rpm-ostree refuses to roll back from a staged
deployment; and where there is a deployment older than the booted one, it goes to that one. In both cases the way back to the
booted deployment is to drop the pending one.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence

import msgspec

from evolver.effects.host import Host
from evolver.effects.spec import ActionSpec, Arguments, Recorded, RollbackSpec, Undoing, Undone, UndoneKind

ROLL_BACK = ("rpm-ostree", "rollback")
DROP_PENDING = ("rpm-ostree", "cleanup", "--pending")
REF = " ".join(ROLL_BACK)
_POLL_SECONDS = 0.5


class _Deployment(msgspec.Struct, frozen=True):
    checksum: str
    id: str = ""
    osname: str = ""
    serial: int = 0
    booted: bool = False
    staged: bool = False

    @property
    def name(self) -> str:
        return self.id or f"{self.osname}-{self.checksum}.{self.serial}"


class _Status(msgspec.Struct, frozen=True):
    deployments: tuple[_Deployment, ...] = ()
    transaction: msgspec.Raw = msgspec.Raw(b"null")  # what the daemon is doing right now

    @property
    def busy(self) -> bool:
        return bytes(self.transaction) not in (b"null", b"[]", b"{}")


def _status(host: Host) -> _Status | str:
    """The host's deployments, the default first; a text says why they cannot be known.

    A killed client's transaction lives on in the daemon. Until it has ended, nobody can tell what it changed.
    """
    deadline = time.monotonic() + host.timeout_ms / 1000
    while True:
        done = host.ask(("rpm-ostree", "status", "--json"))
        if not done.ok:
            return f"`rpm-ostree status --json`: {done.describe()}"
        try:
            status = msgspec.json.decode(done.stdout, type=_Status)
        except msgspec.DecodeError as error:
            return f"`rpm-ostree status --json` was not understood: {error}"
        if not status.busy:
            return status if status.deployments else "`rpm-ostree status --json` lists no deployment"
        if time.monotonic() >= deadline:
            return "rpm-ostree is still busy with a transaction"
        time.sleep(_POLL_SECONDS)


def _record(host: Host, args: Mapping[str, str], earlier: Sequence[Mapping[str, str]]) -> Recorded:
    status = _status(host)
    if isinstance(status, str):
        return Recorded({}, status)
    default = status.deployments[0].name
    # A second action of the iteration replaces the pending deployment that the first one made. Its rollback can then only
    # reach what was the default before the first, which is where a rejected iteration has to end anyway.
    return Recorded({"default": default, "origin": earlier[0]["origin"] if earlier else default})


def _rolls_back_to(deployments: tuple[_Deployment, ...]) -> str:
    """The default after `rpm-ostree rollback`; the empty string where it refuses."""
    booted = next((n for n, deployment in enumerate(deployments) if deployment.booted), None)
    after = (booted if booted is not None else 0) + 1
    pending = booted is None or booted > 0
    if pending and deployments[0].staged:
        return ""
    if after < len(deployments):
        return deployments[after].name
    return deployments[booted].name if booted else ""


def _way_back(deployments: tuple[_Deployment, ...], wanted: set[str]) -> tuple[str, ...]:
    """The command that makes the earlier deployment the default; empty when there is none."""
    if _rolls_back_to(deployments) in wanted:
        return ROLL_BACK
    dropped = next((deployment.name for deployment in deployments if deployment.booted), "")
    return DROP_PENDING if dropped in wanted else ()


def _undo(host: Host, undoing: Undoing) -> Undone:
    before = _status(host)
    if isinstance(before, str):
        return Undone(UndoneKind.FAILED, before)
    earlier = undoing.recorded["default"]
    wanted = {earlier, undoing.recorded["origin"]}
    now = before.deployments[0].name
    if now in wanted:
        return Undone(UndoneKind.UNCHANGED, f"the default deployment is {now}, as before")
    if undoing.begun:
        return Undone(UndoneKind.FAILED, f"a rollback was begun by a run that died, the default is {now}; it is not run twice")
    command = _way_back(before.deployments, wanted)
    if not command:
        return Undone(UndoneKind.FAILED, f"the default is {now}, and no rollback leads back to {earlier}; none was run")
    ref = " ".join(command)
    problem = host.act(command)
    if problem:
        return Undone(UndoneKind.FAILED, problem, ref)
    after = _status(host)
    if isinstance(after, str):
        return Undone(UndoneKind.FAILED, after, ref)
    reached = after.deployments[0].name
    if reached not in wanted:
        return Undone(UndoneKind.FAILED, f"it ran, but the default is {reached}, not {earlier}", ref)
    return Undone(UndoneKind.DONE, f"the default deployment is {reached} again", ref)


ROLLBACK = RollbackSpec(ref=REF, record=_record, undo=_undo)
NOTE = "takes effect at the next boot; tested with a stand-in, never run on a real host"


def _one(*argv: str, key: str = "package") -> Callable[[Arguments], tuple[str, ...]]:
    return lambda args: (*argv, args.word(key))


def _many(*argv: str) -> Callable[[Arguments], tuple[str, ...]]:
    return lambda args: (*argv, *args.words("packages"))


def _kargs(args: Arguments) -> tuple[str, ...]:
    options = tuple(f"--{how}={word}" for how in ("append", "delete", "replace") for word in args.words(how, needed=False))
    if not options:
        raise args.wrong("append", "one of append, delete or replace is needed")
    return ("rpm-ostree", "kargs", *options)


def _action(name: str, summary: str, argv: Callable[[Arguments], tuple[str, ...]]) -> ActionSpec:
    return ActionSpec(name=name, family="rpm-ostree", summary=summary, argv=argv, risk="high", rollback=ROLLBACK, note=NOTE)


ACTIONS = (
    _action("UpdateSystem", "deploy the newest commit", lambda args: ("rpm-ostree", "upgrade")),
    _action("InstallPackages", "layer args.packages", _many("rpm-ostree", "install", "--idempotent")),
    _action("RemovePackages", "remove layered args.packages", _many("rpm-ostree", "uninstall")),
    _action("RebaseSystem", "switch to args.ref", _one("rpm-ostree", "rebase", key="ref")),
    _action("SetKernelArguments", "kernel arguments: args.append, args.delete, args.replace", _kargs),
    _action("AddLayeredPackage", "layer args.package", _one("rpm-ostree", "install", "--idempotent")),
    _action("RemoveLayeredPackage", "remove layered args.package", _one("rpm-ostree", "uninstall")),
    _action("ReplaceLayeredPackage", "override a base package with args.package", _one("rpm-ostree", "override", "replace")),
    _action("ResetLayeredPackageOverride", "reset the override of args.package", _one("rpm-ostree", "override", "reset")),
    _action("RemoveBasePackage", "override-remove base args.package", _one("rpm-ostree", "override", "remove")),
)
