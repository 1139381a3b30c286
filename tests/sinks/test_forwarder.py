"""Sinks behind the forwarder: nothing lost, nothing twice, and the loop never waits."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from evolver.definition import LoopDefinition, SinkSection
from evolver.durations import Duration
from evolver.errors import UsageError
from evolver.events.log import EventLog
from evolver.events.types import AlertStalled, RunHeld
from evolver.layout import Layout
from evolver.settings import Settings
from evolver.sinks.base import Configured
from evolver.sinks.forwarder import Forwarder
from evolver.sinks.registry import KINDS, build_sinks

from .receivers import HAS_RSYSLOG, Rsyslog, Web, free_port, web

RUN = "01900000-0000-7000-8000-000000000001"
SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
OUTAGE_S = 1.5  # the ten seconds of the contract are slept by the nightly variant


@pytest.fixture
def log(tmp_path: Path) -> Iterator[EventLog]:
    with EventLog.open(tmp_path / "state/events.jsonl", source="/test", segment_size=20_000) as opened:
        yield opened


def layout(root: Path) -> Layout:
    return Layout(root, root / ".git", root / ".git", root / "boat")


def configured(tmp_path: Path, *sections: SinkSection, **env: str) -> list[Configured]:
    definition = LoopDefinition(sink=sections)
    return build_sinks(definition, Settings({}), {**os.environ, **env}, directory=tmp_path, layout=layout(tmp_path))


def emit(log: EventLog, count: int, start: int = 0) -> list[str]:
    from evolver.events.types import RunPaused

    return [
        log.emit(RunPaused(from_="a", to="b", reason=f"event {n}"), run_id=RUN, iteration=n).id
        for n in range(start, start + count)
    ]


def ids_of(log: EventLog) -> list[str]:
    from evolver.events.reader import read

    return [event.id for event in read(log.path)]


def wait_for(condition: Callable[[], bool], seconds: float = 15) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.02)


def web_ids(server: Web) -> list[str]:
    return [json.loads(body)["id"] for _, _, body in server.got]


# ---------------------------------------------------------------- every sink gets everything


def test_a_file_gets_every_line_as_it_stands(log: EventLog, tmp_path: Path) -> None:
    forwarder = Forwarder(log, configured(tmp_path, SinkSection(kind="file", path="copy.jsonl")))
    forwarder.start()
    emit(log, 50)
    assert forwarder.drain() == ()
    from evolver.events import paths
    from evolver.events.verify import verify

    assert (tmp_path / "copy.jsonl").read_bytes() == b"".join(file.read_bytes() for file in paths.segments(log.path))
    assert verify([tmp_path / "copy.jsonl"]).status == "intact"  # a forwarded copy is evidence of its own


def test_a_restart_goes_on_at_the_cursor(log: EventLog, tmp_path: Path) -> None:
    sinks = configured(tmp_path, SinkSection(kind="file", path="copy.jsonl", name="copy"))
    for start in (0, 20, 40):
        emit(log, 5, start)  # while no forwarder runs
        forwarder = Forwarder(log, sinks)
        forwarder.start()
        emit(log, 15, start + 5)
        assert forwarder.drain() == ()
    got = [json.loads(line)["id"] for line in (tmp_path / "copy.jsonl").read_text().splitlines()]
    assert got == ids_of(log)[-len(got) :] and len(got) == len(set(got)) and len(got) >= 55


def test_filters_by_type_and_severity(log: EventLog, tmp_path: Path) -> None:
    sections = (
        SinkSection(kind="file", path="alerts", severity="alert"),
        SinkSection(kind="file", path="paused", types=("run.*",)),
        SinkSection(kind="file", path="warnings", severity="warning", types=("segment.*",)),
    )
    forwarder = Forwarder(log, configured(tmp_path, *sections))
    forwarder.start()
    emit(log, 3)
    log.emit(AlertStalled(condition="c", detail="d"), run_id=RUN)
    assert forwarder.drain() == ()
    assert (tmp_path / "alerts").read_text().count("alert.stalled") == 1 == len((tmp_path / "alerts").read_text().splitlines())
    assert len((tmp_path / "paused").read_text().splitlines()) == 3
    assert not (tmp_path / "warnings").exists()


def test_a_command_gets_each_event_on_stdin(log: EventLog, tmp_path: Path) -> None:
    command = f"cat >> {tmp_path}/got; printf '%s\\n' $EVOLVER_EVENT_TYPE >> {tmp_path}/types"
    forwarder = Forwarder(log, configured(tmp_path, SinkSection(kind="command", command=command)))
    forwarder.start()
    emit(log, 4)
    assert forwarder.drain() == ()
    assert [json.loads(line)["id"] for line in (tmp_path / "got").read_text().splitlines()] == ids_of(log)
    assert (tmp_path / "types").read_text().split() == ["segment.opened"] + ["run.paused"] * 4


def test_a_command_that_always_fails_becomes_a_gap(log: EventLog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("evolver.sinks.forwarder.FIRST_WAIT_S", 0.01)
    sinks = configured(tmp_path, SinkSection(kind="command", command=("false",), types=("run.*",), name="broken"))
    forwarder = Forwarder(log, sinks)
    forwarder.start()
    emit(log, 2)
    assert forwarder.drain(20_000) == ("sink broken never got 2 events (false: exit 1); `sink.gap` in the stream names them",)
    gaps = [json.loads(line)["data"] for line in log.path.read_text().splitlines() if "sink.gap" in line]
    assert [(g["sink"], g["dropped"], g["first_sequence"], g["last_sequence"]) for g in gaps] == [("broken", 2, 2, 3)]
    assert "exit 1" in gaps[0]["reason"]


def test_stdout_gets_lines_and_a_closed_one_is_a_single_gap(tmp_path: Path) -> None:
    code = """
