"""Any command, with the undo its author wrote. The undo may be run again after a crash, so it must bear that."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from evolver.effects.host import Host
from evolver.effects.spec import ActionSpec, Arguments, Recorded, RollbackSpec, Undoing, Undone, UndoneKind


def _no_argv(args: Arguments) -> tuple[str, ...]:
    return ()  # the effect's own `run` is all there is


def _record(host: Host, args: Mapping[str, str], earlier: Sequence[Mapping[str, str]]) -> Recorded:
    return Recorded({})


def _undo(host: Host, undoing: Undoing) -> Undone:
    problem = host.act(undoing.undo, quote=False)  # no command line in the stream: it may hold anything
    return Undone(UndoneKind.FAILED, problem, "undo") if problem else Undone(UndoneKind.DONE, ref="undo")


ACTION = ActionSpec(
    name="command",
    family="command",
    summary="run any command; `undo` is the command that reverts it",
    argv=_no_argv,
    risk="high",
    takes_run=True,
    rollback=RollbackSpec(ref="undo", record=_record, undo=_undo),
    note='undo = "" says that nothing reverts it: then rollback_available is false',
)
