"""A stand-in for `rpm-ostree` that behaves like the real one where evolver looks, and writes down each exact argv.

State: a JSON file with the deployments, the default first, and the booted one's id. A change makes a pending deployment, which
replaces an earlier pending one; `rollback` puts the booted deployment first when another one is pending, else swaps the first
two. RPM_OSTREE_FAIL: `depsolve` fails before anything changed, `late` after the deployment was written.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path

State = dict[str, list[dict[str, object]]]
STATE = Path(os.environ.get("RPM_OSTREE_STATE", "host.json"))


def main(argv: list[str]) -> int:
    with STATE.with_suffix(".argv").open("a") as file:
        file.write(json.dumps(["rpm-ostree", *argv]) + "\n")
    state = json.loads(STATE.read_text())
    fail = os.environ.get("RPM_OSTREE_FAIL", "")
    if argv == ["status", "--json"]:
        print(json.dumps(state))
        return 0
    if fail == "depsolve" and argv[0] != "rollback":
        print("error: Could not depsolve transaction; 1 problem detected", file=sys.stderr)
        return 1
    if argv == ["rollback"]:
        if fail == "rollback":
            print("error: No rollback deployment found", file=sys.stderr)
            return 1
        rollback(state)
    else:
        change(state)
    temporary = STATE.with_suffix(".new")
    temporary.write_text(json.dumps(state))
    temporary.replace(STATE)
    if fail == "kill" and argv == ["rollback"]:
        os.kill(os.getppid(), signal.SIGKILL)
    if fail == "kill-first" and argv != ["rollback"]:
        os.kill(os.getppid(), signal.SIGKILL)
    if fail == "late" and argv != ["rollback"]:
        print("error: Bootloader write config: No space left on device", file=sys.stderr)
        return 1
    return 0


def deployment(number: int) -> dict[str, object]:
    checksum = f"{number:064x}"
    return {"id": f"fedora-{checksum}.0", "checksum": checksum, "osname": "fedora", "serial": 0, "booted": number == 1}


def change(state: State) -> None:
    deployments = state["deployments"]
    pending = not deployments[0]["booted"] and any(d["booted"] for d in deployments[1:])
    made = max(2, 1 + max(int(str(d["checksum"]), 16) for d in deployments))
    state["deployments"] = [deployment(made), *(deployments[1:] if pending else deployments)]


def rollback(state: State) -> None:
    deployments = state["deployments"]
    at = next((i for i, d in enumerate(deployments) if d["booted"]), 0) or 1
    deployments.insert(0, deployments.pop(at))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