import sys
from pathlib import Path
from evolver.events.log import EventLog
from evolver.events.types import RunPaused
from evolver.sinks.base import Configured
from evolver.sinks.files import StdoutSink
from evolver.sinks.forwarder import Forwarder
log = EventLog.open(Path(sys.argv[1]), source="/t")
forwarder = Forwarder(log, [Configured("out", StdoutSink, replay=False)])
forwarder.start()
for n in range(200): log.emit(RunPaused(from_="a", to="b", reason="x" * 1000))
print(forwarder.drain(), file=sys.stderr)
"""
    whole = subprocess.run([sys.executable, "-c", code, str(tmp_path / "a/events.jsonl")], capture_output=True, timeout=30)
    assert whole.stdout == (tmp_path / "a/events.jsonl").read_bytes() and whole.stderr == b"()\n"
    path = tmp_path / "b/events.jsonl"
    cut = subprocess.run(
        f"{sys.executable} -c '{code}' {path} 2>{tmp_path}/err | head -2", shell=True, capture_output=True, timeout=30
    )
    assert len(cut.stdout.splitlines()) == 2
    assert path.read_text().count('"type":"dev.evolver.sink.gap"') == 1


# ---------------------------------------------------------------- webhook


def test_a_webhook_is_signed_by_the_standard(log: EventLog, tmp_path: Path) -> None:
    from standardwebhooks.webhooks import Webhook

    with web() as server:
        section = SinkSection(kind="webhook", url=server.url + "/hook", secret_env="HOOK_SECRET")
        forwarder = Forwarder(log, configured(tmp_path, section, HOOK_SECRET=SECRET))
        forwarder.start()
        emit(log, 3)
        assert forwarder.drain() == ()
        assert web_ids(server) == ids_of(log)
        for path, headers, body in server.got:
            assert path == "/hook" and headers["webhook-id"] == json.loads(body)["id"]
            assert headers["content-type"].startswith("application/cloudevents+json")
            Webhook(SECRET).verify(body, headers)
            with pytest.raises(Exception, match="No matching signature"):
                Webhook("whsec_AAAA").verify(body, headers)


@pytest.mark.parametrize("mood", ["500", "hang", "reset", "redirect", "429", "404"])
def test_every_event_reaches_a_webhook_exactly_once_after_an_outage(
    log: EventLog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mood: str
) -> None:
    monkeypatch.setattr("evolver.sinks.webhook.TIMEOUT_S", 0.4)
    with web() as server:
        forwarder = Forwarder(log, configured(tmp_path, SinkSection(kind="webhook", url=server.url + "/hook")))
        forwarder.start()
        emit(log, 5)
        wait_for(lambda: len(server.got) == 6)
        server.mood = mood
        begun = time.monotonic()
        emit(log, 10)
        assert time.monotonic() - begun < 1  # the loop does not wait
        time.sleep(OUTAGE_S)
        assert mood == "redirect" or len(server.got) == 6
        server.mood = "ok"
        emit(log, 5)
        assert forwarder.drain(10_000) == ()
        assert web_ids(server) == ids_of(log)
        assert mood != "redirect" or any(path == "/moved/hook" for path, _, _ in server.got)


def test_what_a_webhook_refuses_for_good_is_a_gap_and_410_ends_it(log: EventLog, tmp_path: Path) -> None:
    with web() as server:
        forwarder = Forwarder(
            log, configured(tmp_path, SinkSection(kind="webhook", url=server.url, name="hook", types=("run.*",)))
        )
        forwarder.start()
        server.mood = "400"
        emit(log, 3)
        wait_for(lambda: "sink.gap" in log.path.read_text())
        server.mood = "ok"
        emit(log, 2)
        wait_for(lambda: len(server.got) == 2)
        server.mood = "410"
        emit(log, 5)
        assert [words.partition(" (")[0] for words in forwarder.drain()] == ["sink hook never got 4 events"]
        tried = server.tried
    gaps = [json.loads(line)["data"] for line in log.path.read_text().splitlines() if "sink.gap" in line]
    assert sum(g["dropped"] for g in gaps) == 4 and "HTTP 410" in gaps[-1]["reason"] and tried == 6


def test_a_server_that_is_away_is_caught_up_with_by_the_next_run(log: EventLog, tmp_path: Path) -> None:
    port = free_port()
    sinks = configured(tmp_path, SinkSection(kind="webhook", url=f"http://127.0.0.1:{port}/hook", drain=Duration(300)))
    forwarder = Forwarder(log, sinks)
    forwarder.start()
    emit(log, 10)
    begun = time.monotonic()
    late = forwarder.drain()
    assert len(late) == 1 and "next run" in late[0] and time.monotonic() - begun < 1.5
    with web(port) as server:
        again = Forwarder(log, sinks)
        again.start()
        emit(log, 3)
        assert again.drain(10_000) == ()
        assert web_ids(server) == ids_of(log)


def test_a_hung_server_delays_neither_loop_nor_exit(tmp_path: Path) -> None:
    code = """
