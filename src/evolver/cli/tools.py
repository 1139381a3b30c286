"""What a validator's command needs and this machine or project lacks. Found without running anything of the project's.

Where only running the command would tell (a shell's operators, a generated Makefile), nothing is said.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

PROBE_MS = 10_000
_ABSENT = 3  # the probe's exit status; any other failure tells nothing
# Looks a module up as `python -m` would, without importing it. The folder is off the path while the probe imports its own.
_PROBE = f"""\
import sys
here = sys.path.pop(0) if sys.path and sys.path[0] == "" else None
import importlib.util, os
if here is not None:
    sys.path.insert(0, here)
found = importlib.util.find_spec(sys.argv[1])
folders = list(found.submodule_search_locations or ()) if found is not None else []
bare = found is not None and found.origin is None and not any(os.path.isfile(f + "/__main__.py") for f in folders)
sys.exit({_ABSENT} if found is None or bare and "." not in sys.argv[2] else 0)
"""


@dataclass(frozen=True, slots=True)
class Lack:
    """What is not there, and what to do about it."""

    text: str
    fix: str


def lack_of(
    command: str | tuple[str, ...] | None, folder: Path, env: Mapping[str, str] = {}, *, probe: bool = True
) -> Lack | None:
    """None: nothing is known to be missing. `folder` is where the command runs; without `probe` no program is started."""
    words, given = _simple(command)
    if not words:
        return None
    env = {**env, **given}
    program = words[0]
    path = env.get("PATH", os.environ.get("PATH"))
    found = os.access(folder / program, os.X_OK) if "/" in program else shutil.which(program, path=path) is not None
    if not found:
        return Lack(f"{program}: not found", f"install {program}, or change the command")
    name = program.rpartition("/")[2]
    if re.fullmatch(r"(python|pypy)[\d.]*", name):
        return _module(words, folder, env) if probe else None
    look = _LOOKS.get(name)
    return look(words, folder) if look is not None else None


def _simple(command: str | tuple[str, ...] | None) -> tuple[list[str], dict[str, str]]:
    """The words of one plain command and the variables set before it; no words where only a shell could tell."""
    if not isinstance(command, str):
        return list(command or ()), {}
    if set(command) & set("$`|&;<>()\n"):
        return [], {}
    try:
        words = shlex.split(command)
    except ValueError:
        return [], {}
    given: dict[str, str] = {}
    while words and (match := re.match(r"([A-Za-z_]\w*)=(.*)", words[0], re.S)):
        given[match[1]] = match[2]
        words.pop(0)
    return words, given


def _module(words: Sequence[str], folder: Path, env: Mapping[str, str]) -> Lack | None:
    """`python -m X`: whether that very Python finds X."""
    from evolver.process import run_simple

    options = words[1 : words.index("-m")] if "-m" in words[:-1] else ()
    if "-m" not in words[:-1] or not all(re.fullmatch(r"-[bBdEIOPqsSuvx]+", option) for option in options):
        return None
    module = words[words.index("-m") + 1]
    top = module.partition(".")[0]
    argv = [words[0], *options, "-c", _PROBE, top, module]
    done = run_simple(argv, timeout_ms=PROBE_MS, env={**os.environ, **env}, cwd=folder)
    if done.exit_code != _ABSENT:
        return None
    own = next((f"{name}/bin/python" for name in (".venv", "venv") if (folder / name / "bin/python").exists()), "")
    instead = f"; or call {own} in the command" if own and own != words[0] else ""
    return Lack(f"{words[0]} has no module {top}", f"{words[0]} -m pip install {top}{instead}")


def _upwards(folder: Path, *names: str) -> Path | None:
    """The nearest of the files, in `folder` or above."""
    return next((up / name for up in (folder, *folder.parents) for name in names if (up / name).is_file()), None)


def _script(words: Sequence[str], folder: Path) -> Lack | None:
    """`npm test`, `pnpm run X`: whether package.json has the script."""
    manager, *rest = words
    if rest[:1] in (["run"], ["run-script"]) and len(rest) > 1:
        script = rest[1]
    elif rest[:1] in (["test"], ["t"]) and manager != "bun":  # `bun test` is a runner of its own
        script = "test"
    else:
        return None
    before = rest[: rest.index("--")] if "--" in rest else rest
    if script.startswith("-") or any(
        re.match(r"-(-prefix|-workspaces?|w|ws|C|-if-present|-filter|r)\b", word) for word in before
    ):
        return None
    package = _upwards(folder, "package.json")
    if package is None:
        return Lack(f"{shlex.join(words)}: there is no package.json", "npm init, or change the command")
    try:
        scripts = json.loads(package.read_text(encoding="utf-8"))["scripts"]
    except (OSError, ValueError, KeyError, TypeError):
        scripts = {}
    if isinstance(scripts, dict) and script in scripts:
        return None
    if manager != "npm" and _binary(script, folder):  # the others run installed programs as well
        return None
    known = f" (it has {', '.join(sorted(map(str, scripts))[:8])})" if scripts and isinstance(scripts, dict) else ""
    return Lack(f"{package.name} has no script {script}{known}", f"add {script} to its scripts, or change the command")


def _binary(name: str, folder: Path) -> bool:
    return any((up / "node_modules/.bin" / name).exists() for up in (folder, *folder.parents))


def _npx(words: Sequence[str], folder: Path) -> Lack | None:
    """`npx X`: whether X is installed; else npx would fetch whatever the registry has under that name."""
    name = next((word for word in words[1:] if word not in ("--no", "--no-install", "--yes", "-y")), "")
    if not re.fullmatch(r"[\w.-]+", name) or name.startswith("-") or _binary(name, folder) or shutil.which(name):
        return None
    return Lack(f"npx {name}: {name} is not installed here, so npx would download it", f"npm install --save-dev {name}")


def _make(words: Sequence[str], folder: Path) -> Lack | None:
    """`make TARGET`: whether the Makefile names the target. Includes, patterns and generated rules may; then nothing is said."""
    targets = [word for word in words[1:] if "=" not in word and word not in ("-s", "-k", "-B", "--silent", "--always-make")]
    if any(word.startswith("-") or word.isdigit() for word in targets):
        return None
    makefile = next((folder / n for n in ("GNUmakefile", "makefile", "Makefile") if (folder / n).is_file()), None)
    if makefile is None:
        return Lack(f"{shlex.join(words)}: there is no Makefile", "write one, or change the command")
    try:
        text = makefile.read_text(encoding="utf-8", errors="replace").replace("\\\n", " ")
    except OSError:
        return None
    if re.search(r"^\s*[-s]?include\b|\$[({]eval\b", text, re.M):
        return None
    names = [name for line in re.findall(r"^(?!\t)([^#=\n]*?):(?![:=]*=)", text, re.M) for name in line.split()]
    if any("%" in name or "$" in name for name in names):
        return None
    absent = [t for t in targets if t not in names and not any(folder.glob(f"{_literal(t)}*"))]
    known = ", ".join(name for name in names if not name.startswith("."))
    fix = f"change the command; its targets are {known}" if known else "add the target, or change the command"
    return Lack(f"{makefile.name} has no target {absent[0]}", fix) if absent else None


def _literal(name: str) -> str:
    return re.sub(r"([*?\[])", r"[\1]", name.lstrip("/")) or "?"


def _manifest(option: str, *names: str) -> Callable[[Sequence[str], Path], Lack | None]:
    def look(words: Sequence[str], folder: Path) -> Lack | None:
        if any(word.startswith(option) for word in words) or _upwards(folder, *names) is not None:
            return None
        return Lack(f"{shlex.join(words)}: there is no {names[0]}", "change the command")

    return look


_LOOKS: dict[str, Callable[[Sequence[str], Path], Lack | None]] = {
    "npm": _script,
    "pnpm": _script,
    "yarn": _script,
    "bun": _script,
    "npx": _npx,
    "make": _make,
    "gmake": _make,
    "cargo": _manifest("--manifest-path", "Cargo.toml"),
    "go": _manifest("-C", "go.mod", "go.work"),
}
