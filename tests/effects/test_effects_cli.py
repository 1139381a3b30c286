"""Black box: effects through `evolver run`, `resume` and `effects`, as a person meets them."""

from __future__ import annotations

import json
import signal
import sqlite3
import sys
from contextlib import closing
from pathlib import Path

import pytest

from evolver.effects.registry import REGISTRY
from support import Done, Repo

from . import test_effects_alembic as alembic
from .sysroot import BRANCH, ENV, OSNAME, WHY_NOT, Sysroot
from .test_effects_rpm_ostree import Host


class Loop:
    """A repository with a loop whose agent appends to a file, and a ledger outside the worktree that effects write."""

    def __init__(self, folder: Path) -> None:
        self.repo = Repo.make(folder / "r")
        self.ledger = folder / "ledger"
        self.passes = True

    def write(self, *effects: str, validate: str = "true", extra: str = "") -> None:
        text = f"""
[loop]
max_iters = 1
[codegen]
command = "echo agent >> src/a.py; echo new > new.txt"
[[validator]]
name = "judge"
command = '{validate}'
{extra}
"""
        folder = self.repo.root / "loops"
        folder.mkdir(exist_ok=True)
        (folder / "default.toml").write_text(text + "\n".join(effects))
        self.repo.sh("git add loops && git commit -qm loop --allow-empty")

    def effect(self, name: str, *, fail: bool = False, undo_fails: bool = False, when: str = "after_validate") -> str:
        return f"""
[[effect]]
name = "{name}"
when = "{when}"
run = 'echo "do {name}" >> {self.ledger}; exit {int(fail)}'
undo = 'echo "undo {name} $(test -e new.txt && echo with the attempt)" >> {self.ledger}; exit {int(undo_fails)}'
"""

    def lines(self) -> list[str]:
        return self.ledger.read_text().splitlines() if self.ledger.exists() else []

    def run(self, *words: str, crash: str = "") -> Done:
        return self.repo.evolver("run", *words, env={"EVOLVER_CRASH_AT": crash} if crash else {})

    def approve(self) -> None:
        done = self.repo.evolver("effects", "approve")
        assert done.code == 0, done.text

    def edges(self) -> list[tuple[str, str, str]]:
        found = [e["data"] for e in self.repo.events("effect.") if not e["type"].endswith(".approved")]
        return [(data["effect"], data["from"], data["to"]) for data in found]

    def restored(self) -> bool:
        return self.repo.sh("git status --porcelain") == "" and "agent" not in (self.repo.root / "src/a.py").read_text()


@pytest.fixture
def loop(tmp_path: Path) -> Loop:
    return Loop(tmp_path)


LISTED = '[effects]\napprove = "listed"'
IN_NONE = ["--rollback", "none"]


# ---------------------------------------------------------------- effects list, effects approve


def test_effects_list_is_the_honest_table(tmp_path: Path) -> None:
    done = Repo(tmp_path).evolver("effects", "list")
    assert done.code == 0, done.text
    rows = {line.split()[0]: line.split() for line in done.out.splitlines() if line.split() and line.split()[0] in REGISTRY}
    assert set(rows) == set(REGISTRY)
    for name, spec in REGISTRY.items():
        assert rows[name][1:4] == [spec.risk, "yes" if spec.mutating else "no", "yes" if spec.rollback is not None else "no"]
    for line in done.out.splitlines():
        if line.startswith(("Apt", "AddPpa", "RemovePpa")):
            assert "no deployment rollback on apt" in line
    assert "never run on a real host" in done.out


def test_effects_list_as_json(loop: Loop) -> None:
    loop.write(loop.effect("one"))
    done = loop.repo.evolver("effects", "list", "--json")
    found = json.loads(done.out)
    assert {a["name"]: a["rollback_available"] for a in found["actions"]} == {
        n: s.rollback is not None for n, s in REGISTRY.items()
    }
    assert [(e["name"], e["approval"], e["rollback_available"]) for e in found["effects"]] == [("one", "needed", True)]
    loop.approve()
    assert json.loads(loop.repo.evolver("effects", "list", "--json").out)["effects"][0]["approval"] == "granted"


def test_an_unapproved_effect_is_refused_before_the_agent_starts(loop: Loop) -> None:
    loop.write(loop.effect("one"))
    done = loop.run()
    assert done.code == 5, done.text
    assert "'one'" in done.err and "evolver effects approve" in done.err
    assert loop.lines() == [] and loop.restored() and "step.started" not in loop.repo.kinds()


