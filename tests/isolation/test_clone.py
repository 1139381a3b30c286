"""An isolated run works in its own clone; the person's checkout is touched by a clean fast-forward alone."""

from __future__ import annotations

import os
import shlex
from pathlib import Path

from isolation.person import Person

NTH = "echo $EVOLVER_ITERATION >> app.txt"


def test_accepted_commits_land_on_the_branch_the_run_started_from(person: Person) -> None:
    start = person.head()
    ended = person.isolated(NTH, iters=3, exit=0)
    assert person.git("show", "HEAD:app.txt") == "0\n1\n2\n3"
    assert (person.root / "app.txt").read_text() == "0\n1\n2\n3\n"
    assert person.git("status", "--porcelain") == ""
    assert person.git("symbolic-ref", "HEAD") == "refs/heads/main"
    assert "landed 3 commits on main" in ended.out
    landed = person.last("run.landed")
    assert (landed["branch"], landed["old"], landed["new"]) == ("refs/heads/main", start, person.head())
    assert (landed["commits"], landed["how"]) == (3, "ff")
    assert person.last("run.started")["isolation"] == "clone"
    assert "refs/evolver/unlanded" not in person.refs()


def test_the_clone_has_its_place_its_branch_and_no_remote(person: Person) -> None:
    person.isolated(NTH, exit=0)
    home = Path(os.environ["XDG_STATE_HOME"]) / "evolver/clones"
    assert person.clone.is_relative_to(home)
    assert person.clone.name == "project"
    run_id = person.events("run.started")[0]["runid"]
    assert person.inside("symbolic-ref", "HEAD") == f"refs/heads/evolver/command-line/{run_id}"
    assert person.inside("remote") == ""
    assert "url" not in (person.clone / ".git/config").read_text()
    assert person.inside("rev-parse", "refs/remotes/person/main")
    shared = [p for p in (person.root / ".git/objects").glob("??/*") if p.stat().st_nlink > 1]
    assert shared, "objects are hard links"


def test_a_push_by_accident_goes_nowhere(person: Person, tmp_path: Path) -> None:
    person.git("init", "-q", "--bare", str(tmp_path / "remote.git"))
    person.git("remote", "add", "origin", str(tmp_path / "remote.git"))
    person.git("push", "-q", "-u", "origin", "main")
    person.isolated(f"{NTH}; git push -q || true; git push -q origin HEAD || true", exit=0)
    assert person.git("--git-dir", str(tmp_path / "remote.git"), "rev-list", "--count", "main") == "1"


def test_nothing_of_the_persons_moves_while_the_run_works(person: Person) -> None:
    """Compared in the middle of the run, by the agent itself, and after a run that accepts nothing."""
    before = person.state()
    kept = person.root.parent / "seen"
    look = f"git -C {person.root} status --porcelain --untracked-files=all > {kept}"
    person.isolated(f"{NTH}; git config user.name Evil; git branch side; git stash -q; {NTH}; {look}", validate="false", iters=2, exit=1)
    assert kept.read_text() == ""
    after = person.state()
    assert after[:-1] == before[:-1]
    assert set(after[-1]) - set(before[-1]) <= {"evolver"}  # type: ignore[call-overload]


