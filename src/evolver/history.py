"""What the stream says of earlier runs. Read from the end, so that it costs the same with a million events as with none.

Used by `status`, by recovery (which run died, in which phase, with which children) and by budgets over days.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from decimal import Decimal
from typing import Literal

import msgspec

from evolver.events.envelope import Envelope

Liveness = Literal["none", "open", "held", "finished"]


class Facts(msgspec.Struct, frozen=True):
    """The fields of `data` that reconstruction needs; a newer version's other fields are passed over."""

    iteration_id: str = ""
    rollback_mode: str = ""
    pre_ref: str | None = None
    post_ref: str | None = None
    branch: str | None = None
    baseline: str = ""
    reason: str = ""
    name: str = ""
    step: str = ""
    pid: int = 0
    pid_started: str = ""
    loop: str = ""
    definition_hash: str = ""
    exit_code: int | None = None
    commit: str = ""
    iterations: int = 0
    accepted: int | str = 0
    no_change: int = 0
    rolled_back: int = 0
    held: int = 0
    max_iterations: int = 0
    cost_usd: str | None = None
    best_score: str | None = None
    score: str | None = None
    validators_hash: str = ""
    changes_digest: str | None = None
    isolation: str = "inplace"
    action: str = ""
    by: str = ""
    git_dir_id: str = ""


_FACTS = msgspec.json.Decoder(Facts)


def facts(envelope: Envelope) -> Facts:
    """`data` as far as we know it; a field of an unexpected type leaves everything at its default."""
    try:
        return _FACTS.decode(envelope.data)
    except msgspec.DecodeError:
        return Facts()


class OpenIteration(msgspec.Struct, frozen=True, kw_only=True):
    """An iteration that began and has no end in the stream."""

    number: int
    iteration_id: str
    baseline: str
    pre_ref: str
    branch: str | None
    mode: str
    phase: str
    reason: str = ""
    accepting: bool = False
    post_ref: str | None = None  # what HEAD was when it was about to be accepted
    changes_digest: str | None = None
    skipped: bool = False  # the hold was announced
    finished: str = ""  # rollback.finished or iteration.accepted came: only the run's own end is missing


class LastRun(msgspec.Struct, frozen=True, kw_only=True):
    """The newest run in the stream."""

    run_id: str
    state: Liveness
    loop: str
    mode: str
    pre_ref: str
    started: str
    last_time: str
    definition_hash: str
    baseline: str
    pid: int
    pid_started: str
    children: tuple[tuple[int, str], ...] = ()  # pids that may still live, with their start times
    iteration: OpenIteration | None = None
    iterations: int = 0
    max_iterations: int = 0
    counts: Mapping[str, int] = {}
    exit_code: int | None = None
    reason: str = ""
    step: str = ""  # the step that runs now, of an active run
    best_score: str | None = None
    isolation: str = "inplace"
    resumed: str = ""  # what a person decided about a held run: kept, rolled_back, unchanged
    resumed_by: str = ""
    git_dir_id: str = ""


_ENDS = {
    "iteration.accepted": "accepted",
    "iteration.no_change": "no_change",
    "rollback.finished": "rolled_back",
    "rollback.failed": "rollback_failed",
    "run.held": "held",
}


# Behind one of these a resume lock of the run may stand.
_ANNOUNCED = ("rollback.skipped", "rollback.failed", "run.held", "run.finished", "run.recovered", "run.resumed")


def last_run(backwards: Iterable[Envelope]) -> LastRun | None:
    """The newest run, from envelopes read from the end of the stream to its `run.started`."""
    events: list[Envelope] = []
    run_id: str | None = None
    for envelope in backwards:
        if run_id is None:
            if envelope.runid is None:
                continue
            run_id = envelope.runid
        if envelope.runid == run_id:
            events.append(envelope)
            if envelope.name == "run.started":
                break
    if run_id is None or not events or events[-1].name != "run.started":
        return None
    events.reverse()
    return _fold(events)


