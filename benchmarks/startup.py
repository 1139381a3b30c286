"""How fast evolver starts: `--version` against pre-commit's, `status` against a bare typer program with two commands.

    python benchmarks/startup.py [--rounds 30]

The programs take turns in one run, so that a busy machine is busy for all of them; the median counts. Installs pre-commit into a
temporary environment. Exits 1 when `evolver --version` is slower, or `evolver status` above 1.2 times the bare program.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

BARE = """
import typer

app = typer.Typer()


@app.command()
def status() -> None:
    print("idle")


@app.command()
def other() -> None:
    print("other")


app()
"""
LIMIT = 1.2


def timed(argv: Sequence[str], cwd: Path, env: dict[str, str]) -> float:
    """Seconds."""
    began = time.perf_counter()
    subprocess.run(argv, cwd=cwd, env=env, check=True, stdout=subprocess.DEVNULL, stdin=subprocess.DEVNULL)
    return time.perf_counter() - began


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, default=30)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="evolver-startup-") as name:
        folder = Path(name)
        subprocess.run([sys.executable, "-m", "venv", str(folder / "venv")], check=True)
        subprocess.run([str(folder / "venv/bin/pip"), "install", "-q", "pre-commit"], check=True)
        (folder / "bare.py").write_text(BARE, encoding="utf-8")
        subprocess.run(["git", "init", "-q", str(folder / "repo")], check=True)
        env = {**os.environ, "EVOLVER_STATE_DIR": str(folder / "state")}
        evolver = str(Path(sys.executable).with_name("evolver"))
        programs = {
            "evolver --version": [evolver, "--version"],
            "pre-commit --version": [str(folder / "venv/bin/pre-commit"), "--version"],
            "evolver status": [evolver, "status"],
            "bare typer program": [sys.executable, str(folder / "bare.py"), "status"],
        }
        times: dict[str, list[float]] = {name: [] for name in programs}
        for _ in range(options.rounds + 1):
            for name, argv in programs.items():
                times[name].append(timed(argv, folder / "repo", env))
    medians = {name: statistics.median(seconds[1:]) for name, seconds in times.items()}  # the first round fills caches
    for name, median in medians.items():
        print(f"{name:<22} {median * 1000:7.1f} ms")
    version = medians["evolver --version"] / medians["pre-commit --version"]
    status = medians["evolver status"] / medians["bare typer program"]
    print(f"evolver --version is {version:.2f} times pre-commit --version (limit 1)")
    print(f"evolver status is {status:.2f} times the bare program (limit {LIMIT})")
    return 0 if version <= 1 and status <= LIMIT else 1


if __name__ == "__main__":
    sys.exit(main())