def test_a_person_commits_and_edits_during_a_five_iteration_run_and_nothing_of_theirs_moves(person: Person) -> None:
    """Then `land` is refused, and `land --rebase` validates again and lands."""
    process = person.start(
        *("run", "--isolation", "clone", "--max-iters", "5"),
        *("--codegen", f"sleep 0.5; {NTH}"),
        *("--validate", "grep -q 0 app.txt"),
    )
    person.wait_for("iteration.accepted")
    person.write("theirs.txt", "committed beside\n")
    mine = person.commit("theirs")
    person.write("draft.txt", "not committed\n")
    person.write("theirs.txt", "edited\n")
    state = person.state()
    person.wait_for("iteration.accepted", 3)
    assert person.state() == state
    out, err = process.communicate(timeout=120)
    assert process.returncode == 0, out + err
    assert "not landed: main moved since the run started: 1 of its commits" in err
    assert "evolver land --rebase" in err
    assert person.head() == mine
    assert (person.root / "theirs.txt").read_text() == "edited\n"
    assert (person.root / "draft.txt").read_text() == "not committed\n"
    assert (person.root / "app.txt").read_text() == "0\n"
    assert person.last("run.finished")["accepted"] == 5

    assert "main moved" in person.evolver("land", exit=5).err
    assert person.head() == mine

    before = len(person.events("step.finished"))
    assert "landed 5 commits on main after rebasing them" in person.evolver("land", "--rebase", exit=0).out
    steps = [e["data"] for e in person.events("step.finished")][before:]
    assert [(s["step"], s["judgement"]) for s in steps] == [("land-validate", "pass")]
    assert person.git("rev-parse", "HEAD~5") == mine
    assert person.git("show", "HEAD:app.txt") == "0\n1\n2\n3\n4\n5"
    assert (person.root / "theirs.txt").read_text() == "edited\n"
    assert (person.root / "draft.txt").read_text() == "not committed\n"
    assert person.last("run.landed")["how"] == "rebase"
    assert person.evolver("land", exit=0).out == "nothing to land\n"


def test_the_clone_is_reused_and_brought_up_to_date(person: Person) -> None:
    person.isolated(NTH, exit=0)
    clone, inode = person.clone, person.clone.stat().st_ino
    person.write("more.txt", "more\n")
    person.commit()
    person.isolated("cp more.txt again.txt", exit=0)
    assert person.clone == clone
    assert clone.stat().st_ino == inode
    assert person.git("show", "HEAD:again.txt") == "more"
    assert len(person.inside("for-each-ref", "refs/heads").splitlines()) == 1  # branches that landed are forgotten


def test_a_run_killed_half_way_reuses_the_clone(person: Person) -> None:
    crashed = person.evolver(
        *("run", "--isolation", "clone", "--codegen", f"{NTH}; touch junk", "--max-iters", "5"),
        env={"EVOLVER_CRASH_AT": "iteration.codegen_done:3"},
    )
    assert crashed.code == -9
    clone, inode = person.clone, person.clone.stat().st_ino
    assert (clone / "junk").exists()
    assert person.git("status", "--porcelain") == ""
    assert "died" in person.evolver("status", exit=0).out
    person.isolated("echo next >> app.txt", exit=0)
    assert person.clone.stat().st_ino == inode
    recovered = person.last("run.recovered")
    assert recovered["action"] == "rolled_back"
    # What the dead run had accepted is not lost: the next run goes on from it, and both land.
    assert person.git("show", "HEAD:app.txt") == "0\n1\n2\nnext"
    assert not (person.root / "junk").exists() or person.git("ls-files", "junk")


def test_uncommitted_edits_do_not_block_a_run_only_a_landing_that_would_overwrite_them(person: Person) -> None:
    person.write("app.txt", "mine\n")
    ended = person.isolated(NTH, exit=0)
    assert "not landed: your own edits in" in ended.err
    assert "app.txt" in ended.err
    assert (person.root / "app.txt").read_text() == "mine\n"
    assert person.git("rev-list", "--count", "HEAD") == "1"
    person.git("checkout", "-q", "app.txt")
    person.evolver("land", exit=0)
    assert (person.root / "app.txt").read_text() == "0\n1\n"


def test_edits_elsewhere_are_no_obstacle(person: Person) -> None:
    person.write("other.txt", "1\n")
    person.commit()
    person.write("other.txt", "edited\n")
    person.git("add", "other.txt")
    person.write("other.txt", "edited again\n")
    person.isolated(NTH, exit=0)
    assert person.git("status", "--porcelain") == "MM other.txt"
    assert person.git("show", "HEAD:app.txt") == "0\n1"


