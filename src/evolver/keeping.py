"""What a run keeps beside the stream: the definition in force, by its hash, and the best score of a loop."""

from __future__ import annotations

import hashlib
from decimal import Decimal
from pathlib import Path

import msgspec

from evolver.definition import LoadedLoop, LoopDefinition
from evolver.layout import Layout
from evolver.loopfile import from_json, to_json
from evolver.redact import Redactor
from evolver.resume_lock import write_atomic


def sha256_text(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def validator_hashes(loaded: LoadedLoop) -> tuple[str, ...]:
    """SHA-256 of each validator's argv (or callable name)."""
    return tuple(
        sha256_text(msgspec.json.encode(v.command if v.command is not None else v.callable).decode())
        for v in loaded.definition.validator
    )


def save_definition(layout: Layout, loaded: LoadedLoop, redactor: Redactor | None) -> None:
    """Recovery and `resume` act by the definition that was in force, not by what the file says by then.

    Without the secrets that stand in how attempts are made, which neither starts again. Validators and effects are kept to
    the letter: `land` judges and recovery compensates by them.
    """
    path = layout.state / "definitions" / f"{loaded.digest}.json"
    if not path.exists():
        definition = loaded.definition
        if redactor:
            hidden = {name: redactor.redact_value(getattr(definition.codegen, name)) for name in ("command", "args", "env")}
            codegen = msgspec.structs.replace(
                definition.codegen,
                **{name: tuple(found) if isinstance(found, list) else found for name, found in hidden.items()},
            )
            agents = {
                name: msgspec.structs.replace(agent, env=redactor.redact_value(agent.env))
                for name, agent in definition.agents.items()
            }
            definition = msgspec.structs.replace(definition, codegen=codegen, agents=agents)
        write_atomic(path, to_json(definition))


def stored_definition(layout: Layout, digest: str) -> LoopDefinition | None:
    """The definition with this hash; None when it is gone."""
    try:
        return from_json((layout.state / "definitions" / f"{digest}.json").read_bytes())
    except (OSError, msgspec.MsgspecError):
        return None


def _best_path(layout: Layout, loaded: LoadedLoop) -> Path:
    """One best score for a loop and its judges: with other validators, scores do not compare."""
    key = sha256_text(loaded.name + "".join(validator_hashes(loaded)) + str(loaded.definition.score))
    return layout.state / "best" / f"{key[:32]}.txt"


def load_best(layout: Layout, loaded: LoadedLoop) -> Decimal | None:
    try:
        return Decimal(_best_path(layout, loaded).read_text().strip())
    except (OSError, ArithmeticError):
        return None


def save_best(layout: Layout, loaded: LoadedLoop, best: Decimal) -> None:
    write_atomic(_best_path(layout, loaded), f"{best}\n".encode())


def forget_best(layout: Layout) -> None:
    """Of every loop: what reached it is no longer in the tree. The next run measures what is there before its first iteration."""
    for path in (layout.state / "best").glob("*.txt"):
        path.unlink(missing_ok=True)
