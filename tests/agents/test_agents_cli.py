"""Agents through the command line: what is refused before the run, and what `evolver prompt` prints."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import time
from pathlib import Path

import pytest

from support import Repo, ended


@pytest.fixture
def repo(tmp_path: Path) -> Repo:
    return Repo.make(tmp_path / "r")


def fake_agent(repo: Repo, tmp_path: Path, name: str, script: str) -> None:
    """A program that stands in for an agent's CLI, first on PATH."""
    folder = tmp_path / "bin"
    folder.mkdir(exist_ok=True)
    (folder / name).write_text(f"#!/bin/sh\n{script}\n")
    (folder / name).chmod(0o755)
    repo.env["PATH"] = f"{folder}:{repo.environment()['PATH']}"


def write_loop(repo: Repo, text: str) -> None:
    (repo.root / "loops").mkdir(exist_ok=True)
    (repo.root / "loops" / "default.toml").write_text(text)
    repo.sh("git add -A && git commit -qm loop")


GOOD = json.dumps({"type": "result", "subtype": "success", "is_error": False, "num_turns": 1, "usage": {}})
AGENT = '[loop]\ngoal = "Go"\n[codegen]\nagent = "claude"\nprompt = "task.md"\n[[validator]]\nname = "v"\ncommand = "true"\n'


@pytest.mark.parametrize(
    "template", ["{{ goall }}", "{% if %}", "{{ 1 / 0 }}", "", "{% if reason %}{{ reason.x }}{% endif %}go"]
)
def test_a_template_error_is_exit_2_before_the_run(repo: Repo, template: str) -> None:
    write_loop(repo, AGENT)
    (repo.root / "loops" / "task.md").write_text(template)
    repo.sh("git add -A && git commit -qm task --allow-empty")
    done = repo.evolver("run")
    assert done.code == 2 and "task.md" in done.err, done.text
    assert not repo.events("run.started")
    assert repo.evolver("prompt").code == 2


def test_an_unknown_agent_is_exit_2(repo: Repo) -> None:
    done = repo.evolver("run", "--agent", "cloude", "--validate", "true")
    assert done.code == 2 and "cloude" in done.err and "claude" in done.err


def test_an_agent_without_a_task_is_exit_2(repo: Repo) -> None:
    done = repo.evolver("run", "--agent", "claude", "--validate", "true")
    assert done.code == 2 and "no task" in done.err


def test_prompt_prints_what_the_first_iteration_sends(repo: Repo) -> None:
    write_loop(repo, AGENT.replace('prompt = "task.md"\n', ""))
    done = repo.evolver("prompt")
    assert done.code == 0 and done.out.startswith("Go\n") and "iteration 1 of at most 20" in done.out


def test_prompt_and_the_agent_get_the_same(repo: Repo, tmp_path: Path) -> None:
    fake_agent(repo, tmp_path, "claude", f"cat > {tmp_path}/got; echo '{GOOD}'")
    write_loop(repo, AGENT.replace('prompt = "task.md"\n', ""))
    shown = repo.evolver("prompt").out
    repo.evolver("run", "--max-iters", "1")
    assert (tmp_path / "got").read_text() == shown.replace("at most 20", "at most 1")


def test_what_failed_stands_in_the_next_prompt_and_in_prompt_last(repo: Repo, tmp_path: Path) -> None:
    fake_agent(repo, tmp_path, "claude", f"cat > {tmp_path}/got.$EVOLVER_ITERATION; echo z >> src/a.py; echo '{GOOD}'")
    text = AGENT.replace('prompt = "task.md"\n', "").replace('"true"', '"echo the very reason; exit 3"')
    write_loop(repo, text)
    assert repo.evolver("run", "--max-iters", "2").code == 1
    second = (tmp_path / "got.2").read_text()
    for words in ("iteration 2", "v: exit 3", "the very reason", "- #1: ", "1 paths"):
        assert words in second, second
    third = repo.evolver("prompt", "--last").out
    assert "iteration 3" in third and "- #1: " in third and "- #2: " in third and "the very reason" in third
    assert "iteration 1 " in repo.evolver("prompt").out