def test_an_approved_effect_runs_and_the_approval_is_in_the_chain(loop: Loop) -> None:
    loop.write(loop.effect("one"))
    loop.approve()
    done = loop.run()
    assert done.code == 0, done.text
    assert loop.lines() == ["do one"]
    granted = loop.repo.events("effect.approved")
    assert len(granted) == 1 and granted[0]["data"]["by"] and granted[0]["data"]["from"] == "queued"
    loop.approve()  # granted once
    assert len(loop.repo.events("effect.approved")) == 1
    assert loop.repo.evolver("audit", "verify").code == 0


def test_a_definition_changed_after_approval_asks_again(loop: Loop) -> None:
    loop.write(loop.effect("one"))
    loop.approve()
    loop.write(loop.effect("one", fail=True))
    done = loop.run()
    assert done.code == 5, done.text
    loop.write(loop.effect("one"))
    assert loop.run().code == 0


def test_approve_never_refuses_what_was_approved(loop: Loop) -> None:
    loop.write(loop.effect("one"))
    loop.approve()
    loop.write(loop.effect("one"), extra='[effects]\napprove = "never"')
    assert loop.run().code == 5
    assert loop.repo.evolver("effects", "approve").code == 2
    assert loop.lines() == []


def test_an_agent_cannot_approve(loop: Loop) -> None:
    loop.write(loop.effect("one"))
    done = loop.repo.evolver("effects", "approve", env={"EVOLVER_RUN_ID": "x"})
    assert done.code == 3 and loop.repo.events("effect.approved") == []


def test_an_agent_that_forgets_it_is_one_cannot_approve_either(loop: Loop) -> None:
    """EVOLVER_RUN_ID can be unset; the lock of the run that waits for the agent cannot be had."""
    loop.write(loop.effect("one"))
    agent = f"env -u EVOLVER_RUN_ID {sys.executable} -m evolver effects approve default >said 2>&1; echo $? >>said"
    assert loop.repo.evolver("run", "--codegen", agent, "--validate", "true", "--max-iters", "1").code == 0
    assert (loop.repo.root / "said").read_text().splitlines()[-1] == "6"
    assert loop.repo.events("effect.approved") == []
    assert loop.repo.evolver("effects", "approve").code == 0


def test_approve_names_an_effect_that_is_not_there(loop: Loop) -> None:
    loop.write(loop.effect("one"))
    done = loop.repo.evolver("effects", "approve", "--effect", "two")
    assert done.code == 2 and "'two'" in done.err


def test_a_wrong_effect_is_a_definition_error(loop: Loop) -> None:
    loop.write('[[effect]]\nname = "x"\naction = "InstallPackages"\nargs = { packages = "--all" }')
    done = loop.run()
    assert done.code == 2 and "args.packages" in done.err
    assert loop.restored()


def test_a_dry_run_says_what_nothing_reverts(loop: Loop) -> None:
    loop.write('[[effect]]\nname = "apt"\naction = "AptUpdate"', loop.effect("one"))
    done = loop.run("--dry-run")
    assert done.code == 0, done.text
    assert "no deployment rollback on apt" in done.out and "reverted by evolver" in done.out


# ---------------------------------------------------------------- failing, rejected, held


@pytest.mark.parametrize("mode", ["hard", "stash", "none"])
def test_an_effect_that_fails_is_rolled_back_at_once_in_every_mode(loop: Loop, mode: str) -> None:
    loop.write(loop.effect("one", fail=True), extra=LISTED)
    done = loop.run("--rollback", mode)
    assert done.code == (3 if mode == "none" else 1), done.text
    assert loop.lines() == ["do one", "undo one with the attempt"]
    assert loop.edges()[-1] == ("one", "rolling_back", "rolled_back")
    assert mode == "none" or loop.restored()
    if mode == "none":
        assert loop.repo.evolver("resume", "--rollback", "hard").code == 0
        assert loop.restored() and len(loop.lines()) == 2