def test_an_ignored_file_of_theirs_is_not_overwritten_by_a_landing(person: Person) -> None:
    person.write("x.log", "precious\n")
    ended = person.isolated("echo 1 > x.log; git add -f x.log; git commit -qm log", exit=0)
    assert "not landed" in ended.err
    assert (person.root / "x.log").read_text() == "precious\n"


def test_landing_on_a_branch_that_is_not_checked_out_leaves_the_checkout_alone(person: Person) -> None:
    process = person.start("run", "--isolation", "clone", "--codegen", f"sleep 1; {NTH}", "--max-iters", "1")
    person.wait_for("step.started")
    person.git("checkout", "-q", "-b", "elsewhere")
    tree = person.tree()
    out, err = process.communicate(timeout=60)
    assert process.returncode == 0, out + err
    assert person.tree() == tree
    assert person.git("show", "main:app.txt") == "0\n1"
    assert person.git("symbolic-ref", "--short", "HEAD") == "elsewhere"


def test_landing_is_refused_in_the_middle_of_a_merge(person: Person) -> None:
    person.git("checkout", "-q", "-b", "side")
    person.write("side.txt", "s\n")
    person.commit()
    person.git("checkout", "-q", "main")
    person.git("merge", "-q", "--no-commit", "--no-ff", "side")
    ended = person.isolated(NTH, exit=0)
    assert "git is in the middle of something in your checkout (MERGE_HEAD)" in ended.err
    assert person.git("rev-list", "--count", "main") == "1"


def test_a_run_from_a_detached_head_keeps_its_commits_and_says_where(person: Person) -> None:
    person.git("checkout", "-q", "--detach")
    ended = person.isolated(NTH, exit=0)
    assert "detached HEAD" in ended.err
    ref = f"refs/evolver/unlanded/{person.events('run.started')[0]['runid']}"
    assert person.git("show", f"{ref}:app.txt") == "0\n1"
    assert person.git("rev-list", "--count", "HEAD") == "1"


def test_land_squash(person: Person) -> None:
    person.write("app.txt", "mine\n")
    person.isolated(NTH, iters=3, exit=0)
    person.git("checkout", "-q", "app.txt")
    assert "landed 3 commits on main as one commit" in person.evolver("land", "--squash", exit=0).out
    assert person.git("rev-list", "--count", "HEAD") == "2"
    assert person.git("show", "HEAD:app.txt") == "0\n1\n2\n3"
    run_id = person.events("run.started")[0]["runid"]
    trailers = person.git("log", "-1", "--format=%(trailers:key=Evolver-Iteration,valueonly)").split()
    assert trailers == [f"{run_id}/{n}" for n in (1, 2, 3)]
    assert person.last("run.landed")["how"] == "squash"
    person.isolated(NTH, exit=0)
    assert person.git("rev-list", "--count", "HEAD") == "3"


def moved(person: Person, name: str, text: str) -> str:
    """Work of a run that cannot be fast-forwarded any more."""
    person.write("app.txt", "mine\n")
    person.isolated(NTH, "--validate", "grep -q 1 app.txt", exit=0)
    person.git("checkout", "-q", "app.txt")
    person.write(name, text)
    return person.commit("theirs")


def test_a_rebase_with_conflicts_is_refused_and_changes_nothing(person: Person) -> None:
    head = moved(person, "app.txt", "0\nanother line\n")
    state, inside = person.state(), person.inside("status", "--porcelain", "--branch")
    ended = person.evolver("land", "--rebase", exit=1)
    assert "git cannot rebase the work: conflicts in app.txt" in ended.err
    assert person.state() == state
    assert person.head() == head
    assert person.inside("status", "--porcelain", "--branch") == inside
    assert not (person.clone / ".git/rebase-merge").exists()