def test_a_missing_agent_is_refused_with_its_name(repo: Repo, tmp_path: Path) -> None:
    text = AGENT.replace('prompt = "task.md"\n', "").replace('"claude"', '"mine"')
    write_loop(repo, text + '[agents.mine]\nargv = ["/no/such/agent"]\n')
    done = repo.evolver("run", "--max-iters", "1")
    assert done.code == 5, done.text
    assert "agent not installed: mine (/no/such/agent)" in done.err


def test_aider_that_fails_with_exit_0_and_leaves_droppings(repo: Repo, tmp_path: Path) -> None:
    """aider's traps by recorded behaviour: exit 0 on failure, .gitignore created, identity written into .git/config."""
    script = """
echo 'litellm.AuthenticationError: AuthenticationError: no key'
echo '.aider*' >> .gitignore
mkdir -p .aider.tags.cache.v4 && echo x > .aider.tags.cache.v4/cache.db
git config user.name 'Your Name'; git config user.email you@example.com
exit 0"""
    fake_agent(repo, tmp_path, "aider", script)
    write_loop(repo, AGENT.replace('prompt = "task.md"\n', "").replace('"claude"', '"aider"'))
    before = (repo.root / ".gitignore").read_text(), (repo.root / ".git" / "config").read_bytes()
    done = repo.evolver("run", "--max-iters", "1")
    assert done.code == 1, done.text
    assert "AuthenticationError" in repo.events("rollback.finished")[-1]["data"]["reason"]
    assert ((repo.root / ".gitignore").read_text(), (repo.root / ".git" / "config").read_bytes()) == before
    assert repo.sh("git status --porcelain --ignored") == ""
    assert repo.events("alert.control_changed")


def test_aiders_identity_in_git_config_alone_fails_the_attempt(repo: Repo, tmp_path: Path) -> None:
    script = """
echo z >> src/a.py; git config user.name 'Your Name'
echo 'Tokens: 2.4k sent, 120 received. Cost: $0.0024 message, $0.0024 session.'"""
    fake_agent(repo, tmp_path, "aider", script)
    write_loop(repo, AGENT.replace('prompt = "task.md"\n', "").replace('"claude"', '"aider"'))
    before = (repo.root / ".git" / "config").read_bytes()
    assert repo.evolver("run", "--max-iters", "1").code == 1
    assert (repo.root / ".git" / "config").read_bytes() == before
    step = next(e["data"] for e in repo.events("step.finished") if e["data"]["step"] == "codegen")
    assert (step["input_tokens"], step["output_tokens"], step["cost_usd"]) == (2400, 120, "0.0024")


def test_without_bubblewrap_a_sandboxed_loop_is_exit_5(repo: Repo, tmp_path: Path) -> None:
    """Without bubblewrap exit 5 names the package."""
    write_loop(
        repo, '[codegen]\ncommand = "echo z >> src/a.py"\nsandbox = "bwrap"\n[[validator]]\nname = "v"\ncommand = "true"\n'
    )
    folder = tmp_path / "few"
    folder.mkdir()
    for name in ("git", "sh"):
        (folder / name).symlink_to(repo.sh(f"command -v {name}").strip())
    done = repo.evolver("run", "--max-iters", "1", env={"PATH": str(folder)})
    assert done.code == 5 and "apt-get install bubblewrap" in done.err, done.text
    assert not repo.events("step.started") and repo.sh("git status --porcelain") == ""


def test_a_rate_limit_is_no_iteration(repo: Repo, tmp_path: Path) -> None:
    """Neither max-iters nor the breaker counts it."""
    limited = json.dumps(
        {"type": "result", "subtype": "success", "is_error": True, "api_error_status": 429, "result": "retry in 10ms"}
    )
    script = f"""
echo x >> {tmp_path}/calls
if [ $(wc -l < {tmp_path}/calls) -le 1 ]; then echo '{limited}'; exit 1; fi
echo z >> src/a.py; echo '{GOOD}'"""
    fake_agent(repo, tmp_path, "claude", script)
    write_loop(repo, AGENT.replace('prompt = "task.md"\n', "") + "[breaker]\ninconclusive = 1\nrejections = 1\n")
    done = repo.evolver("run", "--max-iters", "1")
    assert done.code == 0, done.text
    step = next(e["data"] for e in repo.events("step.finished") if e["data"]["step"] == "codegen")
    assert step["calls"] == 2 and len(repo.events("iteration.accepted")) == 1 and len(repo.events("iteration.started")) == 1


