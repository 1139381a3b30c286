"""What a clone takes along: identity, conversions, ignored dependencies, the folder one stands in; and odd repositories."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from isolation.person import Person

NTH = "echo $EVOLVER_ITERATION >> app.txt"


def loop(person: Person, keys: str, codegen: str = NTH, validate: str = "true") -> None:
    person.loop(
        f"""[loop]
max_iters = 1
isolation = "clone"
{keys}
[codegen]
command = '''{codegen}'''
[[validator]]
name = "check"
command = '''{validate}'''
"""
    )


def test_the_identity_of_the_persons_repository(person: Person) -> None:
    person.git("config", "user.name", "Somebody Else")
    person.git("config", "user.email", "else@example.invalid")
    person.isolated(NTH, exit=0)
    assert person.git("log", "-1", "--format=%an <%ae> %cn") == "Somebody Else <else@example.invalid> Somebody Else"
    person.git("config", "user.name", "Third")
    person.isolated(NTH, exit=0)
    assert person.git("log", "-1", "--format=%cn") == "Third"


def test_dependencies_by_link_and_by_copy(person: Person) -> None:
    person.write("node_modules/lib/index.js", "1\n")
    person.write("cache.log", "c1\n")
    loop(person, 'link = ["node_modules"]\ncopy = ["cache.log"]', validate="grep -q 1 node_modules/lib/index.js && grep -q c cache.log")
    person.evolver("run", exit=0)
    assert (person.clone / "node_modules").readlink() == person.root / "node_modules"
    assert (person.clone / "cache.log").read_text() == "c1\n"
    assert person.git("ls-files") == ".gitignore\napp.txt\nloops/default.toml"
    assert person.inside("status", "--porcelain", "--untracked-files=all") == ""
    person.write("cache.log", "c2, longer\n")
    person.evolver("run", exit=0)
    assert (person.clone / "cache.log").read_text() == "c2, longer\n"


@pytest.mark.nightly
def test_a_copied_folder_is_the_clones_own(person: Person) -> None:
    person.write("node_modules/lib/index.js", "1\n")
    loop(person, 'copy = ["node_modules"]', codegen=f"{NTH}; echo 2 > node_modules/lib/index.js")
    person.evolver("run", exit=0)
    assert (person.root / "node_modules/lib/index.js").read_text() == "1\n"


def test_a_dependency_that_is_not_there_or_outside_is_refused(person: Person) -> None:
    loop(person, 'link = ["node_modules"]')
    assert "node_modules does not exist" in person.evolver("run", exit=5).err
    loop(person, 'copy = ["../secret"]')
    assert "not a path inside the worktree" in person.evolver("run", exit=5).err
    loop(person, 'copy = ["app.txt"]')
    assert "app.txt is tracked" in person.evolver("run", exit=5).err


def test_steps_run_where_the_person_stands(person: Person) -> None:
    person.write("sub/x", "x\n")
    person.commit()
    person.evolver(
        "run", "-C", "sub", "--isolation", "clone", "--codegen", "pwd > here", "--max-iters", "1", exit=0
    )
    assert person.git("show", "HEAD:sub/here") == str(person.clone / "sub")


def test_the_judge_in_the_clone_is_protected(person: Person) -> None:
    person.write("check.sh", "#!/bin/sh\ntrue\n")
    person.commit()
    person.isolated(f"{NTH}; echo >> check.sh", validate="./check.sh", exit=1)
    assert person.reasons() == ["guard: protected path: check.sh"]


def test_a_linked_worktree_has_a_clone_of_its_own(person: Person, tmp_path: Path) -> None:
    person.git("worktree", "add", "-q", "-b", "side", str(tmp_path / "side"))
    side = Person(tmp_path / "side")
    done = subprocess.run(
        ["git", "-C", str(side.root), "rev-parse", "--absolute-git-dir"], capture_output=True, text=True, check=True
    )
    side.isolated(NTH, exit=0)
    assert side.git("show", "side:app.txt") == "0\n1"
    assert person.git("show", "main:app.txt") == "0"
    clone = Path(os.fsdecode((Path(done.stdout.strip()) / "evolver/clone").read_bytes()).strip())
    person.isolated(NTH, exit=0)
    assert person.clone != clone


def test_a_moved_repository_takes_its_clone_along(person: Person, tmp_path: Path) -> None:
    person.write("app.txt", "mine\n")
    person.isolated(NTH, exit=0)
    clone = person.clone
    person.root.rename(tmp_path / "moved")
    person.root = tmp_path / "moved"
    person.git("checkout", "-q", "app.txt")
    person.evolver("land", exit=0)
    assert person.clone == clone
    assert person.git("show", "HEAD:app.txt") == "0\n1"


@pytest.mark.nightly
def test_a_copied_repository_leaves_the_clone_to_the_original(person: Person, tmp_path: Path) -> None:
    person.isolated(NTH, exit=0)
    subprocess.run(["cp", "-a", str(person.root), str(tmp_path / "copy")], check=True)
    copy = Person(tmp_path / "copy")
    copy.isolated(NTH, exit=0)
    assert copy.clone != person.clone
    assert copy.git("rev-list", "--count", "HEAD") == "3"
    assert person.git("rev-list", "--count", "HEAD") == "2"


def test_no_commit_yet_is_refused(tmp_path: Path) -> None:
    root = tmp_path / "empty"
    root.mkdir()
    empty = Person(root)
    empty.git("init", "-q")
    assert "no commit yet" in empty.isolated(NTH, exit=5).err


def test_a_checkout_killed_between_two_trees_is_completed(person: Person) -> None:
    """The mark says that the clone was being switched; whatever mix of two commits lies there is nobody's work."""
    person.isolated(NTH, exit=0)
    (person.clone.parent / "switching").write_text(person.head())
    (person.clone / "app.txt").write_text("half")
    (person.clone / ".git/index.lock").touch()
    person.isolated(NTH, exit=0)
    assert person.git("show", "HEAD:app.txt") == "0\n1\n1"


