"""The mutator behind `loops/demo` and `loops/mutate`: one change, valid, minimal, repeatable."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from pathlib import Path

import pytest

from evolver import mutate, mutations

SAMPLE = '''"""Docstring: 1 < 2 and 3."""
LIMIT: int = 10


def f(a: int = 1, b: "x < y" = 2) -> int:  # 7 < 8
    if (a) < (  # a comment: 3 + 4
        b
    ) and not b is None:
        return a + \\
            (b * 2)
    total = 0
    for item in range(a):
        total += item if item not in (1, 2) else -item
    return f"{a + b}" and total >> 1
'''


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    (tmp_path / "pkg").mkdir()
    (tmp_path / "pkg/mod.py").write_text(SAMPLE)
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests/helper.py").write_text("X = 1\n")
    (tmp_path / "test_top.py").write_text("X = 1\n")
    (tmp_path / "setup.py").write_text("X = 1\n")
    (tmp_path / "env").mkdir()
    (tmp_path / "env/pyvenv.cfg").write_text("")
    (tmp_path / "env/lib.py").write_text("X = 1\n")
    (tmp_path / ".hidden").mkdir()
    (tmp_path / ".hidden/x.py").write_text("X = 1\n")
    (tmp_path / "link.py").symlink_to(tmp_path / "pkg/mod.py")
    return tmp_path


def test_every_mutation_parses_and_changes_the_program() -> None:
    before = ast.dump(ast.parse(SAMPLE))
    found = mutations.mutations(SAMPLE)
    kinds = {change.kind for change in found}
    assert kinds == set(mutations.KINDS)
    for change in found:
        text = change.apply(SAMPLE)
        assert mutations.is_valid(text), change
        assert ast.dump(ast.parse(text)) != before, change


def test_strings_comments_and_annotations_are_left_alone() -> None:
    words = {(SAMPLE[c.start : c.end], SAMPLE.splitlines()[c.line - 1]) for c in mutations.mutations(SAMPLE)}
    assert not [word for word in words if '"""' in word[1] or ('f"' in word[1] and word[0] == "+")]
    assert ("<", "    if (a) < (  # a comment: 3 + 4") in words
    assert ("+", "        return a + \\") in words
    assert not [word for word in words if word[0] in ("7", "8", "3", "4")]


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        (b"\xef\xbb\xbfX = True\r\n# \xc3\xa4\x0c\r\n", b"\xef\xbb\xbfX = False\r\n# \xc3\xa4\x0c\r\n"),
        (b"# -*- coding: latin-1 -*-\nname = '\xe4' ; X = True\n", b"# -*- coding: latin-1 -*-\nname = '\xe4' ; X = False\n"),
        ("ä = '𝛑' if True else ''".encode(), "ä = '𝛑' if not (True) else ''".encode()),
        (b"X = (True)", b"X = (False)"),
    ],
)
def test_bytes_around_the_change_stay(tmp_path: Path, raw: bytes, expected: bytes) -> None:
    path = tmp_path / "m.py"
    path.write_bytes(raw)
    path.chmod(0o754)
    results = set()
    for seed in range(8):
        path.write_bytes(raw)
        assert mutate.mutate([path], str(seed)) is not None
        results.add(path.read_bytes())
    assert expected in results
    assert path.stat().st_mode & 0o777 == 0o754


def test_one_file_one_place_and_only_sources(tree: Path) -> None:
    before = {path: path.read_bytes() for path in tree.rglob("*.py")}
    done = mutate.mutate([tree], "1")
    assert done is not None
    changed = [path for path, raw in before.items() if path.read_bytes() != raw and not path.is_symlink()]
    assert changed == [tree / "pkg/mod.py"]
    assert [path.relative_to(tree).as_posix() for path in mutate.python_files(tree)] == ["pkg/mod.py"]


def test_the_same_seed_and_iteration_make_the_same_change(tree: Path) -> None:
    def run(iteration: str, seed: str = "7") -> bytes:
        (tree / "pkg/mod.py").write_text(SAMPLE)
        subprocess.run(
            [sys.executable, "-P", "-m", "evolver.mutate", "--seed", seed, "."],
            cwd=tree,
            env={**os.environ, "EVOLVER_ITERATION": iteration},
            check=True,
            capture_output=True,
        )
        return (tree / "pkg/mod.py").read_bytes()

    assert run("1") == run("1") != SAMPLE.encode()
    assert len({run(str(n)) for n in range(1, 9)}) > 4
    assert len({run("1", str(n)) for n in range(1, 9)}) > 4


def test_a_module_that_shadows_the_standard_library_is_never_imported(tree: Path) -> None:
    (tree / "argparse.py").write_text("raise SystemExit('imported')\n")
    command = [sys.executable, "-P", "-m", "evolver.mutate", "."]
    assert subprocess.run(command, cwd=tree, capture_output=True).returncode == 0


def test_nothing_to_change_is_exit_1(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "empty.py").write_bytes(b"")
    (tmp_path / "broken.py").write_bytes(b"def (:\n")
    (tmp_path / "binary.py").write_bytes(b"\xff\xfe\x00")
    assert mutate.main([str(tmp_path)]) == 1
    assert "nothing to change" in capsys.readouterr().err
    assert mutate.main([str(tmp_path / "absent")]) == 1
    assert "no such file" in capsys.readouterr().err


def test_list_changes_nothing(tree: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert mutate.main([str(tree), "--list", "--kind", "condition"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 2
    assert all(": condition `" in line for line in lines)
    assert (tree / "pkg/mod.py").read_text() == SAMPLE


def test_the_work_grows_with_the_file_and_not_with_its_square(tmp_path: Path) -> None:
    """Counted in calls, not in seconds."""
    import sys

    def calls(functions: int) -> int:
        path = tmp_path / f"{functions}.py"
        path.write_text("\n".join(f"def f{n}(a, b):\n    return a + b * {n} if a < {n} and b else a - {n}" for n in range(functions)))
        count = 0

        def profile(frame: object, event: str, argument: object) -> None:
            nonlocal count
            count += 1

        before = sys.getprofile()
        sys.setprofile(profile)
        try:
            assert mutate.mutate([path], "1") is not None
        finally:
            sys.setprofile(before)
        return count

    small, large = calls(200), calls(1600)
    assert large < 12 * small  # eight times the file; the square would be 64