import sys, time
from pathlib import Path
from evolver.events.log import EventLog
from evolver.events.types import RunPaused
from evolver.sinks.base import Configured
from evolver.sinks.webhook import WebhookSink
from evolver.sinks.forwarder import Forwarder
log = EventLog.open(Path(sys.argv[1]), source="/t")
forwarder = Forwarder(log, [Configured("hung", lambda: WebhookSink(sys.argv[2], None), drain_ms=200)])
forwarder.start()
for n in range(20): log.emit(RunPaused(from_="a", to="b"))
print(forwarder.drain())
"""
    with web(hang_s=5) as server:
        server.mood = "hang"
        begun = time.monotonic()
        done = subprocess.run(
            [sys.executable, "-c", code, str(tmp_path / "e.jsonl"), server.url], capture_output=True, timeout=30
        )
        assert done.returncode == 0 and b"hung" in done.stdout and done.stderr == b"", done
        assert time.monotonic() - begun < 4


# ---------------------------------------------------------------- syslog


@pytest.mark.skipif(not HAS_RSYSLOG, reason="rsyslog is not installed (apt-get install rsyslog)")
@pytest.mark.parametrize("protocol", ["tcp", "udp"])
def test_rsyslog_receives_every_event_exactly_once_after_an_outage(log: EventLog, tmp_path: Path, protocol: str) -> None:
    syslog = Rsyslog(tmp_path, protocol)
    section = SinkSection(kind="syslog", host="127.0.0.1", port=syslog.port, protocol=protocol)  # type: ignore[arg-type]
    forwarder = Forwarder(log, configured(tmp_path, section))
    syslog.start()
    try:
        forwarder.start()
        emit(log, 10)
        wait_for(lambda: len(syslog.messages()) == len(ids_of(log)))
        if protocol == "tcp":  # over UDP nobody learns of an outage in time, which is what UDP is
            syslog.stop()
            emit(log, 10)
            time.sleep(OUTAGE_S)
            syslog.start()
        log.emit(AlertStalled(condition="c", detail="d\nnext line"), run_id=RUN)
        emit(log, 10)
        assert forwarder.drain(15_000) == ()
        expected = ids_of(log)
        wait_for(lambda: len(syslog.messages()) >= len(expected))
    finally:
        syslog.stop()
    rows = [line.split("|", 4) for line in syslog.messages()]
    assert [json.loads(row[4].lstrip("\ufeff"))["id"] for row in rows] == expected
    assert {row[1] for row in rows} == {"evolver"} and rows[1][2] == "run.paused"
    assert rows[1][0] == str(13 * 8 + 6) and next(r for r in rows if r[2] == "alert.stalled")[0] == str(13 * 8 + 1)
    assert f'id="{expected[1]}"' in rows[1][3] and f'runid="{RUN}"' in rows[1][3]


def test_octet_counting_frames_by_bytes(log: EventLog, tmp_path: Path) -> None:
    """A plain TCP listener parses the frames, with a message that holds newlines and two-byte characters."""
    got = bytearray()
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            connection, _ = listener.accept()
            with connection:
                while data := connection.recv(65536):
                    got.extend(data)

        thread = threading.Thread(target=serve)
        thread.start()
        port = listener.getsockname()[1]
        forwarder = Forwarder(log, configured(tmp_path, SinkSection(kind="syslog", port=port, protocol="tcp")))
        forwarder.start()
        log.emit(AlertStalled(condition="é", detail="a\nb"), run_id=RUN)
        assert forwarder.drain() == ()
        thread.join(5)
    frames = []
    rest = bytes(got)
    while rest:
        size, _, rest = rest.partition(b" ")
        frames.append(rest[: int(size)])
        rest = rest[int(size) :]
    assert len(frames) == 2 and all(frame.startswith(b"<") and b">1 20" in frame for frame in frames)
    assert json.loads(frames[1].split(b"\xef\xbb\xbf", 1)[1])["data"]["condition"] == "é"


# ---------------------------------------------------------------- OTLP


def otlp_ids(server: Web) -> list[str]:
    """Decoded from the real protobuf."""
    from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest

    found = []
    for path, headers, body in server.got:
        assert path == "/v1/logs" and headers["content-type"] == "application/x-protobuf"
        request = ExportLogsServiceRequest.FromString(body)
        for resource in request.resource_logs:
            assert any(a.key == "service.name" and a.value.string_value == "evolver" for a in resource.resource.attributes)
            for scope in resource.scope_logs:
                for record in scope.log_records:
                    event = json.loads(record.body.string_value)
                    attributes = {a.key: a.value for a in record.attributes}
                    assert attributes["event.id"].string_value == event["id"]
                    assert record.event_name == event["type"] and record.severity_text == event["severity"]
                    moment = datetime.fromtimestamp(record.time_unix_nano / 1e9, UTC)
                    assert abs((moment - datetime.fromisoformat(event["time"])).total_seconds()) < 0.001
                    found.append(event["id"])
    return found


def test_an_otlp_receiver_decodes_every_event_exactly_once_after_an_outage(
    log: EventLog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("opentelemetry.exporter.otlp.proto.http", reason="the extra evolver[otlp] is not installed")
    monkeypatch.setattr("evolver.sinks.otlp.TIMEOUT_S", 1.0)
    port = free_port()
    forwarder = Forwarder(log, configured(tmp_path, SinkSection(kind="otlp", url=f"http://127.0.0.1:{port}")))
    with web(port) as server:
        forwarder.start()
        emit(log, 5)
        wait_for(lambda: len(server.got) == 6)
        server.mood = "500"
        emit(log, 5)
        time.sleep(OUTAGE_S)
        server.mood = "ok"
        wait_for(lambda: len(server.got) == 11)
        first = otlp_ids(server)
    emit(log, 5)  # nobody listens
    time.sleep(OUTAGE_S / 2)
    with web(port) as server:
        emit(log, 2)
        assert forwarder.drain(15_000) == ()
        assert first + otlp_ids(server) == ids_of(log)


# ---------------------------------------------------------------- alerts


def held(number: int) -> RunHeld:
    return RunHeld(
        from_="rolling_back", to="held", iteration_id=f"{RUN}/{number}", rollback_mode="none", pre_ref="p", post_ref=None,
        reason="tests: exit 1", exit_code=3,
    )  # fmt: skip


def test_the_alerts_command_gets_alerts_alone(log: EventLog, tmp_path: Path) -> None:
    from evolver.definition import AlertsSection

    definition = LoopDefinition(alerts=AlertsSection(command=f"cat >> {tmp_path}/alerts"))
    sinks = build_sinks(definition, Settings({}), os.environ, directory=tmp_path, layout=layout(tmp_path))
    forwarder = Forwarder(log, sinks)
    forwarder.start()
    emit(log, 3)
    log.emit(held(3), run_id=RUN, iteration=3)
    assert forwarder.drain() == ()
    assert [json.loads(line)["type"] for line in (tmp_path / "alerts").read_text().splitlines()] == ["dev.evolver.run.held"]


@pytest.mark.parametrize("tool", ["gh", "glab"])
def test_an_issue_on_the_tracker_once_per_incident(log: EventLog, tmp_path: Path, tool: str) -> None:
    """The tool is a stand-in that writes down what it was called with: the real one needs a network."""
    from evolver.definition import AlertsSection

    tools = tmp_path / "tools"
    tools.mkdir()
    (tools / tool).write_text(f'#!/bin/sh\nprintf "%s\\n" "$@" >> {tmp_path}/called\necho ---- >> {tmp_path}/called\n')
    (tools / tool).chmod(0o755)
    (tmp_path / ".git/evolver").mkdir(parents=True)
    env = {**os.environ, "PATH": f"{tools}:/usr/bin:/bin"}
    definition = LoopDefinition(alerts=AlertsSection(tracker=True))
    for _ in range(2):  # two runs
        sinks = build_sinks(definition, Settings({}), env, directory=tmp_path, layout=layout(tmp_path))
        forwarder = Forwarder(log, sinks)
        forwarder.start()
        log.emit(held(3), run_id=RUN, iteration=3)
        log.emit(held(3), run_id=RUN, iteration=3)
        assert forwarder.drain() == ()
    called = (tmp_path / "called").read_text()
    assert called.count("----") == 1 and called.startswith("issue\ncreate\n--title\nevolver: run held in iteration 3")
    assert "tests: exit 1" in called and ("--description" in called) == (tool == "glab")


def test_without_a_tracker_tool_nothing_happens(log: EventLog, tmp_path: Path) -> None:
    from evolver.definition import AlertsSection

    env = {**os.environ, "PATH": str(tmp_path)}
    sinks = build_sinks(
        LoopDefinition(alerts=AlertsSection(tracker=True)), Settings({}), env, directory=tmp_path, layout=layout(tmp_path)
    )
    forwarder = Forwarder(log, sinks)
    forwarder.start()
    log.emit(held(3), run_id=RUN, iteration=3)
    assert forwarder.drain() == () and "sink.gap" not in log.path.read_text()


# ---------------------------------------------------------------- configuration


def test_every_kind_of_the_definition_is_in_the_registry() -> None:
    import typing

    assert set(KINDS) == set(typing.get_args(typing.get_type_hints(SinkSection)["kind"]))


@pytest.mark.parametrize(
    "section",
    [
        SinkSection(kind="file"),
        SinkSection(kind="webhook"),
        SinkSection(kind="webhook", url="ftp://example.invalid"),
        SinkSection(kind="webhook", url="http://example.invalid", secret_env="NOT_SET"),
        SinkSection(kind="otlp", url="example.invalid:4318"),
        SinkSection(kind="command"),
    ],
    ids=lambda s: f"{s.kind}-{s.url}",
)
def test_a_wrong_sink_is_a_usage_error_before_anything_starts(tmp_path: Path, section: SinkSection) -> None:
    with pytest.raises(UsageError):
        configured(tmp_path, section)


def test_two_sinks_of_one_name_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="two sinks"):
        configured(tmp_path, SinkSection(kind="file", path="a", name="x"), SinkSection(kind="file", path="b", name="x"))


def test_sinks_from_the_environment(tmp_path: Path) -> None:
    from evolver.settings import read

    env = {
        "EVOLVER_SINK_FILE": str(tmp_path / "f"), "EVOLVER_SINK_STDOUT": "1", "EVOLVER_SINK_SYSLOG": "udp://127.0.0.1:5514",
        "EVOLVER_SINK_WEBHOOK": "http://127.0.0.1:1/x", "EVOLVER_SINK_OTLP": "http://127.0.0.1:4318", "EVOLVER_SINK_COMMAND": "cat",
    }  # fmt: skip
    found = build_sinks(LoopDefinition(), read(env, None), env, directory=tmp_path, layout=layout(tmp_path))
    assert [s.name for s in found] == [f"env-{kind}" for kind in ("file", "stdout", "syslog", "webhook", "otlp", "command")]
    bad = {"EVOLVER_SINK_SYSLOG": "127.0.0.1:514"}
    with pytest.raises(UsageError, match="EVOLVER_SINK_SYSLOG"):
        build_sinks(LoopDefinition(), read(bad, None), bad, directory=tmp_path, layout=layout(tmp_path))


def test_no_sink_cursor_or_name_holds_a_secret(log: EventLog, tmp_path: Path) -> None:
    with web() as server:
        section = SinkSection(kind="webhook", url=f"{server.url}/hook/canary-in-url", secret_env="HOOK_SECRET")
        forwarder = Forwarder(log, configured(tmp_path, section, HOOK_SECRET=SECRET))
        forwarder.start()
        server.mood = "400"
        emit(log, 2)
        (told,) = forwarder.drain()
    assert "HTTP 400" in told and "canary-in-url" not in told
    for file in (tmp_path / "state").rglob("*"):
        assert file.is_dir() or (b"canary-in-url" not in file.read_bytes() and SECRET[6:].encode() not in file.read_bytes())