@pytest.mark.parametrize("mode", ["hard", "stash", "none"])
def test_a_rollback_that_fails_needs_a_person_exit_4_and_a_resume_lock(loop: Loop, mode: str) -> None:
    loop.write(loop.effect("one", fail=True, undo_fails=True), extra=LISTED)
    done = loop.run("--rollback", mode)
    assert done.code == 4, done.text
    assert loop.edges()[-1] == ("one", "rolling_back", "needs_person")
    assert loop.lines() == ["do one", "undo one with the attempt"]  # no second attempt
    assert mode == "none" or loop.restored()
    blocked = loop.run()
    assert blocked.code in (3, 4) and len(loop.lines()) == 2
    resumed = loop.repo.evolver("resume", "--rollback", "hard")
    assert resumed.code == 0, resumed.text
    assert loop.restored() and len(loop.lines()) == 2
    assert loop.repo.evolver("audit", "verify").code == 0


def test_an_action_without_a_rollback_ends_failed_and_rejects(loop: Loop) -> None:
    loop.write(f"[[effect]]\nname = \"one\"\nrun = 'echo did >> {loop.ledger}; exit 1'\nundo = ''", extra=LISTED)
    done = loop.run()
    assert done.code == 1, done.text
    assert loop.edges() == [("one", "approved", "running"), ("one", "running", "failed")]
    assert loop.restored()
    finished = loop.repo.events("rollback.finished")
    assert any("effect one" in text for text in finished[0]["data"]["left"])


def test_a_later_rejection_compensates_in_reverse_before_the_worktree_is_restored(loop: Loop) -> None:
    effects = [loop.effect(name, when="before_validate") for name in ("a", "b")]
    loop.write(*effects, validate="false", extra=LISTED)
    done = loop.run()
    assert done.code == 1, done.text
    assert loop.lines() == ["do a", "do b", "undo b with the attempt", "undo a with the attempt"]
    assert loop.restored()
    kinds = loop.repo.kinds()
    assert kinds.index("effect.rolled_back") < kinds.index("rollback.finished")


def test_an_accepted_iteration_keeps_its_effects(loop: Loop) -> None:
    loop.write(loop.effect("a", when="before_validate"), loop.effect("b"), extra=LISTED)
    assert loop.run().code == 0
    assert loop.lines() == ["do a", "do b"]


def test_in_mode_none_what_succeeded_is_left_alone_until_resume_rollback(loop: Loop) -> None:
    loop.write(loop.effect("a", when="before_validate"), validate="false", extra=LISTED)
    assert loop.run(*IN_NONE).code == 3
    assert loop.lines() == ["do a"]
    assert loop.repo.evolver("resume", "--dry-run").out.count("a (command)") == 1
    assert loop.repo.evolver("resume", "--rollback", "hard").code == 0
    assert loop.lines() == ["do a", "undo a with the attempt"]
    assert loop.restored()


def test_in_mode_none_a_tree_put_back_by_hand_does_not_hide_the_effects(loop: Loop) -> None:
    loop.write(loop.effect("a", when="before_validate"), validate="false", extra=LISTED)
    assert loop.run(*IN_NONE).code == 3
    loop.repo.sh("git checkout -q -- . && rm new.txt")
    undecided = loop.repo.evolver("resume")
    assert undecided.code == 3 and "a (command)" in undecided.out
    assert loop.repo.evolver("resume", "--rollback", "hard").code == 0
    assert loop.lines() == ["do a", "undo a "]


def test_in_mode_none_resume_keep_keeps_the_effects(loop: Loop) -> None:
    loop.write(loop.effect("a", when="before_validate"), validate="false", extra=LISTED)
    assert loop.run(*IN_NONE).code == 3
    assert loop.repo.evolver("resume", "--keep").code == 0
    loop.write(validate="false")
    assert loop.run().code == 1
    assert loop.lines() == ["do a"]


# ---------------------------------------------------------------- killed in between

POINTS = ["effect.started", "effect.ran", "effect.succeeded", "iteration.accepting", "iteration.rollback_started"]


@pytest.mark.parametrize("point", POINTS)
def test_a_run_killed_in_between_is_compensated_by_the_next(loop: Loop, point: str) -> None:
    rejected = point == "iteration.rollback_started"
    loop.write(loop.effect("a", when="before_validate"), validate="false" if rejected else "true", extra=LISTED)
    assert loop.run(crash=point).code == -signal.SIGKILL
    done = loop.repo.evolver("run", "--max-iters", "1", "--codegen", "true", "--validate", "true")
    assert done.code in (0, 1), done.text
    assert [line.split()[0] for line in loop.lines()].count("undo") == 1
    assert loop.edges()[-1] == ("a", "rolling_back", "rolled_back")
    assert loop.restored()
    assert loop.repo.evolver("audit", "verify").code == 0


