"""Who restores what: plain git, git stash and evolver against every situation of tests/situations. Prints the table of the docs.

    python benchmarks/conformance.py [--only ID] [--system NAME]... [--json FILE] [--markdown FILE]

Each situation is one throw-away repository, one agent that misbehaves, one validation that fails. The judge is tests/oracle.py, which
shares no code with evolver. exact: everything the user had is back, nothing else is left. loud: not so, and the exit status says it.
silent: not so, behind an ordinary exit status. lost: silent, and something the user had is gone or different. refused: the run did not
start where it must not (counts as exact). Exit 1 when evolver is anything but exact.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

HERE = Path(__file__).parents[1]
sys.path.insert(0, str(HERE / "tests"))

from oracle import Snapshot, differences  # noqa: E402  # found through the line above
from worktree.scene import BASE  # noqa: E402

NOBODY = 65534
VERDICTS = ("exact", "loud", "silent", "lost")
Case = dict[str, Any]


@dataclass
class Box:
    """The folders of one situation, and whose they are."""

    root: Path
    as_user: bool

    @property
    def repo(self) -> Path:
        return self.root / "r"

    def environment(self) -> dict[str, str]:
        kept = {k: v for k, v in os.environ.items() if not k.startswith(("GIT_", "EVOLVER_", "XDG_"))}
        own = {"HOME": str(self.root / "home"), "XDG_STATE_HOME": str(self.root / "state"), "TMPDIR": str(self.root / "tmp")}
        return kept | own | {"GIT_CONFIG_NOSYSTEM": "1", "LC_ALL": "C.UTF-8"}

    def sh(self, command: str, cwd: str = "", *, user: bool = False) -> int:
        drop = ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups"] if user and self.as_user else []
        return subprocess.run(
            [*drop, "bash", "-c", command],
            cwd=self.repo / cwd,
            env=self.environment(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            timeout=300,
            check=False,
        ).returncode


def prepare(case: Case, root: Path) -> Box:
    """The repository as the user has it, and the agent's script beside it."""
    box = Box(root, bool(case.get("nonroot")))
    for name in ("r", "home", "state", "tmp"):
        (root / name).mkdir()
    (root / "home/.gitconfig").write_text("[user]\n\tname = u\n\temail = u@example.invalid\n[safe]\n\tdirectory = *\n")
    if box.sh(BASE) or (case.get("setup") and box.sh(case["setup"]) > 1):
        raise SystemExit(f"{case['id']} cannot be set up")
    (root / "agent.sh").write_text(f"cd {box.repo}\n({case['agent']}\n)\ntouch {root}/tmp/ran\nexit 0\n")
    if box.as_user:
        subprocess.run(["chown", "-hR", f"{NOBODY}:{NOBODY}", root], check=True)
    root.chmod(0o755)
    return box


def plain(box: Box, cwd: str) -> int:
    undo = "git reset --hard $pre && git clean -fd"
    return box.sh(f"pre=$(git rev-parse HEAD) || exit 9; sh {box.root}/agent.sh; {undo} || exit 9; exit 1", cwd, user=True)


def stash(box: Box, cwd: str) -> int:
    undo = "git stash push --include-untracked && git reset --hard $pre"
    return box.sh(f"pre=$(git rev-parse HEAD) || exit 9; sh {box.root}/agent.sh; {undo} || exit 9; exit 1", cwd, user=True)


def evolver(mode: str) -> Callable[[Box, str], int]:
    def act(box: Box, cwd: str) -> int:
        command = f"{sys.executable} -m evolver run --max-iters 1 --rollback {mode} --dirty keep"
        return box.sh(f"{command} --codegen 'sh {box.root}/agent.sh' --validate false", cwd, user=True)

    return act


SYSTEMS: dict[str, Callable[[Box, str], int]] = {
    "git reset --hard; git clean -fd": plain,
    "git stash -u; git reset": stash,
    "evolver, hard": evolver("hard"),
    "evolver, stash": evolver("stash"),
}


