"""One plain line for an event, or nothing when it is no milestone."""

from __future__ import annotations

from evolver.events.envelope import Envelope


def describe(envelope: Envelope) -> str:
    """The line for a person; empty for events that only auditors need."""
    data = envelope.decoded()
    number = envelope.iteration
    match envelope.name:
        case "run.started":
            where = (data.get("branch") or "detached HEAD").removeprefix("refs/heads/")
            return f"run {envelope.runid}: loop {data['loop']}, mode {data['rollback_mode']}, from {data['pre_ref'][:10]} on {where}"
        case "baseline.validated":
            return f"baseline: {'red: ' + data['reason'] if data['red'] else 'green'}"
        case "iteration.started":
            return f"[{number}] started"
        case "step.finished":
            name = data["name"]
            return f"[{number}] {name}: {data['judgement']} ({data['reason']}, {data['duration_ms']} ms)" if number else ""
        case "iteration.accepted":
            score = f", score {data['score']}" if data.get("score") else ""
            return f"[{number}] accepted: {data['commit'][:10]}, {data['paths_total']} paths{score}"
        case "iteration.no_change":
            return f"[{number}] no change: {data['reason']}"
        case "rollback.finished":
            stash = f", kept as stash {data['stash_ref'][:10]}" if data.get("stash_ref") else ""
            return f"[{number}] rolled back and verified: {data['reason']}{stash}"
        case "rollback.failed":
            return f"[{number}] NOT RESTORED: {data['reason']}; the baseline is in {data['vault']}"
        case "rollback.skipped":
            return f"[{number}] held as it is: {data['reason']}"
        case name if name.startswith("alert."):
            return f"[{number}] ALERT {name.removeprefix('alert.')}: {_short(data)}"
        case _:
            return ""


def _short(data: dict[str, object]) -> str:
    for key in ("paths", "refs", "detail", "found"):
        if data.get(key):
            value = data[key]
            return ", ".join(map(str, value[:5])) if isinstance(value, list) else str(value)
    return ""
