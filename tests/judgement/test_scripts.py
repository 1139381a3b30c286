"""Which words of a validator's command are its scripts."""

from __future__ import annotations

import pytest

from evolver.scripts import scripts_of

CASES: dict[str, tuple[str, ...]] = {
    "./check.sh": ("./check.sh",),
    "tools/check.sh --fast src/app.py": ("tools/check.sh",),
    "grep -q good app.txt": (),
    "pytest -q tests/test_a.py": (),
    "python check.py app.py": ("check.py",),
    "python3.12 -u -X dev check.py": ("dev",),  # an option's value is taken for the script: harmless, there is no such file
    "python -c 'import app'": (),
    "python -m unittest -q": ("unittest.py", "unittest/__main__.py", "unittest/__init__.py"),
    "sh -e ci/run.sh": ("ci/run.sh",),
    "bash -lc 'cd x && ./y.sh | tee z'": ("./y.sh",),
    "A=1 B='2 3' ./a && ! ./b || ./c; (./d); ./e > out 2>&1 < in &": ("./a", "./b", "./c", "./d", "./e"),
    "if ./a; then ./b; else ./c; fi": ("./a", "./b", "./c"),
    "timeout 30 nice -n 5 env -i X=1 ./a": ("./a",),
    "uv run python check.py": ("check.py",),
    "uv run ./check.py": ("./check.py",),
    "source env.sh && . other.sh && node check.js": ("env.sh", "other.sh", "check.js"),
    "./a\n./b\n": ("./a", "./b"),
    "make test": ("Makefile", "makefile", "GNUmakefile"),
    "make -f build.mk test": ("Makefile", "makefile", "GNUmakefile", "build.mk"),
    "just test": ("justfile", "Justfile", ".justfile"),
    "'an open quote ./a": (),
    "": (),
}


@pytest.mark.parametrize(("command", "scripts"), CASES.items())
def test_scripts_of_a_shell_command(command: str, scripts: tuple[str, ...]) -> None:
    assert tuple(scripts_of(command).files) == scripts


def test_scripts_of_an_argv() -> None:
    assert scripts_of(("python", "check.py", "a;b")).files == ["check.py"]
    assert scripts_of(("./check", "x")).files == ["./check"]


@pytest.mark.parametrize(
    ("command", "folders"), [("cd tools && ./check.sh", ["tools"]), ("make -C build test", ["build"]), ("./a; cd b; ./c", ["b"])]
)
def test_folders_that_scripts_may_lie_in(command: str, folders: list[str]) -> None:
    assert scripts_of(command).folders == folders


def test_a_callables_module() -> None:
    assert scripts_of(None, "judges.speed:measure").files == ["judges/speed.py", "judges/speed/__init__.py"]
