"""The forms in which a secret may be printed, the names that tell one, and patterns that look behind."""

from __future__ import annotations

import base64
import json
import os
import re
import shutil
from pathlib import Path
from urllib.parse import quote, quote_plus, urlencode

import pytest

from evolver.definition import RedactSection
from evolver.redact import Redactor
from evolver.secret_forms import is_secret_name
from support import Repo

SECRET = "hunter2/very+Secret=42!é x"


def lower(text: str) -> str:
    return re.sub("%..", lambda match: match[0].lower(), text)


@pytest.fixture
def repo(tmp_path: Path) -> Repo:
    return Repo.make(tmp_path / "repo")


@pytest.mark.parametrize(
    "printed",
    [
        quote(SECRET, safe=""),
        lower(quote(SECRET, safe="")),
        quote(SECRET),
        quote(SECRET, safe="!*'()~"),
        quote_plus(SECRET),
        urlencode({"password": SECRET, "next": "1"}),
        json.dumps({"a": SECRET}),
        json.dumps(SECRET, ensure_ascii=False).replace("/", "\\/"),
        base64.b64encode(SECRET.encode()).decode(),
        base64.urlsafe_b64encode(SECRET.encode()).decode(),
    ],
)
def test_a_secret_is_found_as_encoders_write_it(printed: str) -> None:
    shown = Redactor([SECRET]).redact_text(f"<{printed}>")
    assert "[redacted]" in shown and "hunter2" not in shown
    rest = shown.replace("[redacted]", "").strip("<>")
    assert len(rest) <= 4 or "=" in rest or '"' in rest, shown


@pytest.mark.parametrize("before", ["", "u", "us", "user:", "x-access-token:"])
@pytest.mark.parametrize("after", ["", "\n", "ab", "\0\0\0"])
def test_a_secret_is_found_wherever_it_lies_in_something_encoded(before: str, after: str) -> None:
    value = "ghs_16C7e42F292c6912E7710c838347Ae178B4a"
    encoded = base64.b64encode(f"{before}{value}{after}".encode()).decode()
    shown = Redactor([value]).redact_text(f"authorization: Basic {encoded}")
    left = shown.removeprefix("authorization: Basic ").replace("[redacted]", "")
    hidden = len(encoded) - len(left)
    assert hidden >= len(value) // 3 * 4 - 4, shown  # all but what shares a group with its neighbours


def test_the_password_of_a_url_that_was_named_is_hidden_alone_as_well() -> None:
    env = {"DATABASE_URL": "postgres://scott:tiger%2Fpw-99@db/x", "OTHER_URL": "postgres://a:not-named-1@db"}
    redactor = Redactor.from_environment(env, RedactSection(env=("DATABASE_URL",)))
    assert redactor.redact_text("password tiger/pw-99, tiger%2Fpw-99, db, not-named-1") == (
        "password [redacted], [redacted], db, not-named-1"
    )


def test_what_is_secret_in_an_injected_header_is_hidden_without_its_name() -> None:
    env = {"GIT_CONFIG_KEY_0": "http.https://x/.extraheader", "GIT_CONFIG_VALUE_0": "Authorization: Bearer abcDEF123456"}
    assert Redactor.from_environment(env).redact_text("sent Bearer abcDEF123456") == "sent Bearer [redacted]"


@pytest.mark.parametrize(
    "name",
    ["DB_PASS", "PASS", "MYSQL_PWD", "GITHUB_PAT", "REDIS_AUTH", "KEYRING_CRYPTFILE_PASSWORD", "SSH_KEY_PATH_PASSPHRASE", "A_KEY_DIR_TOKEN"],
)  # fmt: skip
def test_names_that_tell_a_secret_also_behind_a_word_that_tells_none(name: str) -> None:
    assert is_secret_name(name)


@pytest.mark.parametrize("name", ["PWD", "OLDPWD", "PATH", "COMPASS", "SSH_KEY_PATH", "KEYRING_BACKEND", "XAUTHORITY", "PASSENGER_APP"])
def test_names_that_only_look_the_part(name: str) -> None:
    assert not is_secret_name(name)


@pytest.mark.parametrize("pattern", [r"(?<=token=)\S+", r"\bsk-[a-z0-9]+\b", r"(?m)^key .+$"])
def test_a_pattern_that_looks_behind_matches_wherever_the_output_is_cut(pattern: str) -> None:
    redactor = Redactor((), [pattern])
    data = b"x" * 4400 + b"\nkey hunter2hunter2\n token=hunter2hunter2 sk-hunter2\n" + b"y" * 6000
    whole = redactor.redact_bytes(data)
    for cut in range(4300, 8700):
        stream = redactor.stream()
        assert stream.feed(data[:cut]) + stream.feed(data[cut:]) + stream.flush() == whole, cut


@pytest.mark.skipif(shutil.which("base64") is None, reason="base64 encodes")
def test_encoded_canaries_appear_in_no_file_of_a_run(repo: Repo, tmp_path: Path, hermetic: Path) -> None:
    secret = "canary/tok+en=4711 end"
    env = {"DB_PASS": secret, "REGISTRY_AUTH": "canary-user:canary-4712"}
    encoded = [quote(secret, safe=""), base64.b64encode(secret.encode()).decode()[:24], "canary-4712", "canary/tok"]
    (repo.root / ".env").write_text("EVOLVER_SINK_WEBHOOK_SECRET=whsec_Q2FuYXJ5Q2FuYXJ5Q2FuYXJ5\n")
    repo.sh("echo .env >> .gitignore && git commit -qam ignore")
    say = (
        f"echo 'url: https://u:{encoded[0]}@h/'; printf %s \"$DB_PASS\" | base64; cat .env; echo x >> src/a.py; "
        'printf "a:%s" "$REGISTRY_AUTH" | base64; echo "$REGISTRY_AUTH" >&2'
    )
    encoded += ["Q2FuYXJ5Q2FuYXJ5", base64.b64encode(b"a:canary-user:canary-4712").decode()[8:28]]
    assert repo.run(say, "echo 'refused: canary%2Ftok%2B''en%3D4711%20end'; exit 1", env=env).code == 1
    looked = 0
    for place in (repo.root / ".git/evolver", hermetic / "state"):
        for file in place.rglob("*"):
            if file.is_file() and "vault" not in file.parts:
                looked += 1
                content = file.read_bytes() + os.fsencode(file)
                assert not [mark for mark in encoded if mark.encode() in content], file
    assert looked > 5


def test_what_a_loop_file_gives_to_its_steps_is_known(repo: Repo) -> None:
    (repo.root / "loops").mkdir()
    (repo.root / "loops/given.toml").write_text(
        '[codegen]\ncommand = "env; echo canary-4714; echo x >> src/a.py"\nenv = { MODEL_API_KEY = "canary-4714" }\n'
        '[[validator]]\nname = "no"\ncommand = "env; exit 1"\nenv = { OTHER_TOKEN = "canary-4715" }\n'
    )
    repo.sh("git add loops && git commit -qm loop")
    assert repo.evolver("run", "given", "--max-iters", "1").code == 1
    steps = [file.read_text() for file in (repo.root / ".git/evolver/steps").rglob("*") if file.is_file()]
    assert "MODEL_API_KEY=[redacted]" in "".join(steps) and "OTHER_TOKEN=[redacted]" in "".join(steps)
    found = [file for file in (repo.root / ".git/evolver").rglob("*") if file.is_file() and b"canary-4714" in file.read_bytes()]
    assert found == []
