"""A stand-in for `rpm-ostree` that behaves like the real one where evolver looks, and writes down each exact argv.

State: a JSON file as `status --json` prints it, the default deployment first. As in the real one a change makes a pending
deployment that replaces an earlier pending one, on a booted host with `staging` a staged one; `rollback` refuses a staged
deployment, goes to the deployment after the booted one, and only where there is none back to the booted one; `cleanup --pending`
drops what stands before the booted one. RPM_OSTREE_FAIL: `depsolve` fails before anything changed, `late` after the deployment
was written, `rollback` fails to go back, `kill-first` and `kill` kill evolver after the change and after the way back.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path

Deployment = dict[str, object]
STATE = Path(os.environ.get("RPM_OSTREE_STATE", "host.json"))


BACK = (["rollback"], ["cleanup", "--pending"])


class RefusedError(Exception):
    """What the real one would print."""


def main(argv: list[str]) -> int:
    with STATE.with_suffix(".argv").open("a") as file:
        file.write(json.dumps(["rpm-ostree", *argv]) + "\n")
    state = json.loads(STATE.read_text())
    fail, back = os.environ.get("RPM_OSTREE_FAIL", ""), argv in BACK
    if argv == ["status", "--json"]:
        print(json.dumps(state))
        return 0
    try:
        if fail == "depsolve" and not back:
            raise RefusedError("Could not depsolve transaction; 1 problem detected")
        if fail == "rollback" and back:
            raise RefusedError("Bootloader write config: Read-only file system")
        deployments = state["deployments"]
        new = (
            rollback(deployments)
            if argv == ["rollback"]
            else drop(deployments)
            if back
            else change(deployments, state["staging"])
        )
    except RefusedError as refused:
        print(f"error: {refused}", file=sys.stderr)
        return 1
    temporary = STATE.with_suffix(".new")
    temporary.write_text(json.dumps(state | {"deployments": new}))
    temporary.replace(STATE)
    if fail == ("kill" if back else "kill-first"):
        os.kill(os.getppid(), signal.SIGKILL)
    if fail == "late" and not back:
        print("error: Bootloader write config: No space left on device", file=sys.stderr)
        return 1
    return 0


def deployment(number: int, *, booted: bool = False, staged: bool = False) -> Deployment:
    checksum = f"{number:064x}"
    name = f"fedora-{checksum}.0"
    return {"id": name, "checksum": checksum, "osname": "fedora", "serial": 0, "booted": booted, "staged": staged}


def booted(deployments: list[Deployment]) -> int | None:
    return next((n for n, each in enumerate(deployments) if each["booted"]), None)


def change(deployments: list[Deployment], staging: bool) -> list[Deployment]:
    at = booted(deployments)
    made = 1 + max(int(str(each["checksum"]), 16) for each in deployments)
    return [deployment(made, staged=staging and at is not None), *deployments[at or 0 :]]


def rollback(deployments: list[Deployment]) -> list[Deployment]:
    at = booted(deployments)
    pending = deployments[0] if at is None or at > 0 else None
    after = deployments[(at or 0) + 1 :][:1]
    if pending is None and not after:
        raise RefusedError("No rollback deployment found")
    if pending is not None and pending["staged"]:
        raise RefusedError("Staged deployment (remove with cleanup -p)")
    first = after[0] if after else deployments[at or 0]
    return [first, *(each for each in deployments if each != first)]


def drop(deployments: list[Deployment]) -> list[Deployment]:
    return deployments[booted(deployments) or 0 :]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