def judge(case: Case, act: Callable[[Box, str], int], *, keeps: bool) -> str:
    """One of `VERDICTS`."""
    root = Path(tempfile.mkdtemp(prefix="conformance-", dir="/var/tmp"))
    try:
        box = prepare(case, root)
        os.environ["HOME"] = str(root / "home")  # the oracle's git looks into another user's repository there
        before = Snapshot.of(box.repo)
        code = act(box, case.get("cwd", ""))
        if case.get("late"):
            (root / "tmp/late").touch()
            time.sleep(1)
        after = Snapshot.of(box.repo)
        wrong = differences(before, after, stash=not keeps)
        if keeps and not wrong and not case.get("keeps_nothing") and case.get("expect") != "refuse":
            wrong = _stash_wrong(before, after)
        if case.get("expect") == "refuse":
            if code == 5 and not wrong and not (root / "tmp/ran").exists():
                return "exact"
            return "silent" if not wrong else _weigh(wrong, code)
        return "exact" if not wrong else _weigh(wrong, code)
    finally:
        subprocess.run(["chmod", "-R", "u+rwx", root], check=False, stderr=subprocess.DEVNULL)
        shutil.rmtree(root, ignore_errors=True)


def _stash_wrong(before: Snapshot, after: Snapshot) -> list[str]:
    """One more entry than before, the user's own unchanged below it."""
    own, now = before.facts.get("git stash"), after.facts.get("git stash")
    if isinstance(own, tuple) and isinstance(now, tuple) and now != own and now[1].endswith(own[1]):
        return []
    return ["git stash: the attempt is not kept"]


def _weigh(wrong: list[str], code: int) -> str:
    if code not in (0, 1, 3):
        return "loud"
    return "lost" if any(w.startswith("path ") and not w.split(": ", 1)[1].startswith("None") for w in wrong) else "silent"


def cases(only: str | None) -> list[Case]:
    found: list[Case] = []
    for file in sorted((HERE / "tests/situations").glob("*.toml")):
        found += tomllib.loads(file.read_text())["case"]
    usable = os.geteuid() == 0 and _another_user_can_run_it()
    # Where git waits for ever in what the agent left, plain git has no answer to compare with.
    return [
        c
        for c in found
        if (not only or c["id"].startswith(only)) and (usable or not c.get("nonroot")) and not c.get("blocks")
    ]


def _another_user_can_run_it() -> bool:
    probe = ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups", sys.executable, "-m", "evolver", "--version"]
    return subprocess.run(probe, cwd="/", stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False).returncode == 0


def table(counts: dict[str, dict[str, int]], total: int) -> str:
    lines = [f"| {total} situations | exact | loud | silent | lost |", "| --- | ---: | ---: | ---: | ---: |"]
    for name, row in counts.items():
        lines.append(f"| {name} | " + " | ".join(str(row.get(v, 0)) for v in VERDICTS) + " |")
    return "\n".join(lines) + "\n"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--only", help="situations whose id starts with this")
    parser.add_argument("--system", action="append", choices=SYSTEMS)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--markdown", type=Path, help="a page in which the table between the conformance marks is replaced")
    args = parser.parse_args()
    chosen, counts, records = cases(args.only), {}, []
    for name in args.system or SYSTEMS:
        row: dict[str, int] = {}
        for case in chosen:
            verdict = judge(case, SYSTEMS[name], keeps="stash" in name)
            row[verdict] = row.get(verdict, 0) + 1
            records.append({"system": name, "case": case["id"], "kind": case["kind"], "verdict": verdict})
            if verdict != "exact" and name.startswith("evolver"):
                print(f"{name}: {case['id']}: {verdict}", flush=True)
        counts[name] = row
        print(name, row, flush=True)
    text = table(counts, len(chosen))
    print(text)
    if args.json:
        args.json.write_text(json.dumps({"counts": counts, "verdicts": records}, indent=1) + "\n")
    if args.markdown:
        page = args.markdown.read_text()
        start, end = "<!-- conformance: start -->\n", "<!-- conformance: end -->"
        head, _, rest = page.partition(start)
        args.markdown.write_text(head + start + text + end + rest.partition(end)[2])
    return int(any(r["verdict"] != "exact" for r in records if str(r["system"]).startswith("evolver")))


if __name__ == "__main__":
    raise SystemExit(main())