def test_killed_after_the_accepting_commit_the_effects_stay(loop: Loop) -> None:
    loop.write(loop.effect("a"), extra=LISTED)
    assert loop.run(crash="iteration.accepted").code == -signal.SIGKILL
    loop.repo.evolver("resume")
    assert loop.lines() == ["do a"]


@pytest.mark.parametrize("point", ["effect.rolling_back", "effect.undone"])
def test_recovery_can_be_killed_as_well(loop: Loop, point: str) -> None:
    loop.write(loop.effect("a", fail=True), extra=LISTED)
    assert loop.run(crash=point).code == -signal.SIGKILL
    again = ["run", "--max-iters", "1", "--codegen", "true", "--validate", "true"]
    assert loop.repo.evolver(*again, env={"EVOLVER_CRASH_AT": point}).code == -signal.SIGKILL
    assert loop.repo.evolver(*again).code in (0, 1)
    assert loop.edges()[-1] == ("a", "rolling_back", "rolled_back")
    assert loop.restored()


def test_in_mode_none_a_killed_effect_is_settled_and_the_tree_held(loop: Loop) -> None:
    loop.write(loop.effect("a", when="before_validate"), loop.effect("b", when="before_validate"), extra=LISTED)
    assert loop.run(*IN_NONE, crash="effect.ran:2").code == -signal.SIGKILL
    done = loop.run(*IN_NONE)
    assert done.code == 3, done.text
    assert [line.split()[:2] for line in loop.lines()] == [["do", "a"], ["do", "b"], ["undo", "b"]]
    assert loop.repo.evolver("resume", "--rollback", "hard").code == 0
    assert loop.lines()[-1].startswith("undo a")


# ---------------------------------------------------------------- real tools


@pytest.mark.skipif(not alembic.PROGRAM.exists(), reason="alembic is not installed beside this Python")
@pytest.mark.parametrize("how", ["fails half-way", "rejected later"])
def test_a_real_alembic_migration_leaves_the_earlier_schema(loop: Loop, how: str) -> None:
    loop.repo.env["PATH"] = f"{alembic.PROGRAM.parent}:{loop.repo.environment()['PATH']}"
    (loop.repo.root / ".gitignore").write_text("*.db\n__pycache__/\n")
    database = loop.ledger.with_name("app.db")
    project = alembic.Project(loop.repo.root, database=str(database))
    project.at_r1()
    body = alembic.TABLE.format("half") + ('; raise RuntimeError("boom")' if how == "fails half-way" else "")
    project.migration("r2", "r1", body, 'op.drop_table("half")')
    loop.write('[[effect]]\nname = "migrate"\naction = "alembic"\nwhen = "before_validate"', validate="false", extra=LISTED)
    loop.repo.sh("git add -A && git commit -qm migrations")
    before = project.schema()
    done = loop.run()
    assert done.code == 1, done.text
    assert project.schema() == before and project.rows() == [("ann",)]
    assert loop.edges()[-1] == ("migrate", "rolling_back", "rolled_back")
    assert loop.restored()
    with closing(sqlite3.connect(database)) as opened:
        assert opened.execute("PRAGMA integrity_check").fetchone() == ("ok",)


@pytest.mark.skipif(bool(WHY_NOT), reason=WHY_NOT)
@pytest.mark.parametrize("how", ["deploy fails", "rejected later", "killed in the middle"])
def test_in_a_real_ostree_sysroot_the_earlier_deployment_is_the_default_again(loop: Loop, tmp_path: Path, how: str) -> None:
    loop.repo.env |= ENV
    sysroot = Sysroot(tmp_path)
    run = (
        f"run = 'ostree admin deploy --sysroot={sysroot.path} --os={OSNAME} --retain {sysroot.v3} && exit 9'"
        if how == "deploy fails"
        else ""
    )
    args = f'args = {{ sysroot = "{sysroot.path}", os = "{OSNAME}", ref = "{BRANCH}" }}'
    loop.write(
        f'[[effect]]\nname = "deploy"\naction = "ostree"\nwhen = "before_validate"\n{args}\n{run}',
        validate="false",
        extra=LISTED,
    )
    before = sysroot.deployments()
    if how == "killed in the middle":
        assert loop.run(crash="effect.ran").code == -signal.SIGKILL
        assert sysroot.boots() == sysroot.v3
    for _ in range(2):  # twice in a row
        done = loop.run()
        assert done.code == 1, done.text
        assert sysroot.deployments() == before and sysroot.boots() == sysroot.v2
    assert loop.restored()