def test_rebased_work_that_does_not_pass_is_not_landed(person: Person) -> None:
    person.write("app.txt", "mine\n")
    person.isolated(NTH, "--validate", "touch dropped; test ! -e theirs.txt", exit=0)
    person.git("checkout", "-q", "app.txt")
    person.write("theirs.txt", "t\n")
    head = person.commit("theirs")
    tip = person.inside("rev-parse", "HEAD")
    ended = person.evolver("land", "--rebase", exit=1)
    assert "the rebased work does not pass: validate: exit 1" in ended.err
    assert person.head() == head
    assert person.inside("rev-parse", "HEAD") == tip
    assert person.inside("status", "--porcelain") == ""


def test_a_landing_killed_while_validating_is_undone_by_the_next_command(person: Person) -> None:
    person.write("app.txt", "mine\n")
    slow = person.root.parent / "slow"
    person.isolated(NTH, "--validate", f"touch dropped; if [ -e {slow} ]; then sleep 60; fi", exit=0)
    person.git("checkout", "-q", "app.txt")
    person.write("theirs.txt", "t\n")
    person.commit("theirs")
    tip = person.inside("rev-parse", "HEAD")
    slow.touch()
    process = person.start("land", "--rebase")
    for _ in range(600):
        if any(e["data"]["step"] == "land-validate" for e in person.events("step.started")) and (person.clone / "dropped").exists():
            break
        person.wait_for("step.started")
    process.kill()
    process.communicate()
    slow.unlink()
    assert "main moved" in person.evolver("land", exit=5).err
    assert person.inside("rev-parse", "HEAD") == tip
    assert person.inside("status", "--porcelain") == ""
    person.evolver("land", "--rebase", exit=0)
    assert person.git("show", "HEAD:app.txt") == "0\n1"


def test_land_without_a_clone_says_so(person: Person) -> None:
    assert "no isolated run has worked" in person.evolver("land", exit=5).err


def test_land_drop_forgets_the_work(person: Person) -> None:
    person.write("app.txt", "mine\n")
    person.isolated(NTH, exit=0)
    assert "refs/evolver/unlanded/" in person.refs()
    said = person.evolver("land", "--drop", exit=0).out
    assert "refs/evolver/unlanded/" not in person.refs()
    assert person.evolver("land", exit=0).out == "nothing to land\n"
    person.git(*shlex.split(said.split("`")[1])[1:])  # the way back it names
    assert person.git("show", "FETCH_HEAD:app.txt") == "0\n1"
    person.git("checkout", "-q", "app.txt")
    person.isolated("echo new > new.txt", exit=0)
    assert person.git("show", "HEAD:app.txt") == "0"


def test_work_that_a_later_run_went_on_from_leaves_no_ref_of_its_own(person: Person) -> None:
    person.write("app.txt", "mine\n")
    for _ in range(2):
        person.isolated(NTH, exit=0)
    assert person.refs().count("refs/evolver/unlanded/") == 1  # the later run's, which holds both
    person.git("checkout", "-q", "app.txt")
    person.evolver("land", exit=0)
    assert "refs/evolver/unlanded/" not in person.refs() and person.git("rev-list", "--count", "HEAD") == "3"


def test_land_drop_keeps_what_only_the_persons_repository_has(person: Person) -> None:
    person.write("app.txt", "mine\n")
    person.isolated(NTH, exit=0)
    branch = person.inside("symbolic-ref", "HEAD")
    person.inside("checkout", "-q", "--detach", "HEAD~1")
    person.inside("update-ref", "-d", branch)
    said = person.evolver("land", "--drop", exit=0).out
    ref = f"refs/evolver/unlanded/{person.events('run.started')[0]['runid']}"
    assert f"`git update-ref -d {ref}` removes it" in said and person.git("show", f"{ref}:app.txt") == "0\n1"
    assert person.evolver("land", exit=0).out == "nothing to land\n"


