"""An attempt that breaks a guard is rejected before a validator is even started, and nothing of it stays."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from judgement.bench import Bench

JUDGE = "#!/bin/sh\ngrep -q good app.txt\n"
CHEAT = "#!/bin/sh\nexit 0\n"

# How an agent may get at its judge `tools/check.sh`, which the loop runs as `./tools/check.sh`.
EDITS = {
    "in_place": "printf '#!/bin/sh\\nexit 0\\n' > tools/check.sh",
    "in_place_same_size": "sed -i s/good/evil/ tools/check.sh",
    "by_rename": "printf '#!/bin/sh\\nexit 0\\n' > x; chmod +x x; mv x tools/check.sh",
    "by_symlink": "ln -sf /bin/true tools/check.sh",
    "by_symlinked_folder": "mv tools kept; mkdir other; ln -s /bin/true other/check.sh; ln -s other tools",
    "by_chmod": "chmod -x tools/check.sh",
    "by_hard_link": "ln tools/check.sh alias; printf '#!/bin/sh\\nexit 0\\n' > alias",
    "through_a_nested_path": "ln -s . a; mkdir -p b/c; printf '#!/bin/sh\\nexit 0\\n' > a/a/b/../tools/check.sh",
    "deleted": "rm tools/check.sh",
    "committed": "echo 'exit 0' >> tools/check.sh; git commit -qam innocent",
    "hidden_by_assume_unchanged": "git update-index --assume-unchanged tools/check.sh; echo 'exit 0' >> tools/check.sh",
}


@pytest.fixture
def judged(tmp_path: Path) -> Bench:
    return Bench.make(tmp_path / "judged", {"app.txt": "bad\n", "tools/check.sh": JUDGE})


@pytest.fixture(scope="module")
def cheated(tmp_path_factory: pytest.TempPathFactory) -> Bench:
    """One run in which every iteration is another of the edits."""
    home = tmp_path_factory.mktemp("home")
    (home / ".gitconfig").write_text("[user]\nname = Test\nemail = test@example.invalid\n")
    env = {"HOME": str(home), "XDG_STATE_HOME": str(home / "state"), "GIT_CONFIG_NOSYSTEM": "1"}
    bench = Bench.make(tmp_path_factory.mktemp("cheated") / "p", {"app.txt": "bad\n", "tools/check.sh": JUDGE}, env)
    before, head = bench.tree(), bench.head()
    cases = "".join(f"{n}) {edit} ;;\n" for n, edit in enumerate(EDITS.values(), 1))
    agent = f"echo good > app.txt\ncase $EVOLVER_ITERATION in\n{cases}esac\n"
    bench.run(agent, "--no-breaker", validate="./tools/check.sh", iters=len(EDITS), exit=1)
    assert (bench.tree(), bench.head()) == (before, head)
    return bench


@pytest.mark.parametrize("number", range(1, len(EDITS) + 1), ids=list(EDITS))
def test_a_judge_edited_is_rejected_as_protected_path(cheated: Bench, number: int) -> None:
    [rejected] = cheated.events("rollback.finished", number)
    assert rejected["data"]["reason"].startswith("guard: protected path: ")
    assert "tools/check.sh" in rejected["data"]["reason"]
    assert rejected["data"]["verified"] is True
    assert not [e for e in cheated.events("step.started", number) if e["data"]["step"] == "validate"]


@pytest.mark.parametrize(
    ("validate", "judge"),
    [
        ("cd tools && ./check.sh", "tools/check.sh"),
        ("sh tools/check.sh", "tools/check.sh"),
        ("sh -c 'sh tools/check.sh && true'", "tools/check.sh"),
        ("env A=b timeout 30 ./tools/check.sh", "tools/check.sh"),
    ],
)
def test_a_judge_is_found_however_it_is_called(judged: Bench, validate: str, judge: str) -> None:
    judged.run(f"echo >> {judge}; echo good > app.txt", validate=validate, exit=1)
    assert judged.reasons() == [f"guard: protected path: {judge}"]


def test_a_judge_behind_a_link_is_protected_with_the_link(tmp_path: Path) -> None:
    bench = Bench.make(tmp_path / "p", {"app.txt": "bad\n", "real/check.sh": JUDGE, "evil/check.sh": CHEAT})
    (bench.root / "tools").symlink_to("real")
    bench.commit()
    bench.run("echo good > app.txt; ln -sfn evil tools", validate="./tools/check.sh", exit=1)
    assert bench.reasons() == ["guard: protected path: tools"]
    bench.run("echo good > app.txt; echo >> real/check.sh", validate="./tools/check.sh", exit=1)
    assert bench.reasons()[1:] == ["guard: protected path: real/check.sh"]


def test_what_a_judge_only_reads_is_the_agents_to_change(bench: Bench) -> None:
    bench.run("echo 1 > app.txt", validate="grep -q 1 app.txt", exit=0)
    assert bench.git("show", "HEAD:app.txt") == "1"


def test_the_loops_own_files_are_protected(bench: Bench) -> None:
    bench.loop('[codegen]\ncommand = "echo x >> loops/default.toml; echo 1 > app.txt"\n[loop]\nmax_iters = 1\n')
    bench.evolver("run", exit=1)
    assert bench.reasons() == ["guard: protected path: loops/default.toml"]


def test_dot_env_is_protected_even_where_git_ignores_it(bench: Bench) -> None:
    bench.write(".gitignore", ".env\n")
    bench.commit()
    bench.write(".env", "EVOLVER_MAX_ITERS=1\n")
    bench.evolver("run", "--codegen", "echo EVOLVER_ROLLBACK_MODE=none >> .env; echo 1 > app.txt", exit=1)
    assert bench.reasons() == ["guard: protected path: .env"]
    assert (bench.root / ".env").read_text() == "EVOLVER_MAX_ITERS=1\n"


def guarded(bench: Bench, guard: str, codegen: str, extra: str = "") -> str:
    """The reason that one attempt under `[guard]` was rejected for; empty: accepted."""
    bench.loop(f"[loop]\nmax_iters = 1\n{extra}\n[codegen]\ncommand = '''{codegen}'''\n[guard]\n{guard}\n")
    code = bench.evolver("run").code
    reasons = bench.reasons()
    assert code == (1 if bench.last("run.finished")["rolled_back"] else 0)
    return reasons[-1] if code else ""


def test_protected_globs_and_exceptions(bench: Bench) -> None:
    bench.write("tests/test_a.py", "a\n")
    bench.write("tests/data/b.txt", "b\n")
    assert guarded(bench, 'protected = ["tests/"]', "echo >> tests/data/b.txt") == "guard: protected path: tests/data/b.txt"
    assert guarded(bench, 'protected = ["tests/", "!tests/data/"]', "echo >> tests/test_a.py")
    assert guarded(bench, 'protected = ["tests/*", "!tests/data/"]', "echo more >> tests/data/b.txt") == ""


def test_max_files(bench: Bench) -> None:
    assert guarded(bench, "max_files = 2", "touch a b c; echo 1 > a") == "guard: 3 files changed, at most 2 allowed"


def test_max_files_allows_as_many(bench: Bench) -> None:
    assert guarded(bench, "max_files = 2", "echo 1 > a; echo 1 > b") == ""


def test_max_lines(bench: Bench) -> None:
    assert guarded(bench, "max_lines = 3", "seq 4 > a") == "guard: 4 lines changed, at most 3 allowed"


def test_max_lines_allows_as_many(bench: Bench) -> None:
    assert guarded(bench, "max_lines = 3", "seq 3 > a") == ""


def test_forbid_deletes(bench: Bench) -> None:
    assert guarded(bench, "forbid_deletes = true", "rm app.txt; echo 1 > b") == "guard: deleted: app.txt"


def test_binary_files(bench: Bench) -> None:
    assert guarded(bench, "allow_binary = false", r"printf 'a\000b' > data.bin").startswith("guard: binary files changed: data.bin")


def test_text_is_no_binary(bench: Bench) -> None:
    assert guarded(bench, "allow_binary = false", "echo 1 > b; echo 'Binary files a and b differ' > c") == ""


@pytest.mark.parametrize(
    ("added", "where"),
    [
        ("token = ghp_0123456789abcdefghijklmnopqrstuvwxyzAB", "app.txt"),
        ("++ AKIAABCDEFGHIJKLMNOP", "app.txt"),  # in a diff it looks like a file's header
        ("-----BEGIN RSA PRIVATE KEY-----", "app.txt"),
    ],
)
def test_secrets_by_default_patterns(bench: Bench, added: str, where: str) -> None:
    reason = guarded(bench, "", f"echo '{added}' >> {where}")
    assert reason.startswith(f"guard: what looks like a secret was added to {where} ")
    assert added not in bench.stream.read_text()


def test_secrets_by_own_pattern(bench: Bench) -> None:
    reason = guarded(bench, "secrets = ['hunter[0-9]+']", "echo pw=hunter42 > a")
    assert reason == "guard: what looks like a secret was added to a (pattern hunter[0-9]+)"


def test_a_secret_that_was_there_before_is_nobodys_fault(bench: Bench) -> None:
    bench.write("old.txt", "ghp_0123456789abcdefghijklmnopqrstuvwxyzAB\na\n")
    assert guarded(bench, "", "echo b >> old.txt; sed -i /ghp/d old.txt") == ""


def test_scope(bench: Bench) -> None:
    bench.write("sub/x", "x\n")
    reason = guarded(bench, "", "echo 1 > ../app.txt; echo 1 > x", extra='scope = "sub"')
    assert reason == "guard: outside scope sub: app.txt"


def test_config_is_a_control_file(bench: Bench) -> None:
    assert guarded(bench, "", "git config core.pager evil; echo 1 > a") == "guard: control files changed: config"
    assert bench.git("config", "--get", "core.pager", check=False) == ""


def test_config_may_be_allowed(bench: Bench) -> None:
    assert guarded(bench, "allow_config = true", "git config core.pager less; echo 1 > a") == ""
    assert bench.git("show", "HEAD:a") == "1"


def test_watch_stops_codegen_the_moment_a_protected_path_is_written(bench: Bench) -> None:
    began = time.monotonic()
    codegen = "echo 1 > app.txt; mkdir -p tests; sleep 0.2; echo x > tests/a; sleep 60"
    reason = guarded(bench, "watch = true\nprotected = ['tests/']", codegen)
    assert reason == "guard: protected path: tests (codegen was stopped)"
    assert time.monotonic() - began < 30
    finished = next(e["data"] for e in bench.events("step.finished", 1) if e["data"]["step"] == "codegen")
    assert finished["duration_ms"] < 10_000
    assert (bench.root / "app.txt").read_text() == "0\n"
    assert not (bench.root / "tests").exists()


def test_watch_lets_everything_else_pass(bench: Bench) -> None:
    assert guarded(bench, "watch = true\nprotected = ['tests/']", "echo 1 > app.txt; sleep 0.3") == ""


def test_the_run_goes_on_after_a_watched_write(bench: Bench) -> None:
    bench.loop(
        """[loop]
