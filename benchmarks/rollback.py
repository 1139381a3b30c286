"""What rolling back costs: plain git against evolver's restore, and against everything evolver adds to an iteration.

    python benchmarks/rollback.py [--files 8000 80000] [--rounds 9] [--json FILE]

In one run and alternating, on repositories built here: `git reset --hard && git clean -fd`; restore from a known change list; and the
whole overhead of a rejected iteration (baseline + guard + inspect + restore + verify). The attempt edits 10 files and adds 5. Ratios are
of times measured next to each other; min, median, max.
"""

# ruff: noqa: B023  # what closes over loop variables here is called at once

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

EDITS, ADDS = 10, 5


def build(root: Path, files: int) -> None:
    """`files` small files, 20 a folder, packed, the index fresh."""
    root.mkdir(parents=True)
    stream = bytearray(b"commit refs/heads/main\ncommitter b <b@example.invalid> 1700000000 +0000\ndata 4\nbase\n")
    for number in range(files):
        body = f"value_{number} = {number}\n".encode() * 8
        stream += b"M 100644 inline %s\ndata %d\n%s\n" % (path_of(number).encode(), len(body), body)
    run(root, "git", "init", "-q", "-b", "main")
    for key, value in {"user.name": "b", "user.email": "b@example.invalid", "gc.auto": "0"}.items():
        run(root, "git", "config", key, value)
    subprocess.run(["git", "fast-import", "--quiet"], cwd=root, input=bytes(stream), check=True)
    run(root, "git", "reset", "-q", "--hard")
    time.sleep(1.1)  # files and index of one instant would be racy for git and for us
    run(root, "git", "update-index", "-q", "--really-refresh")


def path_of(number: int) -> str:
    return f"d{number // 1000}/e{number // 20 % 50}/f{number}.py"


def run(root: Path, *argv: str) -> None:
    subprocess.run(argv, cwd=root, check=True, stdout=subprocess.DEVNULL)


def attempt(root: Path, files: int, turn: int) -> None:
    """What an agent does: ten edits, five new files."""
    for number in range(EDITS):
        with open(root / path_of((number * 997 + turn * 13) % files), "a") as file:
            file.write(f"# attempt {turn}\n")
    for number in range(ADDS):
        (root / f"d0/new_{number}.py").write_text(f"new = {turn}\n")


def timed(act: Callable[[], object]) -> float:
    begun = time.perf_counter()
    act()
    return (time.perf_counter() - begun) * 1000


def measure(root: Path, files: int, rounds: int) -> dict[str, list[float]]:
    """Milliseconds, a list for each thing measured."""
    from evolver.definition import RollbackSection
    from evolver.layout import locate
    from evolver.worktree.restore import files_back, index_back, state_back
    from evolver.worktree.workspace import Workspace

    workspace = Workspace.open(locate(root), rollback=RollbackSection())
    found: dict[str, list[float]] = {}

    def note(name: str, milliseconds: float) -> None:
        found.setdefault(name, []).append(milliseconds)

    note("first baseline", timed(lambda: workspace.baseline("bench/0")))
    for turn in range(rounds + 1):
        attempt(root, files, turn)
        plain = timed(lambda: run(root, "sh", "-c", "git reset -q --hard HEAD && git clean -fdq"))

        baseline = workspace.baseline("bench/a")  # takes in what plain git rewrote
        attempt(root, files, turn)
        control = workspace.guard_control(baseline)
        workspace.inspect(baseline, control)
        inspection, guarded, snapshot = workspace._found, workspace._guarded, workspace._snapshot
        assert inspection is not None and guarded is not None and snapshot is not None

        def back() -> None:
            files_back(workspace._site, snapshot, inspection.changed)
            state_back(workspace._site, snapshot, guarded.refs, frozenset(), shared=False)
            index_back(workspace._site, snapshot, inspection.changed)

        restore = timed(back)
        assert workspace.verify(baseline).equal

        pieces: dict[str, float] = {}
        baseline = workspace.baseline("bench/b")
        attempt(root, files, turn + 1000)
        pieces["guard"] = timed(lambda: workspace.guard_control(baseline))
        holder = []
        pieces["inspect"] = timed(lambda: holder.append(workspace.inspect(baseline, control)))
        pieces["guard"] += timed(lambda: workspace.guard_control(baseline))
        pieces["restore"] = timed(lambda: workspace.restore(baseline, holder[0]))
        verified = []
        pieces["verify"] = timed(lambda: verified.append(workspace.verify(baseline)))
        assert verified[0].equal, verified
        # The next iteration's, as in a loop: it begins where this one ended.
        pieces["baseline"] = timed(lambda: workspace.baseline("bench/c"))
        if turn == 0:
            continue  # warms caches up
        note("plain git", plain)
        note("restore", restore)
        for name, value in pieces.items():
            note(f"iteration: {name}", value)
        note("iteration", sum(pieces.values()))
    workspace.release()
    return found


def ratios(over: list[float], under: list[float]) -> dict[str, float]:
    each = [a / b for a, b in zip(over, under, strict=True)]
    return {"min": round(min(each), 3), "median": round(statistics.median(each), 3), "max": round(max(each), 3)}


def summary(found: dict[str, list[float]]) -> dict[str, object]:
    return {
        "ms": {
            name: {"min": round(min(v), 1), "median": round(statistics.median(v), 1), "max": round(max(v), 1)}
            for name, v in found.items()
        },
        "restore / plain git": ratios(found["restore"], found["plain git"]),
        "iteration / plain git": ratios(found["iteration"], found["plain git"]),
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--files", type=int, nargs="+", default=[8000, 80000])
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--folder", type=Path, help="where to build (default: a temporary folder)")
    args = parser.parse_args()
    report: dict[str, object] = {"edits": EDITS, "adds": ADDS, "rounds": args.rounds, "cores": os.cpu_count()}
    medians: dict[int, float] = {}
    with tempfile.TemporaryDirectory(prefix="evolver-bench-", dir=args.folder) as scratch:
        os.environ["EVOLVER_STATE_DIR"] = str(Path(scratch) / "state")
        for files in args.files:
            root = Path(scratch) / f"r{files}"
            build(root, files)
            found = measure(root, files, args.rounds)
            report[f"{files} files"] = summary(found)
            medians[files] = statistics.median(found["restore"])
            print(f"{files} files")
            for name, values in found.items():
                print(f"  {name:22} {min(values):8.1f} {statistics.median(values):8.1f} {max(values):8.1f} ms (min, median, max)")
            for name in ("restore", "iteration"):
                r = ratios(found[name], found["plain git"])
                print(f"  {name + ' / plain git':22} {r['min']:8.3f} {r['median']:8.3f} {r['max']:8.3f}")
    if len(medians) > 1:
        small, large = min(medians), max(medians)
        report["restore, large / small"] = round(medians[large] / medians[small], 3)
        print(f"restore at {large} files / at {small} files: {medians[large] / medians[small]:.2f}")
    if args.json:
        args.json.write_text(json.dumps(report, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