def test_a_run_killed_before_it_landed_is_landed_later(person: Person) -> None:
    crashed = person.evolver(
        *("run", "--isolation", "clone", "--codegen", NTH, "--max-iters", "2"), env={"EVOLVER_CRASH_AT": "run.finished"}
    )
    assert crashed.code == -9
    assert person.git("rev-list", "--count", "HEAD") == "1"
    assert "`evolver land` brings its commits" in person.evolver("status", exit=0).out
    person.evolver("land", exit=0)
    assert person.git("rev-list", "--count", "HEAD") == "3"


def test_work_that_has_not_landed_can_be_looked_at_from_the_persons_checkout(person: Person) -> None:
    person.write("app.txt", "mine\n")
    person.isolated(NTH, exit=0)
    person.git("update-ref", "-d", f"refs/evolver/unlanded/{person.events('run.started')[0]['runid']}")
    assert "+1" in person.evolver("diff", "1", exit=0).out
    assert "app.txt" in person.evolver("show", "1", exit=0).out


def test_events_as_json_and_the_refusal_on_standard_error(person: Person) -> None:
    person.write("app.txt", "mine\n")
    ended = person.isolated(NTH, "--json", exit=0)
    assert all(line.startswith("{") for line in ended.out.splitlines())
    assert "not landed" in ended.err
    person.git("checkout", "-q", "app.txt")
    ended = person.isolated(NTH, "--json", exit=0)
    assert "dev.evolver.run.landed" in ended.out
    assert "landed 2" not in ended.out


def test_dry_run_says_where_it_would_work_and_makes_nothing(person: Person) -> None:
    assert "isolation  clone" in person.isolated(NTH, "--dry-run", exit=0).out
    assert not (person.root / ".git/evolver/clone").exists()


def test_work_the_person_merged_by_hand_is_recorded_as_landed(person: Person) -> None:
    person.write("app.txt", "mine\n")
    person.isolated(NTH, exit=0)
    person.git("checkout", "-q", "app.txt")
    person.git("merge", "-q", f"refs/evolver/unlanded/{person.events('run.started')[0]['runid']}")
    assert person.evolver("land", exit=0).out == "nothing to land\n"
    landed = person.last("run.landed")
    assert (landed["how"], landed["commits"], landed["new"]) == ("merged", 1, person.head())


def test_a_validator_cannot_push_while_landing(person: Person, tmp_path: Path) -> None:
    person.git("init", "-q", "--bare", str(tmp_path / "remote.git"))
    person.write("app.txt", "mine\n")
    person.isolated(NTH, "--validate", f"git push -q {tmp_path}/remote.git HEAD:refs/heads/x || true", exit=0)
    person.git("checkout", "-q", "app.txt")
    person.write("theirs.txt", "t\n")
    person.commit("theirs")
    person.evolver("land", "--rebase", exit=0)
    assert person.git("--git-dir", str(tmp_path / "remote.git"), "for-each-ref") == ""


def test_what_only_a_formatter_makes_pass_is_not_landed(person: Person) -> None:
    """The validators saw the formatted files; the commits that would land hold others."""
    theirs = f"cd {person.root}; echo t > theirs.txt; git add theirs.txt; git commit -qm theirs"
    person.loop(
        f"""[loop]
max_iters = 1
isolation = "clone"
[codegen]
command = "echo 1 > new.txt; {theirs}"
[[validator]]
name = "format"
writes = true
command = "ls *.txt > list"
[[validator]]
name = "check"
command = "ls *.txt | cmp - list"
"""
    )
    person.evolver("run", exit=0)
    head = person.head()
    ended = person.evolver("land", "--rebase", exit=1)
    assert "a formatter changes the rebased work: list" in ended.err
    assert person.head() == head and person.git("status", "--porcelain") == ""


def test_land_rebase_on_a_branch_that_is_gone_is_refused(person: Person) -> None:
    person.isolated(f"git -C {person.root} checkout -q -b other; git -C {person.root} branch -D main; {NTH}", exit=0)
    ended = person.evolver("land", "--rebase", exit=5)
    assert "the branch main is gone" in ended.err and "git merge" in ended.err