LIMITED = json.dumps(
    {"type": "result", "subtype": "success", "is_error": True, "api_error_status": 429, "result": "429, retry-after: 3600"}
)


def test_an_hour_of_retry_after_against_max_wait(repo: Repo, tmp_path: Path) -> None:
    """A wait that does not fit into `max_wait` ends the attempt as inconclusive; the tree is as it was."""
    fake_agent(repo, tmp_path, "claude", f"echo half > half; echo '{LIMITED}'; exit 1")
    write_loop(repo, AGENT.replace('prompt = "task.md"\n', 'max_wait = "10m"\n'))
    done = repo.evolver("run", "--max-iters", "1")
    assert done.code == 1, done.text
    step = next(e["data"] for e in repo.events("step.finished") if e["data"]["step"] == "codegen")
    assert step["judgement"] == "inconclusive" and step["transient"] and "max_wait" in step["reason"] and step["calls"] == 1
    assert repo.status() == ""


def test_the_fallback_agent_takes_over(repo: Repo, tmp_path: Path) -> None:
    fake_agent(repo, tmp_path, "claude", f"echo '{LIMITED}'; exit 1")
    usage = json.dumps({"type": "turn.completed", "usage": {"input_tokens": 7, "output_tokens": 3}})
    fake_agent(repo, tmp_path, "codex", f"echo z >> src/a.py; echo '{usage}'")
    write_loop(repo, AGENT.replace('prompt = "task.md"\n', 'fallback = ["codex"]\nargs = ["--for-claude-only"]\n'))
    done = repo.evolver("run", "--max-iters", "1")
    assert done.code == 0, done.text
    step = next(e["data"] for e in repo.events("step.finished") if e["data"]["step"] == "codegen")
    assert (step["agent"], step["calls"], step["input_tokens"], step["waited_ms"]) == ("codex", 2, 7, 0)


def test_the_wait_for_a_rate_limit_can_be_interrupted(repo: Repo, tmp_path: Path) -> None:
    fake_agent(repo, tmp_path, "claude", f"touch {tmp_path}/called; echo '{LIMITED}'; exit 1")
    write_loop(repo, AGENT.replace('prompt = "task.md"\n', 'max_wait = "2h"\n'))
    process = repo.start("run", "--max-iters", "1")
    repo.wait_for((tmp_path / "called").exists)
    time.sleep(1)
    begun = time.monotonic()
    process.send_signal(signal.SIGTERM)
    done = ended(process, 20)
    assert done.code == 143 and time.monotonic() - begun < 10, done.text
    assert repo.status() == ""


BWRAP = (
    shutil.which("bwrap") is not None
    and not subprocess.run(
        ["bwrap", "--unshare-pid", "--unshare-net", "--ro-bind", "/", "/", "--proc", "/proc", "true"],
        capture_output=True,
        check=False,
    ).returncode
)


@pytest.mark.skipif(not BWRAP, reason="bubblewrap is not installed, or may not make namespaces here")
@pytest.mark.parametrize("target", ["$HOME/planted", "../planted", ".git/evolver/planted"])
def test_a_sandboxed_step_that_writes_elsewhere_fails(repo: Repo, hermetic: Path, target: str) -> None:
    """A step that writes to HOME or to the parent folder fails, and nothing is there; one that keeps to the worktree is accepted."""
    text = '[codegen]\ncommand = "%s"\nsandbox = "bwrap"\n[[validator]]\nname = "v"\ncommand = "true"\n'
    write_loop(repo, text % f"set -e; echo z >> src/a.py; mkdir -p {target}; echo x > {target}/x")
    assert repo.evolver("run", "--max-iters", "1").code == 1
    assert repo.events("rollback.finished")
    for place in (hermetic / "planted", repo.root.parent / "planted", repo.root / ".git/evolver/planted"):
        assert not place.exists()
    write_loop(repo, text % "echo good >> src/a.py && git add -A && git commit -qm mine")
    done = repo.evolver("run", "--max-iters", "1")
    assert done.code == 0, done.text