max_iters = 2
[guard]
watch = true
protected = ["judge"]
[codegen]
command = "echo $EVOLVER_ITERATION > app.txt; if [ $EVOLVER_ITERATION = 1 ]; then echo > judge; sleep 60; fi"
"""
    )
    bench.evolver("run", exit=0)
    finished = bench.last("run.finished")
    assert (finished["accepted"], finished["rolled_back"], finished["reason"]) == (1, 1, "max_iterations")


def test_a_judge_is_found_from_the_folder_the_person_stands_in(bench: Bench) -> None:
    bench.write("sub/check.sh", "#!/bin/sh\ntrue\n")
    bench.commit()
    bench.evolver(
        *("run", "-C", "sub", "--max-iters", "1", "--codegen", "echo >> check.sh; echo 1 > ../app.txt", "--validate", "./check.sh"), exit=1
    )
    assert bench.reasons() == ["guard: protected path: sub/check.sh"]


def test_what_the_judges_said_at_the_start_is_in_the_stream(bench: Bench) -> None:
    """The hash in `run.started`, and in the genesis event, changes with a word in a validator's script."""
    hashes = []
    for text in ("#!/bin/sh\ntrue\n", "#!/bin/sh\ntrue\n", "#!/bin/sh\nexit 0\n"):
        bench.write("check.sh", text)
        bench.git("add", "-A")
        bench.git("commit", "-q", "--allow-empty", "-m", "judge")
        bench.run("true", validate="./check.sh", exit=1)
        hashes.append(bench.last("run.started")["validators_hash"])
    assert hashes[0] == hashes[1] != hashes[2]
    [genesis] = bench.events("segment.opened")
    assert len(genesis["data"]["validators"]) == 1


