"""`evolver run mutate` on real packages: what their tests catch is rolled back, what survives is committed.

    python benchmarks/mutate.py [--package NAME]... [--iterations 20] [--readme README.md]

Fetches each package's sdist, makes a repository of it, runs the loop unattended, then checks: HEAD passes the suite, the tree
is clean, there are as many commits as accepted events, every rollback was verified, and the chain is intact. Exits 1 otherwise.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

# What a package's tests import besides pytest, where its sources lie, and further options for pytest.
PACKAGES = {
    "humanize": (("freezegun", "pytest-benchmark"), "src", "--benchmark-disable"),
    "more-itertools": ((), ".", ""),
    "tenacity": (("tornado", "typeguard"), ".", ""),
}
DEFAULT = ("humanize", "tenacity")
MARKS = ("<!-- mutate -->", "<!-- /mutate -->")


@dataclass(frozen=True)
class Figures:
    package: str
    files: int
    iterations: int
    accepted: int
    rolled_back: int
    no_change: int
    seconds: float
    suite_seconds: float
    overhead_ms: int  # per iteration: everything but codegen and the suite


def call(argv: Sequence[str], cwd: Path, env: dict[str, str] | None = None, *, check: bool = True) -> str:
    done = subprocess.run(argv, cwd=cwd, env=env, capture_output=True, text=True, stdin=subprocess.DEVNULL)
    if check and done.returncode != 0:
        raise SystemExit(f"{' '.join(argv)}: exit {done.returncode}\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
    return done.stdout


def unpacked(package: str, folder: Path) -> Path:
    """The package's source distribution, unpacked; its top folder."""
    call(
        [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--no-binary", package, "-d", str(folder), package], folder
    )
    (archive,) = folder.glob("*.tar.gz")
    (folder / "unpacked").mkdir()
    call(["tar", "-xzf", str(archive), "-C", str(folder / "unpacked")], folder)
    (root,) = (folder / "unpacked").iterdir()
    return root


def environment(folder: Path, extras: Sequence[str], sources: Path, options: str) -> dict[str, str]:
    """An environment whose `python` has pytest and imports the package from its sources."""
    call([sys.executable, "-m", "venv", str(folder / "venv")], folder)
    call([str(folder / "venv/bin/pip"), "install", "-q", "pytest", *extras], folder)
    return {
        **{name: value for name, value in os.environ.items() if not name.startswith(("EVOLVER_", "GIT_"))},
        "PATH": f"{folder / 'venv/bin'}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": str(sources),
        "PYTEST_ADDOPTS": options,
        "PYTHONDONTWRITEBYTECODE": "1",
        "EVOLVER_STATE_DIR": str(folder / "state"),
    }


def repository(root: Path, env: dict[str, str]) -> str:
    """Commit the sources; the commit's id."""
    call(["git", "init", "-q", "-b", "main"], root, env)
    call(["git", "config", "user.name", "benchmark"], root, env)
    call(["git", "config", "user.email", "benchmark@evolver.invalid"], root, env)
    call(["git", "add", "-A", "--force"], root, env)
    call(["git", "commit", "-q", "-m", "The sdist as released"], root, env)
    return call(["git", "rev-parse", "HEAD"], root, env).strip()


def measure(package: str, iterations: int, folder: Path) -> Figures:
    """Run the loop on one package and check everything the module's first lines promise."""
    extras, where, more = PACKAGES[package]
    root = unpacked(package, folder)
    env = environment(folder, extras, root / where, more)
    start = repository(root, env)
    suite = ["python", "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider"]
    began = time.monotonic()
    call(suite, root, env)
    suite_seconds = time.monotonic() - began

    evolver = [sys.executable, "-m", "evolver"]
    began = time.monotonic()
    done = subprocess.run([*evolver, "run", "mutate", "--max-iters", str(iterations), "--quiet"], cwd=root, env=env)
    seconds = time.monotonic() - began
    assert done.returncode in (0, 1), f"evolver exited with {done.returncode}"

    lines = call([*evolver, "events", "-o", "json"], root, env).splitlines()
    events = [json.loads(line) for line in lines]
    data: dict[str, list[dict[str, object]]] = {}
    for event in events:
        data.setdefault(event["type"].removeprefix("dev.evolver."), []).append(event["data"])
    (finished,) = data["run.finished"]
    accepted = len(data.get("iteration.accepted", []))
    commits = int(call(["git", "rev-list", "--count", f"{start}..HEAD"], root, env))
    assert finished["iterations"] == iterations, finished
    assert commits == accepted == finished["accepted"], (commits, accepted, finished)
    assert call(["git", "status", "--porcelain", "--ignored"], root, env) == "", "the tree is not clean"
    assert all(event["verified"] for event in data.get("rollback.finished", []))
    assert not data.get("rollback.failed")
    call(suite, root, env)  # HEAD passes
    call([*evolver, "audit", "verify"], root, env)
    spent = sum(int(str(event["duration_ms"])) for event in data["step.finished"])
    files = len(call(["git", "ls-files"], root, env).splitlines())
    rolled_back = len(data.get("rollback.finished", []))
    no_change = len(data.get("iteration.no_change", []))
    overhead = max(0, round((seconds * 1000 - spent) / iterations))
    return Figures(package, files, iterations, accepted, rolled_back, no_change, seconds, suite_seconds, overhead)


def table(figures: Sequence[Figures]) -> str:
    names = (
        "package",
        "files",
        "iterations",
        "survived, committed",
        "caught, rolled back",
        "no change",
        "seconds",
        "suite alone",
    )
    head = f"| {' | '.join(names)} | evolver's own share |"
    lines = [head, "|" + " --- |" * 9]
    lines += [
        f"| {f.package} | {f.files} | {f.iterations} | {f.accepted} | {f.rolled_back} | {f.no_change} | {f.seconds:.0f} "
        f"| {f.suite_seconds:.1f} s | {f.overhead_ms} ms an iteration |"
        for f in figures
    ]
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--package", action="append", choices=PACKAGES, help="may be repeated")
    parser.add_argument("--iterations", type=int, default=20)
    parser.add_argument("--readme", type=Path, help="write the table between its marks in this file")
    options = parser.parse_args()
    figures = []
    for package in options.package or DEFAULT:
        with tempfile.TemporaryDirectory(prefix=f"evolver-mutate-{package}-") as folder:
            figures.append(measure(package, options.iterations, Path(folder).resolve()))
            print(table(figures[-1:]).splitlines()[-1], flush=True)
    text = table(figures)
    if options.readme:
        before, rest = options.readme.read_text(encoding="utf-8").split(MARKS[0])
        after = rest.split(MARKS[1])[1]
        options.readme.write_text(f"{before}{MARKS[0]}\n{text}\n{MARKS[1]}{after}", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
