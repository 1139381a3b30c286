"""Loop files: found, read, strict; what is wrong is told with file, key and what was expected."""

from __future__ import annotations

from pathlib import Path

import pytest

from evolver import loopfile
from evolver.definition import LoadedLoop
from evolver.durations import Duration, Size
from evolver.errors import UsageError
from evolver.model import RollbackMode
from evolver.settings import Override
from evolver.settings import read as read_settings
from support import Repo

MINIMAL = '[codegen]\ncommand = "true"\n'


def write(root: Path, text: str, name: str = "default.toml") -> Path:
    path = root / "loops" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def load(
    root: Path, env: dict[str, str] | None = None, flags: tuple[Override, ...] = (), name: str | None = None
) -> LoadedLoop:
    return loopfile.load(name, root, read_settings(env or {}, root / ".env"), flags)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (MINIMAL + "colour = 1\n", ["codegen", "unknown field `colour`"]),
        ("[codegen]\ncommand = 5\n", ["codegen.command", "Expected"]),
        (MINIMAL + 'timeout = "soon"\n', ["codegen.timeout", "expected a duration such as 90s"]),
        (MINIMAL + "timeout = 5\n", ["codegen.timeout", "expected a string"]),
        (MINIMAL + "[loop]\nmax_iters = 0\n", ["loop.max_iters", ">= 1"]),
        (MINIMAL + "[loop]\nmax_iters = 1.5\n", ["loop.max_iters", "Expected `int`"]),
        (MINIMAL + '[rollback]\nmode = "soft"\n', ["rollback.mode", "soft"]),
        (
            MINIMAL + '[[validator]]\nname = "a"\ncommand = "x"\n[[validator]]\nname = "a"\ncommand = "y"\n',
            ["validator[1].name", "unique"],
        ),
        (MINIMAL + '[[validator]]\nname = "a"\n', ["validator[0]", "exactly one of command or callable"]),
        (MINIMAL + '[loop]\nuntil = "when done"\n', ["loop.until"]),
        (MINIMAL + '[loop]\npromise = "("\n', ["loop.promise", "regular expression"]),
        (MINIMAL + '[loop]\nscope = "../x"\n', ["loop.scope"]),
        (MINIMAL + '[rollback]\nchanges_log = "../x.json"\n', ["rollback.changes_log", "inside the worktree"]),
        (MINIMAL + '[rollback]\nchanges_log = "/tmp/x.json"\n', ["rollback.changes_log"]),
        (MINIMAL + '[rollback]\nchanges_log = ".git/x.json"\n', ["rollback.changes_log"]),
        (MINIMAL + '[rollback]\nchanges_log = ""\n', ["rollback.changes_log"]),
        (MINIMAL + '[score]\nvalidator = "nobody"\npattern = "x"\n', ["score.validator"]),
        ("[codegen]\n", ["codegen", "exactly one of command, callable or agent"]),
        ("[codegen]\ncommand = []\n", ["codegen.command", "empty"]),
        ("[codegen\n", ["default.toml", "line 1"]),
        ("", ["codegen", "exactly one"]),
        ("codegen = 3\n", ["codegen", "Expected `object`"]),
    ],
)
def test_a_wrong_loop_file_names_file_key_and_expectation(tmp_path: Path, text: str, expected: list[str]) -> None:
    path = write(tmp_path, text)
    with pytest.raises(UsageError) as caught:
        load(tmp_path)
    assert str(path) in caught.value.message
    for part in expected:
        assert part in caught.value.message
    assert caught.value.exit_code == 2


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        (MINIMAL + "[loop]\nmax_iter = 3\n", "Did you mean `max_iters`?"),
        ("[rolback]\n" + MINIMAL, "Did you mean `rollback`?"),
        (MINIMAL + '[[validator]]\nname = "a"\ncommand = "x"\ntimout = "1s"\n', "Did you mean `timeout`?"),
        (MINIMAL + '[agents.own]\ncolour = "1"\n', "There are argv, "),
        (MINIMAL + '[rollback]\nmode = "soft"\n', "It may be hard, stash, none."),
        (MINIMAL + '[loop]\nisolation = "vm"\n', "It may be clone, inplace."),
        (MINIMAL + '[validator]\nname = "a"\n', "two brackets: [[validator]]"),
    ],
)
def test_a_slip_is_told_with_what_may_stand_there(tmp_path: Path, text: str, hint: str) -> None:
    write(tmp_path, text)
    with pytest.raises(UsageError) as caught:
        load(tmp_path)
    assert hint in caught.value.hint