def test_edits_somebody_made_in_the_clone_are_not_lost(person: Person) -> None:
    person.isolated(NTH, exit=0)
    (person.clone / "app.txt").write_text("by hand\n")
    assert "changes that are not committed: app.txt" in person.isolated(NTH, exit=5).err
    assert (person.clone / "app.txt").read_text() == "by hand\n"


def test_environment_variable_chooses_the_clone(person: Person) -> None:
    person.env["EVOLVER_ISOLATION"] = "clone"
    person.run("pwd > where", exit=0)
    assert person.git("show", "HEAD:where") == str(person.clone)


@pytest.mark.nightly
def test_a_shallow_repository(person: Person, tmp_path: Path) -> None:
    person.write("app.txt", "1\n")
    person.commit()
    subprocess.run(["git", "clone", "-q", "--depth", "1", f"file://{person.root}", str(tmp_path / "shallow")], check=True)
    shallow = Person(tmp_path / "shallow")
    shallow.isolated(NTH, iters=2, exit=0)
    assert shallow.git("show", "HEAD:app.txt") == "1\n1\n2"
    shallow.isolated(NTH, exit=0)


@pytest.mark.nightly
def test_a_repository_that_borrows_objects(person: Person, tmp_path: Path) -> None:
    subprocess.run(["git", "clone", "-q", "--shared", str(person.root), str(tmp_path / "borrower")], check=True)
    borrower = Person(tmp_path / "borrower")
    borrower.isolated(NTH, exit=0)
    assert borrower.git("show", "HEAD:app.txt") == "0\n1"


@pytest.mark.nightly
def test_sha256_objects(tmp_path: Path) -> None:
    root = tmp_path / "sha256"
    root.mkdir()
    repo = Person(root)
    repo.git("init", "-q", "--object-format=sha256")
    repo.write("app.txt", "0\n")
    repo.commit()
    repo.isolated(NTH, exit=0)
    assert len(repo.head()) == 64
    assert repo.git("show", "HEAD:app.txt") == "0\n1"


