"""An attempt that nests folders deeper than Python's stack: judged, restored and kept like any other."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator

import pytest

from support import Repo

AGENT = f'''{sys.executable} -c "
import os
for _ in range(1100):
    os.mkdir('d')
    os.chdir('d')
open('f', 'w').write('x')
" && echo agent >>src/a.py'''

LOOP = f"""
[codegen]
command = '''
{AGENT}
'''
[[validator]]
name = "judge"
command = "true"
[[effect]]
name = "generate"
action = "git-worktree"
when = "before_validate"
run = "echo more >>src/a.py; echo x >made; exit 1"
"""


@pytest.fixture
def repo(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Repo]:
    folder = tmp_path_factory.mktemp("r")  # short: a path has its limit, too
    yield Repo.make(folder / "r")
    subprocess.run(["rm", "-rf", folder], check=True)  # pytest itself cannot


@pytest.mark.parametrize("mode", ["hard", "stash"])
def test_a_deep_attempt_is_undone(repo: Repo, mode: str) -> None:
    done = repo.run(AGENT, "false", "--rollback", mode)
    assert done.code == 1, done.text
    assert not (repo.root / "d").exists() and repo.sh("git status --porcelain") == ""
    if mode == "stash":
        done = repo.evolver("attempts", "apply", "last")
        assert done.code == 0, done.text
        assert (repo.root / ("d/" * 1100) / "f").read_text() == "x"


def test_a_deep_attempt_is_accepted(repo: Repo) -> None:
    done = repo.run(AGENT, "true")
    assert done.code == 0, done.text
    assert repo.sh("git ls-tree -r --name-only HEAD d").count("d/") == 1100


def test_an_effect_in_a_deep_attempt_is_taken_back_and_nobodys_file_is_used_as_a_scratch(repo: Repo) -> None:
    (repo.root / "loops").mkdir()
    (repo.root / "loops/default.toml").write_text(LOOP)
    repo.sh("git add -A && git commit -qm loop && echo mine >src/a.py.evolver-new")
    done = repo.evolver("run", "--max-iters", "1", "--rollback", "none")
    assert done.code == 3, done.text
    assert (repo.root / "src/a.py").read_text().endswith("agent\n") and not (repo.root / "made").exists()
    assert (repo.root / ("d/" * 1100) / "f").read_text() == "x"
    assert (repo.root / "src/a.py.evolver-new").read_text() == "mine\n"
