"""An accepted commit is what `git add -A` would have made, in the user's own configuration: that very command is the judge."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from evolver.worktree.workspace import AcceptRefused
from worktree.scene import Scene, Trial

MESSAGE = "accepted\n\nEvolver-Run: r\nEvolver-Iteration: 01900000-0000-7000-8000-000000000000/1\n"

CRLF = r"printf '1\r\n2\r\n3\r\n' >c.txt; printf '1\n2\n' >l.txt; git add -A; git commit -qm c; "
CASES = {
    "exec-bits-are-no-business-of-this-repository": (
        "git config core.fileMode false; chmod 755 src/a.py",
        "echo z >>src/a.py; echo z >>run.sh; chmod 644 run.sh; echo n >new; chmod 755 new",
    ),
    "an-exec-bit-the-agent-asked-git-for": (
        "git config core.fileMode false",
        "echo n >new; git add --chmod=+x new; echo z >>src/a.py; git add --chmod=+x src/a.py; echo more >>new",
    ),
    "links-are-files-here": (
        "git config core.symlinks false; rm link; git checkout -q link",
        "printf run.sh >link; echo n >new; printf run.sh >src/other",
    ),
    "a-file-that-has-crlf-is-not-converted": (
        CRLF + "git config core.autocrlf true",
        r"printf '4\r\n' >>c.txt; printf '3\r\n' >>l.txt; printf 'n\r\n' >new.txt",
    ),
    "autocrlf-input": (CRLF + "git config core.autocrlf input", r"printf '4\r\n' >>c.txt; printf 'n\r\n' >new.txt"),
    "attributes-of-the-attempt": (
        CRLF,
        r"printf '*.txt text=auto eol=crlf\n*.id ident\n' >.gitattributes; printf '4\r\n' >>c.txt; printf 'n\r\n' >n.txt; echo '$Id: x$' >a.id",
    ),
    "an-encoding": (
        "echo '*.u text working-tree-encoding=UTF-16LE' >.gitattributes; git add -A; git commit -qm u",
        r"printf 'h\0i\0\n\0' >a.u; mkdir d; printf 'h\0\n\0' >d/b.u",
    ),
    "a-clean-filter": (
        "git config filter.up.clean 'tr a-z A-Z'; git config filter.up.smudge cat; git config filter.up.required true; "
        "echo '*.up filter=up' >.gitattributes; git add -A; git commit -qm f",
        "echo loud >a.up; mkdir d; echo l >d/b.up; git mv run.sh run.up",
    ),
    "renames-and-types-and-deletions": (
        "ln -s run.sh folderlink; mkdir deep; echo d >deep/d; git add -A; git commit -qm d",
        "git mv src/a.py src/moved.py; rm link; echo file >link; rm run.sh; ln -s src run.sh; rm -r deep; echo f >deep; "
        "rm folderlink; mkdir folderlink; echo i >folderlink/i; ln -s - dash",
    ),
    "attributes-beyond-a-sparse-checkout": (
        "printf '*.py text eol=lf\\n' >.gitattributes; git add -A; git commit -qm s; "
        "git sparse-checkout set --no-cone '/src/' '/run.sh'",
        r"printf 'z\r\n' >>src/a.py",
    ),
    "safecrlf-warns-only": (
        CRLF + "git config core.autocrlf input; git config core.safecrlf warn",
        r"printf 'a\nb\r\n' >mixed.txt",
    ),
}


def accept(trial: Trial) -> str:
    trial.workspace.settle(trial.baseline, trial.attempt)
    return trial.workspace.accept(trial.baseline, trial.attempt, message=MESSAGE).commit


@pytest.mark.parametrize("case", CASES)
def test_the_tree_is_the_one_git_add_would_make(tmp_path: Path, case: str) -> None:
    setup, agent = CASES[case]
    scene = Scene.make(tmp_path, setup)
    assert scene.sh("git status --porcelain") == ""
    trial = scene.attempt(agent)
    copy = tmp_path / "judge"
    shutil.copytree(scene.root, copy, symlinks=True)
    wanted = subprocess.run("git add -A && git write-tree", shell=True, cwd=copy, capture_output=True, check=True).stdout.decode().strip()
    accept(trial)
    assert scene.sh("git rev-parse HEAD^{tree}").strip() == wanted
    assert scene.sh("git status --porcelain") == ""


@pytest.mark.parametrize(
    ("setup", "agent"),
    [
        ("git config core.fileMode false", "chmod 644 run.sh"),
        (CRLF + "git config core.autocrlf true; git checkout -q l.txt", r"printf '1\r\n2\r\n' >l.txt"),
    ],
    ids=["mode", "line-ends"],
)
def test_what_git_calls_no_change_is_nothing_to_commit(tmp_path: Path, setup: str, agent: str) -> None:
    scene = Scene.make(tmp_path, setup)
    trial = scene.attempt(agent)
    assert trial.attempt.changed and not trial.attempt.committable
    assert trial.reject().equal and scene.wrong() == []


FAILING = {
    "filter": (
        "git config filter.gone.clean no-such-program; git config filter.gone.required true",
        "echo '*.g filter=gone' >.gitattributes; echo x >a.g",
    ),
    "encoding": ("", "echo '*.txt text working-tree-encoding=UTF-16' >.gitattributes; echo hi >n.txt"),
    "name": ("", "mkdir sub; echo x >sub/.GIT"),
}


@pytest.mark.parametrize("case", FAILING)
def test_an_attempt_that_git_cannot_add_is_refused_by_name_kept_and_undone(tmp_path: Path, case: str) -> None:
    setup, agent = FAILING[case]
    scene = Scene.make(tmp_path, f"{setup or ':'}; echo mine >notes")
    trial = scene.attempt(f"{agent}; echo z >>src/a.py; echo bad >notes")
    assert trial.attempt.committable
    with pytest.raises(AcceptRefused) as refused:
        accept(trial)
    assert any(word in refused.value.reason for word in ("a.g", "n.txt", "sub/.GIT"))
    if case != "name":
        kept = trial.preserve().stash
        assert kept is not None and trial.missing_from(kept) == []
    assert trial.reject().equal and scene.wrong(stash=False) == []
