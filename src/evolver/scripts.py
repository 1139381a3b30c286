"""Which files a validator's command runs: its scripts, as opposed to what it only reads.

`python check.py src/app.py` is judged by `check.py`; `src/app.py` is what the agent is to work on. A guess from the words,
erring towards the agent: a test runner's arguments are not scripts, `[guard] protected` is for them.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable
from dataclasses import dataclass, field

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
_IMPLIED = {"make": ("Makefile", "makefile", "GNUmakefile"), "just": ("justfile", "Justfile", ".justfile")}


@dataclass
class Scripts:
    """`files` may or may not exist; `folders` are where else they may lie (`cd tools && ./check.sh`)."""

    files: list[str] = field(default_factory=list)
    folders: list[str] = field(default_factory=list)

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
                self.files += [f"{path}.py", f"{path}/__main__.py", f"{path}/__init__.py"]
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
            self.files += _IMPLIED[name]
            return "runner"
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
        found.files += [f"{module}.py", f"{module}/__init__.py"]
    return found
