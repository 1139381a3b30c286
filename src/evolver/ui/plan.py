"""`evolver run --dry-run`: what a run would do, and nothing done."""

from __future__ import annotations

import sys

from evolver.effects.plan import plans as effect_plans
from evolver.judges import protected_globs
from evolver.loopfile import to_json
from evolver.planning import Plan
from evolver.ui.words import plural


def print_plan(planned: Plan, *, as_json: bool) -> None:
    loaded, definition = planned.loaded, planned.loaded.definition
    if as_json:
        sys.stdout.write(to_json(definition).decode() + "\n")
        return
    codegen = definition.codegen
    what = (
        (codegen.agent and f"agent {codegen.agent}")
        or (codegen.callable and f"callable {codegen.callable}")
        or f"command {_shown(codegen.command)}"
    )
    lines = [
        f"worktree   {planned.layout.root}",
        *(["isolation  clone: the run works in a clone beside it"] if definition.loop.isolation == "clone" else []),
        f"loop       {loaded.name} ({loaded.source or 'from the command line'}), sha256 {loaded.digest[:16]}",
        f"events     {planned.layout.events(planned.settings.events)}",
        f"rollback   {definition.rollback.mode}",
        f"codegen    {what}, at most {codegen.timeout}",
        *(
            f"validate   {v.name}: {_shown(v.command) if v.command else v.callable}, at most {v.timeout}"
            for v in definition.validator
        ),
        *([] if definition.validator else ["validate   nothing: no attempt is rejected by a test (--validate 'CMD')"]),
        *(f"effect     {e.name}: {e.action} {e.when}, risk {e.risk}, {e.promise}" for e in effect_plans(definition.effect)),
        f"stops      after {plural(definition.loop.max_iters, 'iteration')}"
        + (f" or {definition.loop.max_time}" if definition.loop.max_time else ""),
        f"protected  {', '.join(protected_globs(loaded, planned.layout.root))}",
        "nothing was started",
    ]
    print("\n".join(lines))


def _shown(command: str | tuple[str, ...] | None) -> str:
    import shlex

    return command if isinstance(command, str) else shlex.join(command or ())
