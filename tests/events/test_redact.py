"""Secrets are replaced wherever they come from and however they are cut."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest

from evolver.definition import RedactSection
from evolver.errors import UsageError
from evolver.events.log import EventLog
from evolver.events.types import StepFinished
from evolver.redact import Redactor
from evolver.secret_forms import is_secret_name

from .streams import lines, pause

SECRET = "s3cr3t-canary-value"


@pytest.mark.parametrize(
    "name", ["API_KEY", "GITHUB_TOKEN", "clientSecret", "DB_PASSWORD", "PGPASSWORD", "AWS_SECRET_ACCESS_KEY"]
)
def test_names_that_tell_a_secret(name: str) -> None:
    assert is_secret_name(name)


@pytest.mark.parametrize("name", ["PATH", "HOME", "GIT_CONFIG_KEY_0", "SSH_AUTH_SOCK", "KEYBOARD_LAYOUT", "XKEYSYMDB"])
def test_names_that_do_not(name: str) -> None:
    assert not is_secret_name(name)


def test_values_that_stand_everywhere_are_not_taken_for_secrets() -> None:
    redactor = Redactor.from_environment({"USE_TOKEN": "true", "TOKEN_COUNT": "12", "A_KEY": "", "B_KEY": "      "})
    assert redactor.redact_bytes(b"true 12 and more") == b"true 12 and more" and not redactor


def test_named_variables_patterns_and_git_headers() -> None:
    env = {
        "PLAIN": "hunter2-plain",
        "GIT_CONFIG_KEY_0": "http.extraHeader",
        "GIT_CONFIG_VALUE_0": "Authorization: Basic dXNlcg==",
        "MY_TOKEN": SECRET,
    }
    redactor = Redactor.from_environment(env, RedactSection(env=("PLAIN",), patterns=(r"ghp_\w+", "(?:é)+")))
    text = f"hunter2-plain ghp_abc123 éé {SECRET}{SECRET} Authorization: Basic dXNlcg=="
    assert redactor.redact_text(text) == " ".join(["[redacted]"] * 3 + ["[redacted]" * 2, "[redacted]"])


@pytest.mark.parametrize("pattern", ["(", "a*", ""])
def test_a_bad_pattern_is_a_usage_error(pattern: str) -> None:
    with pytest.raises(UsageError):
        Redactor(patterns=[pattern])


def test_escaped_forms_are_found_inside_json() -> None:
    secret = 'quo"te\\back/slash\nline-é'
    redactor = Redactor([secret])
    for text in (
        json.dumps({"a": secret}),
        json.dumps({"a": secret}, ensure_ascii=False),
        json.dumps(secret).replace("/", "\\/"),
        secret,
    ):
        assert b"slash" not in redactor.redact_bytes(text.encode())


def test_a_secret_inside_another_is_covered_whole() -> None:
    assert Redactor(["abcdef", "cdefgh", "defg"]).redact_bytes(b"xabcdefghy") == b"x[redacted]y"


def test_streamed_output_equals_the_whole_however_it_is_cut() -> None:
    generator = random.Random(7)
    redactor = Redactor([SECRET, "other-secret"], [r"tok_[a-z]{3,40}"])
    text = b"".join(
        generator.choice(
            [b"line\n", SECRET.encode(), b"other-secret", b"tok_abcdefgh ", b"x" * 50, SECRET[:9].encode(), b"\0\xff"]
        )
        for _ in range(300)
    )
    whole = redactor.redact_bytes(text)
    assert SECRET.encode() not in whole
    for _ in range(150):
        stream, out, at = redactor.stream(), [], 0
        while at < len(text):
            size = generator.choice([1, 2, 3, 7, 19, 100, 5000])
            out.append(stream.feed(text[at : at + size]))
            at += size
        assert b"".join([*out, stream.flush()]) == whole


def test_every_split_of_a_secret_in_two_chunks() -> None:
    redactor = Redactor([SECRET])
    data = f"before {SECRET} after".encode()
    for cut in range(len(data)):
        stream = redactor.stream()
        assert stream.feed(data[:cut]) + stream.feed(data[cut:]) + stream.flush() == b"before [redacted] after"


def test_a_stream_without_newline_is_redacted_in_bounded_memory_and_time() -> None:
    redactor = Redactor([SECRET], [r"key=\S+"])
    stream, size, longest = redactor.stream(), 0, 0
    chunk = b"x" * 65536
    for _ in range(200):
        size += len(stream.feed(chunk))
        longest = max(longest, len(stream._held))
    assert size + len(stream.flush()) == 200 * 65536 and longest <= 80 << 10
    endless = redactor.stream()
    endless.feed(b"key=")
    assert sum(len(endless.feed(chunk)) for _ in range(20)) > 0  # a pattern that never ends does not hold everything back


def test_no_event_holds_a_secret_and_the_line_stays_json(tmp_path: Path) -> None:
    redactor = Redactor([SECRET, 'with"quote'], [r'","[a-z]+":"'])
    with EventLog.open(tmp_path / "events.jsonl", source="/test", redactor=redactor) as log:
        log.emit(pause(f"failed with {SECRET}"))
        log.emit(
            StepFinished(
                iteration_id="r/1", step="validate", name=f"check {SECRET}", judgement="fail", reason='with"quote', exit_code=1,
                duration_ms=1, log=f"/logs/{SECRET}.log", log_bytes=0,
            )
        )  # fmt: skip
    for line in lines(log.path):
        assert SECRET.encode() not in line and json.loads(line)
    assert json.loads(lines(log.path)[-1])["data"]["reason"] == "[redacted]"
