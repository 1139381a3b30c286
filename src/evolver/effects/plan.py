"""One effect as it will be run: checked, resolved, and hashed. What is approved is exactly this, and so is what is undone.

The plan is kept beside the event stream, under its hash, because the loop file may be gone or changed (by the very attempt)
when a run that died has to be compensated, and because events hold no command lines.
"""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import msgspec

from evolver.definition import Command, EffectSection
from evolver.effects.registry import find
from evolver.effects.spec import RISKS, ActionSpec, Arguments, Risk, RollbackSpec
from evolver.errors import UsageError

LONGEST_NAME = 80


class EffectPlan(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An effect with everything resolved. Times in milliseconds."""

    name: str
    when: str
    action: str
    argv: tuple[str, ...]
    undo: tuple[str, ...]  # empty: the action's own rollback, or none
    args: dict[str, str]
    timeout_ms: int
    risk: Risk

    @property
    def spec(self) -> ActionSpec:
        return find(self.action)

    @property
    def rollback(self) -> RollbackSpec | None:
        """What reverts this effect. A `command` without an undo has nothing."""
        return None if self.action == "command" and not self.undo else self.spec.rollback

    @property
    def rollback_available(self) -> bool:
        return self.rollback is not None

    @property
    def promise(self) -> str:
        """What evolver will do about it, in words for a person."""
        if self.rollback_available:
            return "reverted by evolver on failure and on rejection"
        return self.spec.note if self.spec.rollback is None and self.spec.note else "NOTHING REVERTS IT"

    @property
    def risky(self) -> bool:
        return self.risk != "low"

    @property
    def definition_hash(self) -> str:
        """SHA-256 over all of the above."""
        return hashlib.sha256(self.encoded()).hexdigest()

    def encoded(self) -> bytes:
        return msgspec.json.encode(self, order="sorted")


def _argv(command: Command | None) -> tuple[str, ...]:
    match command:
        case None | "":
            return ()
        case str():
            return ("sh", "-c", command)
        case _:
            return tuple(command)


def plan(effect: EffectSection) -> EffectPlan:
    """Raise `UsageError` that names the effect and the key."""

    def wrong(key: str, expected: str) -> UsageError:
        return UsageError(f"effect {effect.name!r}: {key}: {expected}", "See docs/effects.md and `evolver effects list`.")

    if not effect.name.strip() or not effect.name.isprintable() or len(effect.name) > LONGEST_NAME:
        raise wrong("name", f"expected a printable name of at most {LONGEST_NAME} characters")
    spec = find(effect.action)
    argv, undo = _argv(effect.run), _argv(effect.undo)
    args = Arguments(effect.name, effect.args)
    if spec.takes_run and not argv:
        raise wrong("run", f"action {spec.name!r} needs the command to run")
    if argv and not spec.takes_run:
        # The action's own command is replaced, its args still say what is to be recorded and reverted.
        for key in effect.args:
            args.text(key)
    else:
        argv = argv or spec.argv(args)
    if spec.takes_run:
        spec.argv(args)
    args.finish()
    if spec.name == "command":
        if effect.undo is None:
            raise wrong("undo", 'is needed: the command that reverts it, or "" to say that nothing does')
    elif effect.undo is not None:
        own = "has its own rollback" if spec.rollback_available else "has no rollback"
        raise wrong("undo", f"action {spec.name!r} {own}; only `command` takes one")
    if spec.in_worktree and effect.when != "before_validate":
        raise wrong("when", f'action {spec.name!r} needs "before_validate": what it writes has to be validated to be committed')
    risk = effect.risk or spec.risk
    if spec.name != "command" and RISKS.index(risk) < RISKS.index(spec.risk):
        raise wrong("risk", f"action {spec.name!r} is of risk {spec.risk}; it cannot be declared lower")
    if any("\0" in word for word in (*argv, *undo)):
        raise wrong("run", "a command cannot hold a NUL byte")
    return EffectPlan(
        name=effect.name,
        when=effect.when,
        action=spec.name,
        argv=argv,
        undo=undo,
        args=dict(effect.args),
        timeout_ms=int(effect.timeout),
        risk=risk,
    )


def plans(effects: tuple[EffectSection, ...]) -> tuple[EffectPlan, ...]:
    """All effects of a loop, in order. Raise `UsageError`, also for a name that stands there twice."""
    found = tuple(plan(effect) for effect in effects)
    names = [p.name for p in found]
    for name in names:
        if names.count(name) > 1:
            raise UsageError(f"effect {name!r} stands in the loop file twice", "Give each [[effect]] a name of its own.")
    return found


def store(folder: Path, effect: EffectPlan) -> None:
    """Keep a plan, synced, so that another process can compensate it."""
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    target = folder / "plan.json"
    temporary = folder / "plan.json.new"
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(effect.encoded())
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(target)
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def load(folder: Path, definition_hash: str) -> EffectPlan | str:
    """The plan kept there, when it is the one that was journalled. A text says why it cannot be had."""
    try:
        data = (folder / "plan.json").read_bytes()
        found = msgspec.json.decode(data, type=EffectPlan)
    except (OSError, msgspec.DecodeError) as error:
        return f"what it was is not known any more ({error})"
    if found.definition_hash != definition_hash:
        return "the plan kept for it is not the one in the event stream"
    return found
