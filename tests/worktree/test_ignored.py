"""The budget of ignored files: topmost folders, smallest first, all or nothing; what is left out is named and never touched."""

from __future__ import annotations

from pathlib import Path

import msgspec

from evolver.definition import RollbackSection
from evolver.durations import Size
from worktree.scene import Scene

SETUP = (
    "printf 'big/\\nsmall/\\n*.log\\n' >>.gitignore; git commit -qam rules; mkdir -p big small/in src/cache; "
    "for i in 1 2 3 4 5 6; do echo $i >big/$i; done; echo s >small/in/s; echo l >x.log; echo c >src/cache/c"
)


def scene(tmp_path: Path, **section: object) -> Scene:
    return Scene.make(tmp_path, SETUP, msgspec.convert(section, RollbackSection, dec_hook=lambda kind, value: Size(value)))


def test_the_smallest_fit_and_the_rest_is_left_named(tmp_path: Path) -> None:
    here = scene(tmp_path, ignored_files=5)
    trial = here.attempt("echo z >big/1; rm big/2; echo n >big/new; echo z >small/in/s; rm x.log; echo z >>src/a.py")
    assert trial.baseline.left_out == ("big",)
    verified = trial.reject()
    assert verified.equal and verified.left == ("big",)
    assert (here.root / "small/in/s").read_text() == "s\n" and (here.root / "x.log").exists()
    assert (here.root / "big/1").read_text() == "z\n" and not (here.root / "big/2").exists()


def test_the_byte_budget_counts_too(tmp_path: Path) -> None:
    here = scene(tmp_path, ignored_bytes=5)
    trial = here.attempt("rm -rf big small x.log")
    assert trial.baseline.left_out == ("big",)
    assert trial.reject().equal and (here.root / "small/in/s").exists()


def test_leave_exempts_by_pattern_and_all(tmp_path: Path) -> None:
    here = scene(tmp_path, leave=["small/", "*.log"])
    trial = here.attempt("echo z >small/in/s; echo z >x.log; echo z >big/1; echo z >>src/a.py")
    assert trial.baseline.left_out == ("small", "x.log")
    assert trial.reject().equal and (here.root / "big/1").read_text() == "1\n"
    assert (here.root / "small/in/s").read_text() == "z\n"

    everything = scene(tmp_path / "two", ignored="leave")
    trial = everything.attempt("rm -rf big; echo new >y.log; mkdir -p n/big; echo q >n/big/q; echo z >>src/a.py")
    assert set(trial.baseline.left_out) == {"big", "small", "x.log"}
    assert trial.reject().equal
    assert not (everything.root / "y.log").exists() and not (everything.root / "n").exists()  # not there at the baseline: not left out


def test_ignored_folders_of_an_accepted_attempt_meet_the_budget_at_the_next_baseline(tmp_path: Path) -> None:
    here = scene(tmp_path, ignored_files=12)
    workspace = here.workspace()
    trial = here.attempt("mkdir -p lib/big; for i in $(seq 9); do echo $i >lib/big/$i; done; echo z >>src/a.py", workspace)
    workspace.accept(trial.baseline, trial.attempt, message="one\n\nEvolver-Iteration: x/1\n")
    again = here.attempt("rm lib/big/3; echo z >big/1", workspace)
    assert again.baseline.left_out == ("lib/big",)
    assert again.reject().equal
    assert (here.root / "big/1").read_text() == "1\n" and not (here.root / "lib/big/3").exists()
