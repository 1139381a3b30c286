"""The audit trail of real runs, through the command line: one test a line of what the issue asks to see."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import jsonschema
import pytest

from evolver.audit import make_key
from support import EVOLVER, Repo, ended

from .test_audit import verify_by_ssh

ROOT = Path(__file__).parents[2]


@pytest.fixture
def repo(tmp_path: Path) -> Repo:
    return Repo.make(tmp_path / "repo")


def verify(repo: Repo) -> tuple[int, dict[str, object]]:
    done = repo.evolver("audit", "verify", "--json")
    return done.code, json.loads(done.out)


MIXED = "echo $EVOLVER_ITERATION >> src/a.py; echo new > fresh-$EVOLVER_ITERATION"


def test_cloudevents_and_schema_take_every_event_of_a_run_in_each_mode(repo: Repo) -> None:
    from cloudevents.core.formats.json import JSONFormat
    from cloudevents.core.v1.event import CloudEvent

    repo.run(MIXED, "test $((EVOLVER_ITERATION % 2)) = 1", "--max-iters", "3")
    repo.run(MIXED, "false", "--rollback", "stash")
    assert repo.run(MIXED, "false", "--rollback", "none").code == 3
    repo.evolver("resume", "--rollback", "hard")
    validator = jsonschema.Draft202012Validator(json.loads((ROOT / "docs/schema/events.schema.json").read_text()))
    lines = repo.log.read_bytes().splitlines()
    for line in lines:
        event = json.loads(line)
        validator.validate(event)
        assert JSONFormat().read(CloudEvent, line).get_id() == event["id"]
        if event["type"].startswith("dev.evolver.rollback."):
            assert event["data"].keys() >= {"iteration_id", "rollback_mode", "pre_ref", "post_ref", "reason"}
    kinds = set(repo.kinds())
    assert {"iteration.accepted", "rollback.finished", "rollback.skipped", "run.held", "run.resumed", "segment.opened"} <= kinds
    assert verify(repo)[0] == 0 and len(lines) == len({json.loads(line)["id"] for line in lines})


def test_the_transition_failed_then_rolled_back_is_in_the_chain_from_the_first_line_on(repo: Repo) -> None:
    repo.run(MIXED, "false")
    assert repo.kinds()[0] == "segment.opened"
    opened = repo.events()[0]["data"]
    assert (
        opened["version"]
        and opened["pre_ref"] == repo.head()
        and len(opened["definition_hash"]) == 64
        and len(opened["validators"]) == 1
    )
    content = repo.log.read_bytes()
    finished = content.index(b'"to":"rolled_back"')
    repo.log.write_bytes(content[:finished] + b'"to":"rolled_beck"' + content[finished + 18 :])
    code, report = verify(repo)
    assert code == 8 and report["first_bad"]["kind"] == "damaged"  # type: ignore[index]


def test_verify_names_its_anchors_and_a_cut_log_is_caught_by_head_lifeboat_and_ref(repo: Repo) -> None:
    repo.run(MIXED, "true")
    assert verify(repo) == (0, {**verify(repo)[1], "status": "intact", "anchors": "consistent", "first_bad": None})
    assert "refs/evolver/audit/events" in repo.sh("git for-each-ref")
    lines = repo.log.read_bytes().splitlines(keepends=True)
    repo.log.write_bytes(b"".join(lines[:-3]))
    (repo.log.parent / "head").unlink()
    code, report = verify(repo)
    assert code == 8 and report["anchors"] == "truncated" and "lifeboat" in str(report["caveats"])
    shutil.rmtree(os.environ["XDG_STATE_HOME"])
    code, report = verify(repo)
    assert code == 8 and report["anchors"] == "truncated" and "refs/evolver/audit/events remembers" in str(report["caveats"])


@pytest.mark.parametrize(
    ("act", "kind"),
    [
        ("sed -i 's/run.started/run.stopped/' .git/evolver/events.jsonl", "replaced"),
        (
            "head -n 3 .git/evolver/events.jsonl > /tmp/x.$$; cat /tmp/x.$$ > .git/evolver/events.jsonl; rm /tmp/x.$$",
            "truncated",
        ),
        ("printf X | dd of=.git/evolver/events.jsonl bs=1 seek=300 conv=notrunc 2>/dev/null", "edited"),
        ("echo '{}' >> .git/evolver/events.jsonl", "edited"),
        (": > .git/evolver/events.jsonl", "truncated"),
    ],
)
def test_a_log_that_an_attempt_tampers_with_stops_the_run_with_exit_8(repo: Repo, act: str, kind: str) -> None:
    before = repo.head(), repo.status()
    done = repo.run(f"echo x >> src/a.py; {act}", "true", "--max-iters", "3")
    assert done.code == 8 and "tampered" in done.err and "Traceback" not in done.text
    alerts = repo.events("alert.log_tampered")
    assert len(alerts) == 1 and alerts[0]["data"]["kind"] == kind and alerts[0]["severity"] == "alert"
    assert repo.kinds()[0] == "segment.opened" and alerts[0]["data"]["file"].endswith("events.000001.jsonl")
    assert verify(repo)[0] == 8
    assert (repo.head(), repo.status()) == before and "rollback.finished" in repo.kinds()
    assert repo.run("true", "true").code == 1  # the next run is not in its way
    assert verify(repo)[0] == 8  # for ever


def test_a_deleted_git_folder_brings_the_stream_back_without_an_alarm(repo: Repo) -> None:
    done = repo.run("echo x >> src/a.py; rm -rf .git", "true", "--max-iters", "2")
    assert done.code in (0, 1) and "alert.log_tampered" not in repo.kinds()
    assert "log.recovered" in repo.kinds() and verify(repo)[0] == 0


def test_rotation_by_size_in_a_run(repo: Repo) -> None:
    (repo.root / "loops").mkdir()
    (repo.root / "loops/small.toml").write_text(
        '[codegen]\ncommand = "echo x >> src/a.py"\n[[validator]]\nname = "no"\ncommand = "false"\n[audit]\nsegment_size = "4KiB"\n'
    )
    repo.sh("git add loops && git commit -qm loop")
    assert repo.evolver("run", "small", "--max-iters", "3").code == 1
    assert len(list(repo.log.parent.glob("events.0*.jsonl"))) >= 3
    code, report = verify(repo)
    assert code == 0 and int(str(report["segments"])) >= 4
    listed = [json.loads(line)["sequence"] for line in repo.evolver("events").out.splitlines()]
    assert listed == list(range(1, len(listed) + 1)) == list(range(1, int(str(report["events"])) + 1))


@pytest.mark.skipif(os.geteuid() != 0, reason="mounting a tmpfs needs root")
def test_a_full_disk_under_the_stream_is_exit_8_and_the_tree_is_safe(repo: Repo, tmp_path: Path) -> None:
    small = tmp_path / "small"
    small.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(small)], capture_output=True).returncode:
        pytest.skip("tmpfs cannot be mounted here")
    try:
        before = repo.head(), repo.status()
        log = small / "events.jsonl"
        done = repo.run("echo x >> src/a.py", "false", "--max-iters", "200", "--no-breaker", env={"EVOLVER_EVENTS": str(log)})
        assert done.code == 8 and "Traceback" not in done.text, done.text
        assert log.read_bytes().endswith(b"}\n")
        assert repo.evolver("audit", "verify", str(log)).code == 0
    finally:
        subprocess.run(["umount", str(small)], check=True)
    assert repo.run("true", "true").code in (0, 1)
    assert (repo.head(), repo.status()) == before


def test_events_f_follows_a_run_and_head_ends_it_quietly(repo: Repo) -> None:
    follower = repo.start("events", "-f")
    got: list[bytes] = []
    reader = threading.Thread(target=lambda: got.extend(follower.stdout or ()))
    reader.start()
    time.sleep(0.5)
    repo.run(MIXED, "false", "--max-iters", "2")
    repo.wait_for(lambda: got and b'"dev.evolver.run.finished"' in got[-1])
    follower.send_signal(signal.SIGINT)
    reader.join(10)
    assert follower.wait(10) == 130 and b"".join(got) == repo.log.read_bytes()
    follower.communicate()
    piped = subprocess.run(
        ["bash", "-c", f"{shlex.join(EVOLVER)} events -f | head -3; exit ${{PIPESTATUS[0]}}"],
        cwd=repo.root, capture_output=True, timeout=30,
    )  # fmt: skip
    assert (piped.returncode, piped.stderr, len(piped.stdout.splitlines())) == (0, b"", 3)


def test_run_wait_starts_within_a_second_of_resume(repo: Repo) -> None:
    assert repo.run("echo x >> src/a.py", "false", "--rollback", "none").code == 3
    waiting = repo.start("run", "--wait", "--max-iters", "1", "--codegen", "true", "--validate", "true")
    time.sleep(1.5)
    assert waiting.poll() is None
    assert repo.evolver("resume", "--rollback", "hard").code == 0
    done = ended(waiting, 30)
    assert done.code == 1, done.text
    resumed, started = repo.events("run.resumed")[0]["time"], repo.events("run.started")[-1]["time"]
    seconds = [float(t[17:26]) + 60 * int(t[14:16]) for t in (resumed, started)]
    print(f"run --wait started {(seconds[1] - seconds[0]) % 3600:.3f} s after resume")
    busy = os.getloadavg()[0] > (os.cpu_count() or 1)
    assert (seconds[1] - seconds[0]) % 3600 < (5 if busy else 1)


def test_ssh_keygen_accepts_a_checkpoint_of_a_real_run_and_rejects_a_changed_one(repo: Repo, tmp_path: Path) -> None:
    if shutil.which("ssh-keygen") is None:
        pytest.skip("ssh-keygen is not installed")
    public = make_key(tmp_path / "key")
    env = {"EVOLVER_SIGN_KEY": str(tmp_path / "key")}
    assert repo.run(MIXED, "true", env=env).code == 0
    checkpoint = repo.events("audit.checkpoint")[-1]
    at = next(e for e in repo.events() if e["sequence"] == checkpoint["data"]["at_sequence"])
    assert at["hash"] == checkpoint["data"]["at_hash"] and at["type"] == "dev.evolver.run.finished"
    assert verify_by_ssh(tmp_path, checkpoint, public).returncode == 0
    for field, value in (("at_sequence", 3), ("at_hash", "0" * 64), ("origin", "evolver/x")):
        changed: dict[str, object] = {"data": {**checkpoint["data"], field: value}}
        assert verify_by_ssh(tmp_path, changed, public).returncode != 0
    (tmp_path / "key").chmod(0o644)
    refused = repo.run(MIXED, "true", env=env)
    assert refused.code == 2 and "read by others" in refused.err


def test_the_documented_shell_commands_verify_a_checkpoint_and_a_line_without_evolver(repo: Repo, tmp_path: Path) -> None:
    if shutil.which("ssh-keygen") is None or shutil.which("jq") is None:
        pytest.skip("needs ssh-keygen and jq")
    public = make_key(tmp_path / "key")
    repo.run(MIXED, "true", env={"EVOLVER_SIGN_KEY": str(tmp_path / "key")})
    (tmp_path / "allowed_signers").write_text(f'evolver namespaces="evolver-audit" {public}\n')
    shutil.copy(repo.log, tmp_path / "events.jsonl")
    signed, line = (b.split("```")[0] for b in (ROOT / "docs/audit.md").read_text().split("```sh\n")[1:3])
    done = subprocess.run(["bash", "-euc", signed], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0 and 'Good "evolver-audit" signature' in done.stdout, done
    summed = subprocess.run(["bash", "-euc", line], cwd=tmp_path, capture_output=True, text=True).stdout
    assert summed.split()[0] == repo.events()[6]["hash"]


# ---------------------------------------------------------------- pushes


@pytest.fixture
def remote(repo: Repo, tmp_path: Path) -> Path:
    bare = tmp_path / "remote.git"
    repo.sh(f"git init -q --bare {bare} && git remote add origin {bare} && git push -q origin main")
    return bare


def listed(bare: Path) -> str:
    return subprocess.run(["git", "for-each-ref"], cwd=bare, capture_output=True, text=True, check=True).stdout


def test_git_push_from_a_step_fails_while_push_is_blocked(repo: Repo, remote: Path) -> None:
    before = listed(remote)
    push = "echo x >> src/a.py && git commit -qam agent && git push -q origin main"
    done = repo.run(push, f"! git push -q {remote} HEAD:refs/heads/v")
    assert done.code == 1 and listed(remote) == before
    assert repo.events("step.finished")[-1]["data"]["exit_code"] != 0
    assert not repo.events("alert.pushed_attempt")


def test_a_pushed_attempt_raises_one_alert_and_the_remote_is_left_alone(repo: Repo, remote: Path, tmp_path: Path) -> None:
    (repo.root / "loops").mkdir()
    (repo.root / "loops/pusher.toml").write_text(
        '[codegen]\ncommand = "echo x >> src/a.py && git commit -qam agent && git push -q origin main:topic"\n'
        '[[validator]]\nname = "no"\ncommand = "false"\n[guard]\npush = "allow"\n'
        f'[alerts]\ncommand = "cat >> {tmp_path}/alerts"\nls_remote = true\n'
    )
    repo.sh("git add loops && git commit -qm loop && git push -q origin main")
    head, before = repo.head(), repo.sh("git rev-parse refs/remotes/origin/main")
    assert repo.evolver("run", "pusher", "--max-iters", "1").code == 1
    alerts = repo.events("alert.pushed_attempt")
    assert len(alerts) == 1 and alerts[0]["data"]["remote"] == "origin" and "topic" in str(alerts[0]["data"]["refs"])
    pushed = alerts[0]["data"]["commits"][0]
    assert f"{pushed} commit\trefs/heads/topic" in listed(remote)  # never a push, never a rewrite
    assert repo.head() == head and repo.sh("git rev-parse refs/remotes/origin/main") == before
    told = [json.loads(line)["type"] for line in (tmp_path / "alerts").read_text().splitlines()]
    assert told == ["dev.evolver.alert.pushed_attempt"]


# ---------------------------------------------------------------- secrets


def test_canary_secrets_appear_in_no_file_of_ours_and_in_no_sink(repo: Repo, tmp_path: Path, hermetic: Path) -> None:
    canaries = {
        "CANARY_TOKEN": "canary-token-4711", "MY_PASSWORD": 'canary"quoted\\4712', "DB_SECRET": "canary-é-4713",
        "DEPLOY_KEY": "-----BEGIN-----\ncanary-4714\n-----END-----",
    }  # fmt: skip
    say = "import os,sys,time; s=os.environ['CANARY_TOKEN']; print(s[:8], end='', flush=True); time.sleep(.2); print(s[8:])"
    half = f'{sys.executable} -c "{say}"'
    codegen = (
        f'{half}; echo "$MY_PASSWORD $DB_SECRET" >&2; echo "$DEPLOY_KEY"; echo "$CANARY_TOKEN" >> src/a.py; '
        f'env | sort; touch "file-$CANARY_TOKEN"; echo ghp"_"canary4715xyz'
    )
    (repo.root / "loops").mkdir()
    (repo.root / "loops/leaky.toml").write_text(
        f'[codegen]\ncommand = {json.dumps(codegen)}\n[[validator]]\nname = "no"\n'
        "command = 'echo \"assert failed: $CANARY_TOKEN $MY_PASSWORD\" | tee /dev/stderr; exit 1'\n"
        "[redact]\npatterns = ['ghp_[a-z0-9]+']\n"
        f'[[sink]]\nkind = "file"\npath = "{tmp_path}/sink.jsonl"\n[[sink]]\nkind = "command"\ncommand = "cat >> {tmp_path}/command"\n'
    )
    repo.sh("git add loops && git commit -qm loop")
    done = repo.evolver("run", "leaky", "--max-iters", "2", env=canaries)
    assert done.code == 1, done.text
    marks = [
        b"canary-token-4711",
        b"quoted\\4712",
        b"quoted\\\\4712",
        "canary-é-4713".encode(),
        b"canary-\\u00e9-4713",
        b"canary-4714",
        b"ghp_canary4715",
    ]
    # The vault holds the user's own files, which is what it is for; no secret is among them here.
    looked = 0
    for place in (repo.root / ".git/evolver", hermetic / "state", tmp_path / "sink.jsonl", tmp_path / "command"):
        for file in [place, *place.rglob("*")]:
            if file.is_file():
                looked += 1
                content = file.read_bytes() + os.fsencode(file)
                assert not [m for m in marks if m in content], file
    assert looked > 10 and (tmp_path / "sink.jsonl").read_text().count("rollback.finished") == 2
    assert not [m for m in marks if m in done.text.encode()]
    assert "[redacted]" in "".join(f.read_text() for f in (repo.root / ".git/evolver/steps").rglob("*") if f.is_file())


# ---------------------------------------------------------------- explain


def test_explain_retells_an_iteration_in_plain_sentences(repo: Repo) -> None:
    repo.run(MIXED, ["true", "exit 3"], "--rollback", "stash")
    told = repo.evolver("explain", "1")
    assert told.code == 0
    for words in (
        "started",
        repo.head()[:10],
        "The agent finished",
        "failed",
        "exit 3",
        "2 paths",
        "src/a.py",
        "stash entry",
        "found equal",
    ):
        assert words in told.out, (words, told.out)
    run_id = repo.events("run.started")[0]["runid"]
    assert repo.evolver("explain", f"{run_id}/1").out == told.out == repo.evolver("explain", "last").out
    for wrong in ("7", "x", "nope/1", ""):
        assert repo.evolver("explain", wrong).code == 2
    assert repo.run("echo x >> src/a.py", "true").code == 0
    assert "accepted as commit" in repo.evolver("explain").out
    assert repo.run("true", "true").code == 1
    assert "no change" in repo.evolver("explain").out
    assert repo.run("echo x >> src/a.py", "false", "--rollback", "none").code == 3
    assert "resume" in repo.evolver("explain").out


def test_what_a_sink_signs_with_is_known_to_no_step_and_to_no_log(repo: Repo, tmp_path: Path) -> None:
    """Its variable's name does not say that it is a secret; that a sink signs with it does."""
    secret = "whsec_" + "Q2FuYXJ5Q2FuYXJ5Q2FuYXJ5"
    (repo.root / "loops").mkdir()
    (repo.root / "loops/hook.toml").write_text(
        '[codegen]\ncommand = "env; echo x >> src/a.py"\n[[validator]]\nname = "no"\ncommand = "echo seen: ${HOOK:-nothing}; false"\n'
        '[[sink]]\nkind = "webhook"\nurl = "http://127.0.0.1:9/x"\nsecret_env = "HOOK"\ndrain = "100ms"\n'
    )
    repo.sh("git add loops && git commit -qm loop")
    done = repo.evolver("run", "hook", "--max-iters", "1", env={"HOOK": secret})
    assert done.code == 1 and secret not in done.text
    logs = "".join(f.read_text() for f in (repo.root / ".git/evolver/steps").rglob("*") if f.is_file())
    assert "seen: nothing" in logs and secret not in logs and "HOOK=" not in logs


@pytest.mark.parametrize("what", ["events.jsonl", "head", "events.jsonl.lock", "."])
def test_a_part_of_our_folder_that_an_attempt_deletes_comes_back(repo: Repo, what: str) -> None:
    before = repo.head(), repo.status()
    done = repo.run(
        f"echo x >> src/a.py; rm -rf .git/evolver/{what}" if what != "." else "echo x >> src/a.py; rm -rf .git/evolver"
    )
    assert done.code == 1 and "Traceback" not in done.text, done.text
    assert (repo.head(), repo.status()) == before
    assert "rollback.finished" in repo.kinds() and "alert.log_tampered" not in repo.kinds()
    assert verify(repo)[0] == 0
