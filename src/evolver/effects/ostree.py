"""Deployments of an ostree sysroot given by the user: deploy, and the earlier default again.

Judged by the state it leaves: the deployment that was the default before must be the default again. So it may be called
any number of times.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from evolver.effects.host import Host, last_words
from evolver.effects.spec import ActionSpec, Arguments, Recorded, RollbackSpec, Undoing, Undone, UndoneKind

REF = "ostree admin undeploy"
# `* os checksum.serial (pending)`; the star marks the booted one.
_LINE = re.compile(r"^[* ] (\S+) ([0-9a-f]{64}\.\d+)(?: \(.*\))?$")


@dataclass(frozen=True, slots=True)
class _Deployment:
    osname: str
    name: str  # checksum.serial

    @property
    def checksum(self) -> str:
        return self.name.partition(".")[0]

    def __str__(self) -> str:
        return f"{self.osname} {self.name}"


def _argv(args: Arguments) -> tuple[str, ...]:
    # --retain: the default prunes older deployments, and with them what a rollback goes back to.
    sysroot, osname, ref = _sysroot(args), args.word("os"), args.word("ref")
    return ("ostree", "admin", "deploy", f"--sysroot={sysroot}", f"--os={osname}", "--retain", ref)


def _sysroot(args: Arguments) -> str:
    sysroot = args.text("sysroot")
    if not Path(sysroot).is_absolute():
        raise args.wrong("sysroot", f"expected the absolute path of a sysroot, got {sysroot!r}")
    return sysroot


def _deployments(host: Host, sysroot: str) -> tuple[_Deployment, ...] | str:
    """The default first. A text says why they cannot be known."""
    done = host.ask(("ostree", "admin", "status", f"--sysroot={sysroot}"), merge_env={"LC_ALL": "C"})
    if not done.ok:
        return f"`ostree admin status`: {done.describe()}{last_words(done.stderr)}"
    found = (_LINE.match(line) for line in done.stdout.decode("utf-8", "replace").splitlines())
    return tuple(_Deployment(match[1], match[2]) for match in found if match is not None)


def _record(host: Host, args: Mapping[str, str], earlier: Sequence[Mapping[str, str]]) -> Recorded:
    sysroot = args.get("sysroot", "")
    deployments = _deployments(host, sysroot)
    if isinstance(deployments, str):
        return Recorded({}, deployments)
    return Recorded({"sysroot": sysroot, "deployments": ", ".join(map(str, deployments))})


class _StuckError(Exception):
    """The revert cannot go on; the text says why."""


@dataclass
class _Sysroot:
    """One revert at work: what was there before, and what reverting has run so far."""

    host: Host
    path: str
    ran: str = ""

    def deployments(self) -> tuple[_Deployment, ...]:
        found = _deployments(self.host, self.path)
        if isinstance(found, str):
            raise _StuckError(found)
        return found

    def act(self, verb: str, *arguments: str) -> None:
        self.ran = f"ostree admin {verb}"
        problem = self.host.act(("ostree", "admin", verb, f"--sysroot={self.path}", *arguments))
        if problem:
            raise _StuckError(problem)

    def deploy(self, wanted: _Deployment) -> _Deployment:
        """The commit once more, as the default; nothing else is removed."""
        self.act("deploy", f"--os={wanted.osname}", "--retain", wanted.checksum)
        return self.deployments()[0]

    def remove_added(self, before: list[_Deployment], keep: _Deployment | None) -> None:
        """Only what the action added, never a deployment that was there before."""
        for _ in range(len(self.deployments())):
            added = [i for i, item in enumerate(self.deployments()) if item not in before and item != keep]
            if not added:
                return
            self.act("undeploy", str(added[0]))


def _undo(host: Host, undoing: Undoing) -> Undone:
    text = undoing.recorded["deployments"]
    before = [_Deployment(*item.split(" ", 1)) for item in text.split(", ")] if text else []
    sysroot = _Sysroot(host, undoing.recorded["sysroot"])
    try:
        now = sysroot.deployments()
        wanted = before[0] if before else None
        if now[:1] == tuple(before[:1]) and not set(now) - set(before):
            return Undone(UndoneKind.UNCHANGED, f"the default deployment is {wanted or 'none'}, as before")
        if wanted is None:
            sysroot.remove_added(before, None)
            left = sysroot.deployments()
            return Undone(
                UndoneKind.FAILED if left else UndoneKind.DONE, f"{len(left)} deployments left, none before", sysroot.ran
            )
        # The new one first, then the removals: at no instant is there nothing to boot.
        keep = wanted if wanted in now else sysroot.deploy(wanted)
        sysroot.remove_added(before, keep)
        if sysroot.deployments()[0] != keep:  # the action only changed the order
            keep = sysroot.deploy(wanted)
        reached = sysroot.deployments()[0]
    except _StuckError as stuck:
        return Undone(UndoneKind.FAILED, str(stuck), sysroot.ran)
    if (reached.osname, reached.checksum) != (wanted.osname, wanted.checksum):
        return Undone(UndoneKind.FAILED, f"the default deployment is {reached}, not {wanted}", sysroot.ran)
    return Undone(UndoneKind.DONE, f"the default deployment is {reached} again", sysroot.ran)


ACTION = ActionSpec(
    name="ostree",
    family="ostree",
    summary="deploy args.ref as args.os in args.sysroot",
    argv=_argv,
    risk="high",
    rollback=RollbackSpec(ref=REF, record=_record, undo=_undo),
)