def test_odd_names(tmp_path: Path) -> None:
    odd = Person.make(tmp_path / "a b'ü\n.x")
    odd.git("checkout", "-q", "-b", "feat/ü-1")
    odd.write("loops/my loop+1.toml", f'[loop]\nmax_iters = 1\nisolation = "clone"\n[codegen]\ncommand = "{NTH}"\n')
    odd.commit()
    odd.evolver("run", "my loop+1", exit=0)
    assert odd.git("show", "feat/ü-1:app.txt") == "0\n1"


def test_a_state_folder_inside_the_worktree_is_refused(person: Person) -> None:
    person.env["EVOLVER_STATE_DIR"] = str(person.root / "state")
    assert "lies inside the worktree" in person.isolated(NTH, exit=2).err


def test_a_step_is_told_the_folder_it_stands_in(person: Person) -> None:
    person.env["PWD"] = str(person.root)
    person.isolated("/usr/bin/env | grep ^PWD= > here", exit=0)
    assert person.git("show", "HEAD:here") == f"PWD={person.clone}"


def test_uncommitted_loop_files_and_prompts_are_the_persons(person: Person) -> None:
    """A definition that is not committed yet is read from the person's checkout; its scripts are not in the clone."""
    person.write("loops/draft.toml", f'[loop]\nmax_iters = 1\nisolation = "clone"\n[codegen]\ncommand = "{NTH}"\n')
    person.evolver("run", "draft", exit=0)
    assert person.git("show", "HEAD:app.txt") == "0\n1"
    assert person.git("status", "--porcelain") == "?? loops/"


def test_hooks_of_the_person_run_where_they_are_asked_for(person: Person) -> None:
    hook = person.root / ".git/hooks/commit-msg"
    hook.parent.mkdir(exist_ok=True)
    hook.write_text('#!/bin/sh\necho "Checked-by: hook" >> "$1"\n')
    hook.chmod(0o755)
    loop(person, "", codegen=NTH)
    path = person.root / "loops/default.toml"
    path.write_text(path.read_text() + "[accept]\nhooks = true\n")
    person.commit("hooks")
    person.evolver("run", exit=0)
    assert "Checked-by: hook" in person.git("log", "-1", "--format=%B")


@pytest.mark.nightly
def test_a_partial_clone(person: Person, tmp_path: Path) -> None:
    person.git("config", "uploadpack.allowFilter", "true")
    person.write("big.bin", "old\n")
    person.commit()
    person.write("big.bin", "new\n")
    person.commit()
    subprocess.run(
        ["git", "clone", "-q", "--filter=blob:none", f"file://{person.root}", str(tmp_path / "partial")], check=True
    )
    partial = Person(tmp_path / "partial")
    partial.isolated(NTH, exit=0)
    assert partial.git("show", "HEAD:app.txt") == "0\n1"
    partial.write("more.txt", "m\n")
    partial.commit()
    partial.isolated(NTH, exit=0)


def test_a_sandboxed_step_reads_linked_dependencies_and_cannot_write_them(person: Person) -> None:
    if shutil.which("bwrap") is None:
        pytest.skip("bubblewrap is not installed")
    person.write("node_modules/lib.js", "1\n")
    codegen = "cat node_modules/lib.js > got.txt; echo 2 > node_modules/lib.js || echo refused >> got.txt"
    loop(person, 'link = ["node_modules"]', codegen=codegen)
    path = person.root / "loops/default.toml"
    path.write_text(path.read_text().replace("[codegen]\n", '[codegen]\nsandbox = "bwrap"\n'))
    person.commit("sandbox")
    ended = person.evolver("run")
    if "bubblewrap does not work here" in ended.err:
        pytest.skip(ended.err)
    assert ended.code == 0, ended.err
    assert person.git("show", "HEAD:got.txt") == "1\nrefused"
    assert (person.root / "node_modules/lib.js").read_text() == "1\n"


@pytest.mark.nightly
def test_attributes_of_the_repository_count_in_the_clone(person: Person) -> None:
    info = person.root / ".git/info"
    info.mkdir(exist_ok=True)
    (info / "attributes").write_text("*.txt eol=crlf\n")
    person.isolated("cat -A app.txt > seen.out", exit=0)
    assert person.git("show", "HEAD:seen.out") == "0^M$"
