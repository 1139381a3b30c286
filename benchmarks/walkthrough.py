"""A newcomer's first ten minutes, timed: install, `evolver init --yes` in a real Python and a real Node project, first iteration.

    python benchmarks/walkthrough.py [--write docs/walkthrough.md]

Follows the README in a fresh clone with an empty HOME. The projects are humanize (PyPI's sdist) and minimist (npm's package, which
ships its tests). A stand-in makes the attempts, since a model would not be the same twice: it appends a comment to a source file.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).parents[1]
LIMIT_S = 600


@dataclass
class Walk:
    """Runs commands one after the other and remembers how long each took."""

    env: dict[str, str]
    rows: list[tuple[str, str, float]] = field(default_factory=list)

    def step(self, what: str, command: str, cwd: Path) -> str:
        began = time.monotonic()
        done = subprocess.run(
            ["bash", "-c", command], cwd=cwd, env=self.env, capture_output=True, text=True, stdin=subprocess.DEVNULL
        )
        self.rows.append((what, command, time.monotonic() - began))
        if done.returncode != 0:
            raise SystemExit(f"{command}: exit {done.returncode}\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
        return done.stdout

    def table(self) -> str:
        lines = ["| step | command | seconds |", "| --- | --- | --- |"]
        lines += [
            f"| {what} | `{command.replace('|', chr(92) + '|')}` | {seconds:.1f} |" for what, command, seconds in self.rows
        ]
        return "\n".join([*lines, f"| **together** | | **{sum(row[2] for row in self.rows):.0f}** |"])


def commit(folder: Path, env: dict[str, str]) -> None:
    for args in (["init", "-q"], ["config", "user.name", "Me"], ["config", "user.email", "me@example.invalid"], ["add", "-A"]):
        subprocess.run(["git", *args], cwd=folder, env=env, check=True)
    subprocess.run(["git", "commit", "-q", "-m", "start"], cwd=folder, env=env, check=True)


def python_project(folder: Path, env: dict[str, str]) -> Path:
    """humanize, with an environment for its tests, as its developer has one."""
    subprocess.run(
        [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--no-binary", "humanize", "-d", str(folder), "humanize"],
        check=True,
    )
    (archive,) = folder.glob("humanize-*.tar.gz")
    subprocess.run(["tar", "-xzf", str(archive), "-C", str(folder)], check=True)
    (root,) = (path for path in folder.glob("humanize-*") if path.is_dir())
    subprocess.run([sys.executable, "-m", "venv", str(root / ".venv")], check=True)
    subprocess.run(
        [str(root / ".venv/bin/pip"), "install", "-q", ".", "pytest", "freezegun", "pytest-benchmark"], cwd=root, check=True
    )
    (root / ".gitignore").write_text(".venv/\n__pycache__/\n", encoding="utf-8")
    commit(root, env)
    return root


def node_project(folder: Path, env: dict[str, str]) -> Path:
    """minimist with what its tests need."""
    subprocess.run(["npm", "pack", "--silent", "minimist@1"], cwd=folder, check=True, stdout=subprocess.DEVNULL)
    (archive,) = folder.glob("minimist-*.tgz")
    subprocess.run(["tar", "-xzf", str(archive), "-C", str(folder)], check=True)
    root = (folder / "package").rename(folder / "minimist")
    subprocess.run(["npm", "install", "--silent", "--no-audit", "--no-fund", "--ignore-scripts", "tape"], cwd=root, check=True)
    subprocess.run(["npm", "pkg", "set", "scripts.test=tape 'test/*.js'"], cwd=root, check=True)
    for hook in ("pretest", "posttest", "prepack", "prepublish", "prepublishOnly", "lint"):
        subprocess.run(["npm", "pkg", "delete", f"scripts.{hook}"], cwd=root, check=True)
    (root / ".gitignore").write_text("node_modules/\n", encoding="utf-8")
    commit(root, env)
    return root


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--write", type=Path, help="write the page there")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="evolver-walk-") as name:
        folder = Path(name).resolve()
        home = folder / "home"
        home.mkdir()
        env = {k: v for k, v in os.environ.items() if not k.startswith(("EVOLVER_", "GIT_", "VIRTUAL_ENV"))} | {
            "HOME": str(home)
        }
        python, node = python_project(folder, env), (node_project(folder, env) if shutil.which("npm") else None)
        walk = Walk(env | {"PATH": f"{folder / 'evolver/.venv/bin'}{os.pathsep}{env['PATH']}"})
        walk.step("clone", f"git clone -q {ROOT} evolver", folder)
        walk.step(
            "install, run the demo",
            "python3 -m venv .venv && .venv/bin/pip install -q . && .venv/bin/evolver demo",
            folder / "evolver",
        )
        for title, root, source, comment in (
            ("Python", python, "src/humanize/number.py", "#"),
            ("Node", node, "index.js", "//"),
        ):
            if root is None:
                continue
            walk.step(f"{title}: set up", "evolver init --yes --agent claude --no-commit || test $? = 5", root)
            walk.step(f"{title}: commit", "git add loops .gitignore && git commit -qm 'Set up an evolver loop'", root)
            walk.step(f"{title}: the plan", "evolver run --dry-run", root)
            attempt = f"echo '{comment} attempt' >> {source}"
            shown = walk.step(f"{title}: first iteration", f'evolver run default --max-iters 1 --codegen "{attempt}"', root)
            assert "accepted as" in shown, shown
        total = sum(row[2] for row in walk.rows)
        text = walk.table().replace(str(folder), "~").replace(str(ROOT), "/path/to/evolver")
        print(text)
        if options.write:
            about = (__doc__ or "").split("\n\n")[2].replace("\n", " ").strip()
            made = "Written by `python benchmarks/walkthrough.py --write docs/walkthrough.md`."
            page = f"# The first ten minutes, timed\n\n{made} {about}\n\n{text}\n"
            options.write.write_text(page, encoding="utf-8")
        return 0 if total < LIMIT_S else 1


if __name__ == "__main__":
    sys.exit(main())
