"""What `doctor` finds missing of a validator's tools, and what `init` proposes for projects of unittest: real interpreters."""

from __future__ import annotations

import json
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from support import Repo

PACKAGE = json.dumps({"scripts": {"lint": "eslint ."}})
MAKEFILE = "SRC := a b\nall: $(SRC)\n\ttrue\nlint types:\n\ttrue\n"


def repo_with(root: Path, files: dict[str, str], *validators: str, more: str = "") -> Repo:
    repo = Repo.make(root)
    tables = "".join(f"[[validator]]\nname = 'v{n}'\ncommand = {json.dumps(v)}\n" for n, v in enumerate(validators))
    loop = {"loops/default.toml": f"{more}\n[codegen]\ncommand = 'true'\n{tables}"} if validators else {}
    for name, text in {**files, **loop}.items():
        (repo.root / name).parent.mkdir(parents=True, exist_ok=True)
        (repo.root / name).write_text(text)
    repo.sh("git add -A && git commit -qm files")
    return repo


def validator(repo: Repo, number: int = 0) -> dict[str, object]:
    text = repo.evolver("doctor", "--json").out
    (found,) = (f for f in json.loads(text) if f["check"] == f"validator v{number}")
    assert isinstance(found, dict)
    return found


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Python with nothing installed."""
    folder = tmp_path_factory.mktemp("bare") / "venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True, timeout=120)
    return folder / "bin/python"


def test_a_module_that_this_very_python_lacks(tmp_path: Path, bare: Path) -> None:
    command = "-m pytest -q"
    repo = repo_with(tmp_path / "repo", {}, f"{bare} {command}", f"{sys.executable} {command}", f"X=1 {bare} -B {command}")
    lacks = validator(repo)
    assert lacks["ok"] is False
    assert "has no module pytest" in str(lacks["text"])
    assert lacks["fix"] == f"{bare} -m pip install pytest"
    assert validator(repo, 1)["ok"] is True
    assert validator(repo, 2)["ok"] is False
    assert repo.evolver("doctor").code == 1


def test_looking_for_a_module_runs_nothing_of_the_project(tmp_path: Path, bare: Path) -> None:
    """Neither the module itself nor one of the project's that is named like one of the standard library."""
    trap = f"open({str(tmp_path / 'ran')!r}, 'w')\n"
    names = ("checks/__init__.py", "checks/__main__.py", "importlib.py", "types.py", "warnings.py", "os.py")
    files = {f"sub/{name}": trap for name in names}  # evolver itself is started above, by a `python -m` of the tests
    repo = repo_with(tmp_path / "repo", files, f"{bare} -m checks", f"{bare} -m checks.more", more="[loop]\nscope = 'sub'")
    assert validator(repo)["ok"] is True
    assert validator(repo, 1)["ok"] is True
    assert not (tmp_path / "ran").exists()


def test_a_module_in_the_folder_where_steps_run(tmp_path: Path, bare: Path) -> None:
    repo = repo_with(tmp_path / "repo", {"sub/own.py": ""}, f"{bare} -m own", more="[loop]\nscope = 'sub'")
    assert validator(repo)["ok"] is True
    folder = repo_with(tmp_path / "other", {"pytest/notes.txt": "a folder is no pytest"}, f"{bare} -m pytest")
    assert validator(folder)["ok"] is False


def test_no_python_of_a_held_tree_is_started(tmp_path: Path) -> None:
    repo = repo_with(tmp_path / "repo", {}, "./py/python -m pytest")
    ran = tmp_path / "ran"
    plant = f"mkdir py; printf '#!/bin/sh\\ntouch {ran}\\nexit 3\\n' >py/python; chmod +x py/python"
    assert repo.run(plant, "false", "--rollback", "none").code == 3
    assert validator(repo)["ok"] is True
    assert not ran.exists()