def may_hold(backwards: Iterable[Envelope], git_dir_id: str) -> bool:
    """Can a resume lock in this git folder be a run's own? It is written after the event that says why; a run that ended says so, too.
    A stream kept elsewhere may have another repository's run for its newest."""
    run_id: str | None = None
    for envelope in backwards:
        run_id = run_id or envelope.runid
        if run_id is None or envelope.runid != run_id:
            continue
        if envelope.name in _ANNOUNCED:
            return True
        if envelope.name == "run.started":
            return facts(envelope).git_dir_id != git_dir_id
    return True  # nothing is known of it


def _fold(events: list[Envelope]) -> LastRun:
    first = facts(events[0])
    children: dict[str, tuple[int, str]] = {}
    counts: dict[str, int] = {}
    current: OpenIteration | None = None
    state: Liveness = "open"
    exit_code, reason, step, best = None, "", "", None
    resumed, resumed_by = "", ""
    number = 0
    for envelope in events[1:]:
        name, fact = envelope.name, facts(envelope)
        match name:
            case "iteration.started":
                number = envelope.iteration or 0
                current = OpenIteration(
                    number=number,
                    iteration_id=fact.iteration_id,
                    baseline=fact.baseline,
                    pre_ref=fact.pre_ref or "",
                    branch=fact.branch,
                    mode=fact.rollback_mode,
                    phase="codegen",
                    changes_digest=fact.changes_digest,
                )
            case "step.started":
                step = fact.name
            case "step.running":
                children[fact.name] = (fact.pid, fact.pid_started)
            case "step.finished":
                children.pop(fact.name, None)
                step = ""
            case "run.finished":
                state, exit_code, reason = ("held" if state == "held" else "finished"), fact.exit_code, fact.reason
            case "run.recovered":
                state, reason, children = ("held" if state == "held" else "finished"), "recovered", {}
            case "run.resumed":
                state, resumed, resumed_by = "finished", fact.action, fact.by
            case _:
                pass
        if name in _ENDS and current is not None:
            counts[_ENDS[name]] = counts.get(_ENDS[name], 0) + 1
            if name == "iteration.accepted":
                best = fact.score or best
            if name == "run.held":
                state, reason, exit_code = "held", fact.reason, fact.exit_code
            if name != "rollback.failed":
                current = None
        elif current is not None:
            current = _advance(current, name, fact)
    if state in ("finished", "held"):
        current = None
    return LastRun(
        run_id=events[0].runid or "",
        state=state,
        loop=first.loop,
        mode=first.rollback_mode,
        pre_ref=first.pre_ref or "",
        started=events[0].time,
        last_time=events[-1].time,
        definition_hash=first.definition_hash,
        baseline=first.baseline,
        pid=first.pid,
        pid_started=first.pid_started,
        children=tuple(children.values()),
        iteration=current,
        iterations=number,
        max_iterations=first.max_iterations,
        counts=counts,
        exit_code=exit_code,
        reason=reason,
        step=step,
        best_score=best,
        isolation=first.isolation,
        resumed=resumed,
        resumed_by=resumed_by,
        git_dir_id=first.git_dir_id,
    )


def _advance(current: OpenIteration, name: str, fact: Facts) -> OpenIteration:
    change = msgspec.structs.replace
    match name:
        case "iteration.inspected":
            return change(current, phase="inspected")
        case "step.started":
            return change(current, phase=fact.step)
        case "iteration.accepting":
            return change(current, phase="accepting", accepting=True, post_ref=fact.post_ref)
        case "rollback.started":
            return change(current, phase="rolling_back", reason=fact.reason)
        case "rollback.skipped":
            return change(current, phase="holding", reason=fact.reason, skipped=True)
        case "rollback.failed":
            return change(current, phase="rollback_failed", reason=fact.reason)
        case _:
            return current


def cost_since(backwards: Iterable[Envelope], since: str) -> Decimal:
    """USD that steps of any run reported since the time `since` (as written in the stream)."""
    total = Decimal(0)
    for envelope in backwards:
        if envelope.time < since:
            break
        if envelope.name == "step.finished":
            total += Decimal(facts(envelope).cost_usd or 0)
    return total
