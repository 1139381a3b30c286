"""The other side of `python.py`: runs one callable in a child of its own. Reads its order from standard input.

The callable gets the `StepContext`. What it returns is the step's ending:

    None, True          passed (exit 0)        False      failed (exit 1)
    an int              that exit code         a Verdict  0, 1 or 125, its reason printed
    a StepResult        its exit code, its report; its `error` counts as a failure
    an AgentReport      codegen only: as if an agent had said it

It may also be a class or an object with `generate` or `validate`, the methods of the Protocols in `model.py`.
"""

from __future__ import annotations

import importlib
import json
import sys
from pathlib import Path

import msgspec

from evolver.model import AgentReport, Judgement, StepContext, StepResult, Verdict

EXIT_OF = {Judgement.PASS: 0, Judgement.FAIL: 1, Judgement.INCONCLUSIVE: 125}


class Order(msgspec.Struct, frozen=True, kw_only=True):
    """What the parent asks for. Paths as text."""

    target: str  # package.module:name
    directory: str  # first on sys.path: the loop file's folder
    method: str  # generate | validate
    report: str  # where an AgentReport goes
    run_id: str
    iteration: int
    pre_ref: str
    cwd: str
    step_dir: str
    log_dir: str
    last_failure: str
    repair_round: int
    prompt: str

    def context(self) -> StepContext:
        return StepContext(
            run_id=self.run_id,
            iteration=self.iteration,
            pre_ref=self.pre_ref,
            cwd=Path(self.cwd),
            step_dir=Path(self.step_dir),
            log_dir=Path(self.log_dir),
            last_failure=Path(self.last_failure),
            repair_round=self.repair_round,
            prompt=self.prompt,
        )


def resolve(target: str) -> object:
    """The object behind `package.module:name`. Raise `ImportError` or `AttributeError` as Python would."""
    module, _, name = target.partition(":")
    found: object = importlib.import_module(module)
    for part in name.split("."):
        found = getattr(found, part)
    return found


def call(target: object, method: str, context: StepContext) -> object:
    """Call a function, or the Protocol's method of an object or of a class."""
    if isinstance(target, type):
        target = target()
    bound = getattr(target, method, None)
    if bound is None:
        bound = target
    if not callable(bound):
        raise TypeError(f"{target!r} is neither callable nor has a method {method!r}")
    return bound(context)


class Ending(msgspec.Struct, frozen=True):
    """What a returned value means."""

    code: int
    words: str = ""  # for the log
    report: AgentReport | None = None


def ending(value: object) -> Ending:
    match value:
        case None | True:
            return Ending(0)
        case False:
            return Ending(1)
        case int():
            return Ending(value & 0xFF)
        case Verdict():
            return Ending(EXIT_OF[value.judgement], value.reason)
        case AgentReport():
            return Ending(0 if value.ok else 1, value.reason, value)
        case StepResult():
            code = 1 if value.error or value.exit_code is None else value.exit_code
            return Ending(code, value.tail or value.describe(), value.report)
    raise TypeError(f"a step may return None, a bool, an int, Verdict, StepResult or AgentReport, not {type(value).__name__}")


def main() -> int:
    # Not msgspec's JSON: a path may hold bytes that are no UTF-8, which only the standard library escapes.
    order = msgspec.convert(json.load(sys.stdin), Order)
    sys.path.insert(0, order.directory)
    end = ending(call(resolve(order.target), order.method, order.context()))
    if end.words:
        sys.stdout.write(end.words + "\n")
    if end.report is not None:
        Path(order.report).write_bytes(msgspec.json.encode(end.report))
    return end.code


if __name__ == "__main__":
    sys.exit(main())