@pytest.mark.parametrize(
    ("command", "files", "said"),
    [
        ("npm test", {}, "no package.json"),
        ("npm test", {"package.json": PACKAGE}, "no script test (it has lint)"),
        ("npm run lint", {"package.json": PACKAGE}, ""),
        ("npm run lint -- --fix", {"package.json": PACKAGE}, ""),
        ("npm run types --if-present", {"package.json": PACKAGE}, ""),
        ("npm test --prefix web", {}, ""),
        ("npx eslint .", {"package.json": PACKAGE}, "not installed here"),
        ("npx eslint .", {"node_modules/.bin/eslint": "#!/bin/sh\n"}, ""),
        ("make check", {}, "no Makefile"),
        ("make check", {"Makefile": MAKEFILE}, "no target check"),
        ("make -C sub check", {"Makefile": MAKEFILE}, ""),
        ("make types", {"Makefile": "all:\n\ttrue\nlint types:\n\ttrue\n"}, ""),
        ("make check", {"Makefile": "include rules.mk\n"}, ""),
        ("make check", {"Makefile": "%:\n\ttrue\n"}, ""),
        ("make check", {"Makefile": "check := 1\nall: ; true\n"}, "no target check"),
        ("make check", {"Makefile": "all:\n\ttrue\n", "check.c": "int main(){}"}, ""),
        ("cargo test", {}, "no Cargo.toml"),
        ("cargo test", {"Cargo.toml": ""}, ""),
        ("nosuchtool -q", {}, "nosuchtool: not found"),
        ("nosuchtool && true", {}, ""),
    ],
)
def test_what_a_command_needs(command: str, files: dict[str, str], said: str, tmp_path: Path) -> None:
    tools = tmp_path / "tools"
    tools.mkdir()
    for name in ("npm", "npx", "make", "cargo"):
        (tools / name).write_text("#!/bin/sh\necho must not run >&2; exit 1\n")
        (tools / name).chmod(0o755)
    repo = repo_with(tmp_path / "repo", files, command)
    repo.env["PATH"] = f"{tools}:/usr/bin:/bin"
    found = validator(repo)
    assert found["ok"] is (not said), found
    assert said in str(found["text"])
    assert found["ok"] or found["fix"]


CASE = "import unittest\n\nimport app\n\n\nclass T(unittest.TestCase):\n    def test_f(self) -> None:\n        self.assertEqual(app.f(), 1)\n"


@pytest.mark.parametrize(
    ("files", "command"),
    [
        ({"test_app.py": CASE}, "-m unittest -q"),
        ({"tests/__init__.py": "", "tests/test_app.py": CASE}, "-m unittest -q"),
        ({"tests/test_app.py": CASE}, "-m unittest discover -q -s tests"),
        (
            {"tests/unit/test_app.py": CASE, "testapp.py": CASE},
            "-m unittest -q && python -m unittest discover -q -s tests/unit",
        ),
    ],
)
def test_init_proposes_unittest_and_it_judges(files: dict[str, str], command: str, tmp_path: Path) -> None:
    """The proposed command passes, and fails when the project is broken: it does run the tests."""
    repo = repo_with(tmp_path / "repo", {"app.py": "def f(): return 1\n", **files})
    tools = tmp_path / "tools"
    tools.mkdir()
    (tools / "python").symlink_to(sys.executable)
    repo.env["PATH"] = f"{tools}:/usr/bin:/bin"
    assert "ready:" in repo.evolver("init", "--yes", "--agent", "codex").text or "agent codex" in repo.evolver("doctor").out
    (found,) = tomllib.loads((repo.root / "loops/default.toml").read_text())["validator"]
    assert found["command"] == f"python {command}"
    repo.sh(found["command"])
    (repo.root / "app.py").write_text("def f(): return 2\n")
    with pytest.raises(AssertionError, match="FAILED"):
        repo.sh(found["command"])


@pytest.mark.parametrize(
    "files",
    [
        {"test_app.py": CASE, "requirements-dev.txt": "pytest>=8\n"},
        {"test_app.py": CASE, "pyproject.toml": "[dependency-groups]\ndev = ['pytest-cov']\n"},
        {"test_app.py": CASE, "tests/conftest.py": ""},
        {"test_app.py": CASE, "tests/test_b.py": "def test_b():\n    assert True\n"},
        {"test_app.py": CASE, "tests/test_b.py": "import unittest\nimport pytest\n"},
    ],
)
def test_init_proposes_pytest_where_anything_speaks_of_it(files: dict[str, str], tmp_path: Path) -> None:
    repo = repo_with(tmp_path / "repo", files)
    repo.evolver("init", "--yes", "--agent", "codex")
    (found,) = tomllib.loads((repo.root / "loops/default.toml").read_text())["validator"]
    assert "-m pytest" in found["command"]