@pytest.mark.parametrize(
    ("files", "validate", "edit", "hit"),
    [
        ({"Makefile": "test:\n\tfalse\n"}, "make test", "printf 'test:\\n\\ttrue\\n' > GNUmakefile", "GNUmakefile"),
        ({"check.py": "raise SystemExit(1)"}, "python3 -m check", "mkdir check; echo > check/__main__.py", "check/__main__.py"),
        ({}, "python3 -m unittest", "echo > unittest.py", "unittest.py"),
        ({}, "python3 -m pytest -q", "mkdir pytest; echo > pytest/__main__.py", "pytest/__main__.py"),
        ({"tox.ini": "[tox]\n"}, "tox -q", "echo >> tox.ini", "tox.ini"),
        (
            {"package.json": '{"scripts": {"test": "false"}}'},
            "npm test",
            """echo '{"scripts": {"test": "true"}}' > package.json""",
            "package.json (its scripts are what a validator runs)",
        ),
    ],
)
def test_what_would_be_read_instead_of_a_judge_is_protected(
    tmp_path: Path, files: dict[str, str], validate: str, edit: str, hit: str
) -> None:
    bench = Bench.make(tmp_path / "p", {"app.txt": "0\n", **files})
    bench.run(f"echo 1 >> app.txt; {edit}", validate=validate, exit=1)
    assert bench.reasons() == [f"guard: protected path: {hit}"]