def test_a_file_that_is_no_text_is_named(tmp_path: Path) -> None:
    write(tmp_path, "").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(UsageError, match=r"default\.toml cannot be read"):
        load(tmp_path)


def test_precedence_flag_environment_dotenv_file_default(tmp_path: Path) -> None:
    write(tmp_path, MINIMAL)
    assert load(tmp_path).definition.rollback.mode is RollbackMode.HARD
    write(tmp_path, MINIMAL + '[rollback]\nmode = "none"\n')
    assert load(tmp_path).definition.rollback.mode is RollbackMode.NONE
    (tmp_path / ".env").write_text("EVOLVER_ROLLBACK_MODE=stash\nOTHER=1\n")
    assert load(tmp_path).definition.rollback.mode is RollbackMode.STASH
    env = {"EVOLVER_ROLLBACK_MODE": "hard"}
    assert load(tmp_path, env).definition.rollback.mode is RollbackMode.HARD
    flag = (Override("rollback.mode", "none", "--rollback"),)
    assert load(tmp_path, env, flag).definition.rollback.mode is RollbackMode.NONE


@pytest.mark.parametrize(
    ("env", "flags", "dotenv", "source"),
    [
        ({"EVOLVER_ROLLBACK_MODE": "soft"}, (), "", "environment variable EVOLVER_ROLLBACK_MODE"),
        ({}, (Override("rollback.mode", "soft", "--rollback"),), "", "--rollback"),
        ({}, (), "EVOLVER_ROLLBACK_MODE=soft\n", ".env"),
        ({"EVOLVER_MAX_ITERS": "many"}, (), "", "environment variable EVOLVER_MAX_ITERS"),
        ({"EVOLVER_MAX_TIME": "late"}, (), "", "environment variable EVOLVER_MAX_TIME"),
        ({"EVOLVER_MAX_VAULT": "big"}, (), "", "environment variable EVOLVER_MAX_VAULT"),
    ],
)
def test_a_wrong_value_names_its_source(
    tmp_path: Path, env: dict[str, str], flags: tuple[Override, ...], dotenv: str, source: str
) -> None:
    write(tmp_path, MINIMAL)
    if dotenv:
        (tmp_path / ".env").write_text(dotenv)
    with pytest.raises(UsageError) as caught:
        load(tmp_path, env, flags)
    assert source in caught.value.message


def test_the_state_folder_is_never_taken_from_the_worktree(tmp_path: Path) -> None:
    (tmp_path / ".env").write_text("EVOLVER_STATE_DIR=/elsewhere\n")
    assert read_settings({}, tmp_path / ".env").text("EVOLVER_STATE_DIR") == ""


def test_a_codegen_flag_replaces_the_file_s_kind(tmp_path: Path) -> None:
    write(tmp_path, '[codegen]\nagent = "claude"\n')
    loaded = load(tmp_path, flags=(Override("codegen.command", "make", "--codegen"),))
    assert loaded.definition.codegen.command == "make"
    assert loaded.definition.codegen.agent is None