@pytest.mark.parametrize("kind", ["booted, nothing older", "booted, stages"])
def test_rpm_ostree_by_its_exact_argv_through_a_stand_in(loop: Loop, tmp_path: Path, kind: str) -> None:
    host = Host(tmp_path, loop.repo, kind)
    effect = '[[effect]]\nname = "vim"\naction = "InstallPackages"\nwhen = "before_validate"\nargs = { packages = "vim" }'
    loop.write(effect, validate="false", extra=LISTED)
    done = loop.run()
    assert done.code == 1, done.text
    assert host.ran == [["rpm-ostree", "install", "--idempotent", "vim"], host.undo] and host.default == 5
    loop.repo.env["RPM_OSTREE_FAIL"] = "depsolve"
    done = loop.run()
    assert done.code == 1, done.text
    assert host.backs == [host.undo] and host.default == 5
    assert loop.restored()


# ---------------------------------------------------------------- with the rest of an iteration

GENERATE = '[[effect]]\nname = "gen"\naction = "git-worktree"\nwhen = "before_validate"\nrun = "cat new.txt > generated.txt{0}"'


def test_what_a_generator_wrote_is_validated_and_committed(loop: Loop) -> None:
    loop.write(GENERATE.format(""), validate="test -e generated.txt")
    done = loop.run()
    assert done.code == 0, done.text
    assert loop.repo.sh("git show --name-only --format= HEAD").split() == ["generated.txt", "new.txt", "src/a.py"]
    assert loop.repo.sh("git status --porcelain") == ""


def test_a_generator_that_fails_leaves_the_attempt_alone_in_the_stash(loop: Loop) -> None:
    loop.write(GENERATE.format("; exit 1"))
    done = loop.run("--rollback", "stash")
    assert done.code == 1, done.text
    assert loop.restored()
    stashed = loop.repo.sh("git stash show -u --name-only").split()
    assert "new.txt" in stashed and "generated.txt" not in stashed


def test_before_a_repair_round_effects_are_taken_back(loop: Loop) -> None:
    """The first attempt is judged bad, the repair good; each round runs on a world without the other's effect."""
    loop.write(loop.effect("a", when="before_validate"), validate="test $(grep -c agent src/a.py) = 2", extra=LISTED)
    text = (loop.repo.root / "loops/default.toml").read_text()
    (loop.repo.root / "loops/default.toml").write_text(text.replace("[codegen]", "[codegen]\nrepairs = 1"))
    loop.repo.sh("git commit -qam repairs")
    done = loop.run()
    assert done.code == 0, done.text
    assert loop.lines() == ["do a", "undo a with the attempt", "do a"]


def test_a_repair_round_is_told_what_the_effect_printed(loop: Loop) -> None:
    effect = '[[effect]]\nname = "a"\nrun = "echo the-reason; exit 1"\nundo = "true"\nwhen = "before_validate"'
    loop.write(effect, extra=LISTED)
    text = (loop.repo.root / "loops/default.toml").read_text()
    told = f'command = "cat \\"$EVOLVER_LAST_FAILURE\\" >> {loop.ledger}; echo agent >> src/a.py"'
    text = text.replace('command = "echo agent >> src/a.py; echo new > new.txt"', told)
    (loop.repo.root / "loops/default.toml").write_text(text)
    loop.repo.sh("git commit -qam told")
    loop.run("--max-iters", "2")
    assert "the-reason" in loop.ledger.read_text()
    assert "the-reason" not in loop.repo.log.read_text()


def test_approval_and_effects_with_the_stream_elsewhere(loop: Loop, tmp_path: Path) -> None:
    loop.repo.env["EVOLVER_EVENTS"] = str(tmp_path / "elsewhere/events.jsonl")
    (tmp_path / "elsewhere").mkdir()
    loop.write(loop.effect("a", when="before_validate"), validate="false")
    assert loop.run().code == 5
    loop.approve()
    assert loop.run(crash="effect.succeeded").code == -signal.SIGKILL
    assert loop.run().code == 1
    assert [line.split()[0] for line in loop.lines()] == ["do", "undo", "do", "undo"]