@pytest.mark.parametrize(
    ("section", "loop"),
    [
        ('max_wait = "10m"', ""),
        ('max_wait = "10m"\non_error = "validate"', ""),
        ('max_wait = "10m"\nrepairs = 3', ""),
        ('max_wait = "9h"', 'max_time = "5m"'),
    ],
    ids=["patience", "on-error", "repairs", "max-time"],
)
def test_a_limit_that_outlasts_patience_ends_the_run_and_burns_no_iterations(
    repo: Repo, tmp_path: Path, section: str, loop: str
) -> None:
    """Told "in an hour", the next iteration would be told the same, and the one after: a night would be over in seconds."""
    fake_agent(repo, tmp_path, "claude", f"echo x >> {tmp_path}/calls; echo '{LIMITED}'; exit 1")
    write_loop(repo, AGENT.replace('prompt = "task.md"', section).replace('goal = "Go"', f'goal = "Go"\n{loop}'))
    done = repo.evolver("run", "--max-iters", "20")
    assert done.code == 1, done.text
    finished = repo.events("run.finished")[-1]["data"]
    assert finished["reason"] == "agent_unavailable" and "429" in finished["detail"] and finished["iterations"] == 1
    assert len((tmp_path / "calls").read_text().splitlines()) == 1
    assert [e["data"]["condition"] for e in repo.events("alert.stalled")] == ["agent_unavailable"]
    assert repo.status() == ""


def test_a_step_cannot_have_the_users_files_written_by_us(repo: Repo, tmp_path: Path) -> None:
    """It puts a link where evolver writes next: the prompt of the call after, and why the attempt failed."""
    (tmp_path / "mine").write_text("precious\n")
    script = f"""
for file in $EVOLVER_STEP_DIR/prompt.txt $EVOLVER_LAST_FAILURE; do rm -f $file; ln -s {tmp_path}/mine $file; done
echo z >> src/a.py; echo '{GOOD}'"""
    fake_agent(repo, tmp_path, "claude", script)
    write_loop(repo, AGENT.replace('prompt = "task.md"\n', "repairs = 1\n").replace('"true"', '"false"'))
    done = repo.evolver("run", "--max-iters", "2")
    assert done.code == 1 and len([e for e in repo.events("step.started") if e["data"]["step"] == "codegen"]) == 4, done.text
    assert (tmp_path / "mine").read_text() == "precious\n"


def test_a_step_that_removes_the_scratch_folder_is_repaired_like_any_other(repo: Repo, tmp_path: Path) -> None:
    fake_agent(repo, tmp_path, "claude", f"rm -rf $(dirname $EVOLVER_STEP_DIR); echo z >> src/a.py; echo '{GOOD}'")
    write_loop(repo, AGENT.replace('prompt = "task.md"\n', "repairs = 1\n").replace('"true"', '"false"'))
    done = repo.evolver("run", "--max-iters", "1")
    assert done.code == 1 and [e["data"]["reason"][:9] for e in repo.events("rollback.finished")] == ["v: exit 1"], done.text


def test_a_pipe_in_place_of_a_report_is_not_waited_for(repo: Repo, tmp_path: Path) -> None:
    fake_agent(repo, tmp_path, "mini", "mkfifo $EVOLVER_STEP_DIR/trajectory.json; echo z >> src/a.py")
    write_loop(repo, AGENT.replace('prompt = "task.md"\n', "").replace('"claude"', '"mini-swe-agent"'))
    assert repo.evolver("run", "--max-iters", "1", timeout=60).code == 1