def test_which_loop_is_run(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no loop named"):
        load(tmp_path)
    write(tmp_path, MINIMAL, "one.toml")
    assert load(tmp_path).name == "one"
    write(tmp_path, MINIMAL, "two/loop.toml")
    with pytest.raises(UsageError, match=r"one, two|two, one"):
        load(tmp_path)
    assert load(tmp_path, name="two").name == "two"
    assert load(tmp_path, {"EVOLVER_LOOP": "two"}).name == "two"
    with pytest.raises(UsageError, match="no loop called 'three'"):
        load(tmp_path, name="three")
    write(tmp_path, MINIMAL)
    assert load(tmp_path).name == "default"


def test_the_definition_survives_its_json_and_its_hash_follows_its_values(tmp_path: Path) -> None:
    write(
        tmp_path,
        MINIMAL
        + '[loop]\nmax_time = "1h30m"\n[audit]\nsegment_size = "1MiB"\n'
        + '[score]\nvalidator="v"\npattern="x"\n[[validator]]\nname="v"\ncommand=["a","b"]\n',
    )
    loaded = load(tmp_path)
    again = loopfile.from_json(loopfile.to_json(loaded.definition))
    assert again == loaded.definition
    assert loopfile.digest(again) == loaded.digest
    other = load(tmp_path, flags=(Override("loop.max_iters", 3, "--max-iters"),))
    assert other.digest != loaded.digest


@pytest.mark.parametrize(
    ("text", "value"), [("90s", 90_000), ("1h30m", 5_400_000), ("500ms", 500), ("2d", 172_800_000), ("7", 7000)]
)
def test_durations(text: str, value: int) -> None:
    assert Duration.parse(text) == value
    assert Duration.parse(str(Duration.parse(text))) == value


@pytest.mark.parametrize("text", ["", "-1s", "1.5h", "h", "1h 30m", "１s", "1w"])
def test_wrong_durations(text: str) -> None:
    with pytest.raises(ValueError, match="expected a duration"):
        Duration.parse(text)


def test_sizes() -> None:
    assert Size.parse("2GiB") == 2 << 30
    with pytest.raises(ValueError, match="expected a size"):
        Size.parse("2GB")


@pytest.mark.parametrize("pattern", ["./src/**", "", "!", "/", "../other/*", "src\\\\app.ts", "[a", "# no", "!./src"])
@pytest.mark.parametrize("key", ["protected", "when", "leave"])
def test_a_pattern_that_can_match_nothing_is_refused(tmp_path: Path, key: str, pattern: str) -> None:
    sections = {
        "protected": f'[guard]\nprotected = ["tests/**", "{pattern}"]\n[[validator]]\nname = "v"\ncommand = "true"\n',
        "when": f'[[validator]]\nname = "v"\ncommand = "true"\nwhen = ["{pattern}"]\n',
        "leave": f'[rollback]\nleave = ["{pattern}"]\n[[validator]]\nname = "v"\ncommand = "true"\n',
    }
    repo = Repo.make(tmp_path / "r")
    (repo.root / "loop.toml").write_text("[codegen]\ncommand = 'true'\n" + sections[key])
    done = repo.evolver("run", "./loop.toml")
    assert done.code == 2, done.text
    assert f"{key}: " in done.err and "matches nothing" in done.err, done.err
    assert not (repo.root / ".git/evolver").exists()


@pytest.mark.parametrize("pattern", ["/src/**", "src", "src/", "*.ts", "**/a[bc]?.ts", "\\\\!odd", "a b/*", "тест/**"])
def test_other_patterns_are_taken(tmp_path: Path, pattern: str) -> None:
    repo = Repo.make(tmp_path / "r")
    (repo.root / "loop.toml").write_text(
        f'[codegen]\ncommand = "true"\n[guard]\nprotected = ["{pattern}", "!keep/*"]\n[[validator]]\nname = "v"\ncommand = "true"\n',
        encoding="utf-8-sig",
    )
    assert repo.evolver("run", "./loop.toml", "--dry-run").code == 0


@pytest.mark.parametrize("path", ["events.jsonl", "../loops/x", "../.git/config", "{root}/src/a.py", "{link}/x"])
def test_a_copy_of_the_stream_may_not_lie_where_a_rollback_takes_it_back(tmp_path: Path, path: str) -> None:
    repo = Repo.make(tmp_path / "r")
    (tmp_path / "link").symlink_to(repo.root)
    place = path.format(root=repo.root, link=tmp_path / "link")
    (repo.root / "loops").mkdir()
    (repo.root / "loops/l.toml").write_text(
        f'[codegen]\ncommand = "true"\n[[validator]]\nname = "v"\ncommand = "true"\n[[sink]]\nkind = "file"\npath = "{place}"\n'
    )
    done = repo.evolver("run", "l")
    assert done.code == 2 and "lies inside" in done.err, done.text
    assert repo.run("true", "true", env={"EVOLVER_SINK_FILE": str(repo.root / "x")}).code == 2


def test_a_sink_that_takes_nothing_is_told_at_the_end(tmp_path: Path) -> None:
    repo = Repo.make(tmp_path / "r")
    (tmp_path / "file").write_text("no folder\n")  # a missing one would be made
    (repo.root / "loops").mkdir()
    (repo.root / "loops/l.toml").write_text(
        '[loop]\nmax_iters = 1\n[codegen]\ncommand = "echo x >>src/a.py"\n[[validator]]\nname = "v"\ncommand = "true"\n'
        f'[[sink]]\nkind = "file"\nname = "copy"\npath = "{tmp_path}/file/x"\ndrain = "1s"\n'
    )
    repo.sh("git add -A && git commit -qm l")
    done = repo.evolver("run", "l")
    assert done.code == 0, done.text
    assert "evolver: warning: sink copy has not taken everything yet" in done.err, done.err
