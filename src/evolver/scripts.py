"""Which files a validator's command runs: its scripts, as opposed to what it only reads.

`python check.py src/app.py` is judged by `check.py`; `src/app.py` is what the agent is to work on. A guess from the words,
erring towards the agent: a test runner's arguments are not scripts, `[guard] protected` is for them.
"""

from __future__ import annotations

import json
import re
import shlex
import sys
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

_ASSIGNMENT = re.compile(r"[A-Za-z_]\w*=")
_OPERATORS = frozenset(";&|()\n")
_REDIRECTS = frozenset("<>&")
_KEYWORDS = frozenset(("if", "then", "else", "elif", "fi", "while", "until", "do", "done", "!", "{", "}"))
_WRAPPERS = frozenset(
    ("env", "exec", "command", "nice", "ionice", "nohup", "time", "timeout", "xargs", "sudo", "doas", "stdbuf", "setsid",
     "uv", "poetry", "pipenv", "hatch", "pdm", "rye")
)  # fmt: skip
_SHELL = re.compile(r"(?:ba|da|z|k|fi)?sh")
_INTERPRETER = re.compile(r"(?:python|pypy)[\d.]*|node|deno|bun|ruby|perl|php|lua|Rscript|pwsh|\.|source")
# What a runner reads without being told its name.
_IMPLIED = {
    "make": ("Makefile", "makefile", "GNUmakefile"),
    "just": ("justfile", "Justfile", ".justfile"),
    "task": ("Taskfile.yml", "Taskfile.yaml", "taskfile.yml", "taskfile.yaml", "Taskfile.dist.yml", "Taskfile.dist.yaml"),
    "rake": ("Rakefile", "rakefile", "Rakefile.rb", "rakefile.rb"),
    "nox": ("noxfile.py",),
    "tox": ("tox.ini", "tox.toml"),
    "pre-commit": (".pre-commit-config.yaml",),
}
# What runs `scripts` of a package.json. The rest of that file is the agent's: it may well add a dependency.
_PACKAGE_RUNNERS = frozenset(("npm", "pnpm", "yarn", "bun"))
# `python -m` looks into its own folder first: a file of this name there would stand in for the tool.
_TOOLS = sys.stdlib_module_names | {
    "behave", "black", "coverage", "flake8", "isort", "mypy", "nose2", "nox", "pip", "pylint", "pyright", "pytest", "ruff", "tox",
}  # fmt: skip

PACKAGE_LIMIT = 16 << 20


@dataclass
class Scripts:
    """`files` may or may not exist; `folders` are where else they may lie (`cd tools && ./check.sh`)."""

    files: list[str] = field(default_factory=list)
    folders: list[str] = field(default_factory=list)
    rivals: list[tuple[str, ...]] = field(default_factory=list)  # names of one thing: which is read depends on which there are
    impostors: list[str] = field(default_factory=list)  # what would stand in for a tool that lies elsewhere
    packages: bool = False  # package.json's scripts are run

    def read(self, words: Iterable[str], depth: int = 3) -> None:
        """One command, or several with shell operators between them."""
        role = "command"
        for word in words:
            if not word:
                continue
            if role == "skip":
                role = "arguments"
            elif set(word) <= _OPERATORS:
                role = "command"
            elif set(word) <= _REDIRECTS:
                role = "skip"
            elif role in ("command", "wrapped"):
                role = self._command(word, role)
            elif role in ("script", "shell"):
                role = self._argument(word, role)
            elif role == "module":
                path = word.replace(".", "/")
                self.alternatives(f"{path}.py", f"{path}/__main__.py", f"{path}/__init__.py")
                top = word.partition(".")[0]
                self.impostors += [f"{top}.py", top] if top in _TOOLS else []
                role = "arguments"
            elif role == "inline":
                if depth:
                    self.read(split(word), depth - 1)
                role = "arguments"
            elif role == "folder":
                self.folders.append(word)
                role = "runner"
            elif role == "file":
                self.files.append(word)
                role = "runner"
            elif role == "runner":
                role = {"-C": "folder", "-f": "file", "--directory": "folder", "--file": "file"}.get(word, role)

    def alternatives(self, *names: str) -> None:
        self.files += names
        self.rivals.append(names)

    def _command(self, word: str, role: str) -> str:
        if _ASSIGNMENT.match(word) or word in _KEYWORDS:
            return role
        if role == "wrapped" and (word.startswith("-") or word == "run" or re.fullmatch(r"[\d.]+[smhd]?", word)):
            return role
        name = word.rpartition("/")[2]
        if name in _WRAPPERS:
            return "wrapped"
        if name == "cd":
            return "folder"
        if "/" in word:  # any other is looked up in PATH
            self.files.append(word)
        if name in _IMPLIED:
            self.alternatives(*_IMPLIED[name])
            return "runner"
        self.packages |= name in _PACKAGE_RUNNERS
        if _SHELL.fullmatch(name):
            return "shell"
        return "script" if _INTERPRETER.fullmatch(name) else "arguments"

    def _argument(self, word: str, role: str) -> str:
        """Of an interpreter: options, then the script."""
        if word == "-m" and role == "script":
            return "module"
        if re.fullmatch(r"-[a-z]*c", word):
            return "inline" if role == "shell" else "skip"
        if word.startswith("-") or word == "run":
            return role
        self.files.append(word)
        return "arguments"


def split(command: str) -> tuple[str, ...]:
    """A shell command's words and operators."""
    lexer = shlex.shlex(command, posix=True, punctuation_chars="();<>|&\n")
    lexer.whitespace_split, lexer.commenters = True, ""
    lexer.whitespace = " \t\r"
    try:
        return tuple(lexer)
    except ValueError:  # an open quote: the shell will say so
        return tuple(command.split())


def scripts_of(command: str | tuple[str, ...] | None, target: str | None = None) -> Scripts:
    """Of a validator's command, or of a `callable` (`package.module:name`)."""
    found = Scripts()
    if command:
        found.read(split(command) if isinstance(command, str) else command)
    if target:
        module = target.partition(":")[0].replace(".", "/")
        found.alternatives(f"{module}.py", f"{module}/__init__.py")
    return found


def package_scripts(path: Path) -> str | None:
    """What the `scripts` of a package.json say, in a form that is equal when they are; None: there is nothing to read."""
    try:
        if not path.is_file():  # reading a pipe waits for ever
            return None
        with path.open("rb") as file:
            document = json.loads(file.read(PACKAGE_LIMIT))
    except (OSError, ValueError, RecursionError):
        return None
    return json.dumps(document.get("scripts"), sort_keys=True) if isinstance(document, dict) else None