def test_a_callables_package_beside_its_module_is_protected(tmp_path: Path) -> None:
    bench = Bench.make(tmp_path / "p", {"app.txt": "0\n", "loops/judge.py": "def check(context):\n    return False\n"})
    edit = "mkdir loops/judge; echo 'def check(context): return True' > loops/judge/__init__.py"
    bench.loop(f'[loop]\nmax_iters = 1\n[codegen]\ncommand = "{edit}"\n[[validator]]\nname = "v"\ncallable = "judge:check"\n')
    bench.evolver("run", exit=1)
    assert bench.reasons() == ["guard: protected path: loops/judge/__init__.py"]


@pytest.mark.parametrize(
    ("files", "validate", "edit"),
    [
        ({"package.json": '{"scripts": {"test": "x"}}'}, "true || npm test", """echo '{"scripts": {"test": "x"}, "a": 1}' > package.json"""),
        ({"mypy/a.py": ""}, "true || python3 -m mypy", "echo 1 > mypy/a.py"),  # the tool's own repository
        ({}, "test -f Makefile", "printf 'test:\\n\\ttrue\\n' > Makefile"),
    ],
)
def test_what_is_no_judge_beside_one_is_the_agents(tmp_path: Path, files: dict[str, str], validate: str, edit: str) -> None:
    bench = Bench.make(tmp_path / "p", {"app.txt": "0\n", **files})
    bench.run(edit, validate=validate, exit=0)


KEY = "AKIA" + "ABCDEFGHIJKLMNOP"


@pytest.mark.parametrize(
    ("keep", "edit", "where"),
    [
        ("keep", f"echo {KEY} > s; git add s; git commit -qm one; git rm -q s; echo x >> app.txt; git commit -qam two", "s"),
        ("keep", f"echo x >> app.txt; git commit -qam one -m 'use {KEY}'", "a commit's message"),
        ("squash", f"echo x >> app.txt; git commit -qam 'use {KEY}'", "a commit's message"),
    ],
)
def test_a_secret_that_only_a_commit_would_publish(bench: Bench, keep: str, edit: str, where: str) -> None:
    """What one commit adds and the next removes stays in a kept history; a squashed subject stands in the message."""
    bench.loop(f'[loop]\nmax_iters = 1\n[accept]\ncommits = "{keep}"\n[codegen]\ncommand = """{edit}"""\n')
    bench.evolver("run", exit=1)
    [reason] = bench.reasons()
    assert f"a secret was added to {where} " in reason and KEY not in bench.stream.read_text()


def test_a_secret_that_no_commit_keeps_is_no_matter(bench: Bench) -> None:
    edit = f"echo {KEY} > s; git add s; git commit -qm one; git rm -q s; echo x >> app.txt; git commit -qam two"
    bench.run(edit, exit=0)
