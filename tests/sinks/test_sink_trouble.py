"""Receivers that answer oddly, copies that a kill left half written: nothing lost, nothing twice, no thread that dies unheard."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import socket
import ssl
import subprocess
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from evolver.definition import SinkSection
from evolver.durations import Duration
from evolver.events import paths
from evolver.events.log import EventLog
from evolver.events.verify import verify
from evolver.sinks.base import Configured
from evolver.sinks.forwarder import Forwarder

from .test_forwarder import configured, emit, ids_of, log, wait_for

__all__ = ["log"]  # the fixture


# ---------------------------------------------------------------- HTTP


@contextlib.contextmanager
def answering(status: int, headers: dict[str, str]) -> Iterator[tuple[str, list[str], list[int], threading.Event]]:
    """A server that answers so until the event is set, then takes everything: url, ids taken, count of requests, the event."""
    taken: list[str] = []
    requests: list[int] = []
    healed = threading.Event()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, format: str, *args: Any) -> None:
            pass

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers.get("content-length", 0)))
            requests.append(1)
            well = healed.is_set()
            if well:  # before the answer: whoever has that looks here at once
                taken.append(json.loads(body)["id"])
            self.send_response(200 if well else status)
            for name, value in ({} if well else headers).items():
                self.send_header(name, value)
            self.send_header("content-length", "0")
            self.end_headers()

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}/hook", taken, requests, healed
    finally:
        server.shutdown()
        server.server_close()


@pytest.mark.parametrize(
    ("status", "headers"),
    [
        (302, {}),
        (304, {}),
        (302, {"location": "http://[no"}),
        (302, {"location": "//"}),
        (429, {"retry-after": "inf"}),
        (503, {"retry-after": "1e400"}),
        (503, {"retry-after": "soon"}),
    ],
    ids=str,
)
def test_an_odd_answer_is_an_outage_like_any_other(
    log: EventLog, tmp_path: Path, status: int, headers: dict[str, str]
) -> None:
    with answering(status, headers) as (url, taken, requests, healed):
        forwarder = Forwarder(log, configured(tmp_path, SinkSection(kind="webhook", url=url)))
        forwarder.start()
        emit(log, 3)
        wait_for(lambda: len(requests) > 1)
        healed.set()
        emit(log, 2, 3)
        assert forwarder.drain(10_000) == ()
        assert taken == ids_of(log)


def test_an_endless_answer_is_hung_up_on_and_nothing_comes_twice(log: EventLog, tmp_path: Path) -> None:
    taken: list[str] = []
    sent: list[int] = []

    class Handler(BaseHTTPRequestHandler):
        def log_message(self, format: str, *args: Any) -> None:
            pass

        def do_POST(self) -> None:
            taken.append(json.loads(self.rfile.read(int(self.headers["content-length"])))["id"])
            self.send_response(200)
            self.end_headers()
            sent.append(0)
            with contextlib.suppress(OSError):
                while True:
                    sent[-1] += self.wfile.write(bytes(65536))

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        url = f"http://127.0.0.1:{server.server_address[1]}/hook"
        forwarder = Forwarder(log, configured(tmp_path, SinkSection(kind="webhook", url=url)))
        forwarder.start()
        emit(log, 3)
        assert forwarder.drain(10_000) == ()
    finally:
        server.shutdown()
        server.server_close()
    assert taken == ids_of(log)
    assert max(sent) < 64 << 20  # what the sockets' buffers took


@pytest.mark.parametrize("said", ["0", "-5", "-inf", "Wed, 21 Oct 2015 07:28:00 GMT"])
def test_a_server_that_says_try_at_once_is_not_flooded(log: EventLog, tmp_path: Path, said: str) -> None:
    with answering(429, {"retry-after": said}) as (url, taken, requests, healed):
        forwarder = Forwarder(log, configured(tmp_path, SinkSection(kind="webhook", url=url)))
        forwarder.start()
        emit(log, 1)
        time.sleep(0.6)
        assert 0 < len(requests) < 12
        healed.set()
        assert forwarder.drain(10_000) == () and taken == ids_of(log)


def test_a_date_to_come_is_waited_for(log: EventLog, tmp_path: Path) -> None:
    with answering(503, {"retry-after": "Wed, 21 Oct 2099 07:28:00 GMT"}) as (url, _, requests, _):
        forwarder = Forwarder(log, configured(tmp_path, SinkSection(kind="webhook", url=url)))
        forwarder.start()
        emit(log, 1)
        time.sleep(0.5)
        assert len(requests) == 1 and "503" in forwarder.drain(100)[0]


class Surprising:
    """A sink of somebody else, with a bug in it."""

    def __init__(self, taken: list[str]) -> None:
        self._taken = taken

    def deliver(self, record: Any) -> None:
        if len(self._taken) == 0:
            self._taken.append("")
            raise RuntimeError("a bug in the sink")
        self._taken.append(record.envelope.id)

    def close(self) -> None:
        raise RuntimeError("another one")


def test_a_sink_that_raises_anything_goes_on(log: EventLog) -> None:
    taken: list[str] = []
    forwarder = Forwarder(log, [Configured("theirs", lambda: Surprising(taken))])
    forwarder.start()
    emit(log, 3)
    assert forwarder.drain(10_000) == () and taken[1:] == ids_of(log)


def test_a_host_name_that_is_none_is_an_outage_and_told(log: EventLog, tmp_path: Path) -> None:
    section = SinkSection(kind="syslog", host="a..b", port=5, protocol="tcp", drain=Duration(300))
    forwarder = Forwarder(log, configured(tmp_path, section))
    forwarder.start()
    emit(log, 1)
    assert "next run" in forwarder.drain()[0]


# ---------------------------------------------------------------- syslog over TLS


@contextlib.contextmanager
def tls_server(folder: Path, version: ssl.TLSVersion) -> Iterator[tuple[int, list[str]]]:
    """A receiver of octet-counted messages over TLS: its port, the ids that came."""
    key, certificate = folder / "key.pem", folder / "certificate.pem"
    words = ["req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost"]
    names = ["-addext", "subjectAltName=DNS:localhost", "-keyout", str(key), "-out", str(certificate)]
    subprocess.run(["openssl", *words, *names], check=True, capture_output=True)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = context.maximum_version = version
    context.load_cert_chain(certificate, key)
    ids: list[str] = []
    listening = socket.create_server(("127.0.0.1", 0))

    def serve(raw: socket.socket) -> None:
        with contextlib.suppress(OSError), context.wrap_socket(raw, server_side=True) as connection:
            held = b""
            while block := connection.recv(65536):
                held += block
                while b" " in held:
                    length, _, rest = held.partition(b" ")
                    if len(rest) < int(length):
                        break
                    ids.append(json.loads(rest[rest.index(b"{") : int(length)])["id"])
                    held = rest[int(length) :]

    def accept() -> None:
        with contextlib.suppress(OSError):
            while True:
                raw, _ = listening.accept()
                threading.Thread(target=serve, args=(raw,), daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()
    try:
        yield listening.getsockname()[1], ids
    finally:
        listening.close()


@pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl makes the certificate")
@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_syslog_over_tls_gets_every_event_once(
    log: EventLog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: ssl.TLSVersion
) -> None:
    """A TLS 1.3 server sends session tickets after the handshake: bytes to read that are no data."""
    with tls_server(tmp_path, version) as (port, ids):
        monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "certificate.pem"))
        forwarder = Forwarder(log, configured(tmp_path, SinkSection(kind="syslog", host="localhost", port=port, protocol="tls")))
        forwarder.start()
        emit(log, 5)
        assert forwarder.drain(15_000) == ()
        wait_for(lambda: len(ids) >= len(ids_of(log)))
        assert ids == ids_of(log)


@pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl makes the certificate")
def test_syslog_over_tls_gives_nothing_to_a_server_it_cannot_trust(log: EventLog, tmp_path: Path) -> None:
    with tls_server(tmp_path, ssl.TLSVersion.TLSv1_3) as (port, ids):
        section = SinkSection(kind="syslog", host="localhost", port=port, protocol="tls", drain=Duration(500))
        forwarder = Forwarder(log, configured(tmp_path, section))
        forwarder.start()
        emit(log, 1)
        assert "certificate" in forwarder.drain()[0].lower() and ids == []


# ---------------------------------------------------------------- files


def forward(log: EventLog, tmp_path: Path, path: Path, count: int) -> list[str]:
    forwarder = Forwarder(log, configured(tmp_path, SinkSection(kind="file", name="copy", path=str(path))))
    forwarder.start()
    emitted = emit(log, count)
    assert forwarder.drain(5000) == ()
    return emitted


@pytest.mark.parametrize("left", ["nothing", "half", "all but the newline", "all", "three lines"])
def test_a_copy_that_a_kill_left_at_any_byte_holds_each_line_once_and_whole(log: EventLog, tmp_path: Path, left: str) -> None:
    copy, cursor = tmp_path / "copy.jsonl", log.path.with_name("sinks") / "events.copy.json"
    forward(log, tmp_path, copy, 3)
    before, remembered = copy.stat().st_size, cursor.read_bytes()
    forward(log, tmp_path, copy, 3 if left == "three lines" else 1)
    cursor.write_bytes(remembered)  # killed before the cursor was written,
    written = copy.stat().st_size - before
    keep = {"nothing": 0, "half": written // 2, "all but the newline": written - 1}.get(left, written)
    os.truncate(copy, before + keep)  # and perhaps in the middle of the line
    forward(log, tmp_path, copy, 2)
    assert copy.read_bytes() == b"".join(file.read_bytes() for file in paths.segments(log.path))
    assert verify([copy]).status == "intact"


def test_what_somebody_else_left_unfinished_in_the_file_spoils_no_line(log: EventLog, tmp_path: Path) -> None:
    copy = tmp_path / "copy.jsonl"
    copy.write_bytes(b"no newline")
    forward(log, tmp_path, copy, 2)
    assert copy.read_bytes().splitlines() == [b"no newline", *log.path.read_bytes().splitlines()]


def test_a_pipe_and_a_device_get_each_line_once(log: EventLog, tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    got: list[bytes] = []

    def read() -> None:
        with pipe.open("rb") as stream:
            got.extend(stream)

    reader = threading.Thread(target=read, daemon=True)
    reader.start()
    forward(log, tmp_path, pipe, 5)
    reader.join(5)
    assert [json.loads(line)["id"] for line in got] == ids_of(log)
    sinks = configured(tmp_path, SinkSection(kind="file", name="null", path=os.devnull))
    forwarder = Forwarder(log, sinks)
    forwarder.start()
    emit(log, 3)
    assert forwarder.drain(3000) == ()


# ---------------------------------------------------------------- gaps and cursors


def test_what_was_dropped_and_not_told_of_yet_is_tried_again_by_the_next_run(log: EventLog, tmp_path: Path) -> None:
    forwarder = Forwarder(log, configured(tmp_path, SinkSection(kind="command", name="c", command="exit 1")))
    forwarder.start()
    emit(log, 4)
    wait_for(lambda: len(forwarder._workers[0]._dropped) > 0, 20)  # no time is left to tell: drained while the next is tried
    assert forwarder.drain(1) != ()
    forwarder._workers[0].join(10)
    emitted = ids_of(log)
    out = tmp_path / "taken"
    again = Forwarder(log, configured(tmp_path, SinkSection(kind="command", name="c", command=f"cat >> {out}")))
    again.start()
    assert again.drain(10_000) == ()
    taken = [json.loads(line)["id"] for line in out.read_text().splitlines()]
    told = sum(json.loads(line)["data"]["dropped"] for line in log.path.read_text().splitlines() if "sink.gap" in line)
    assert told + sum(id_ in taken for id_ in emitted) >= len(emitted), (told, len(taken))


def test_a_cursor_of_an_earlier_stream_hides_nothing_of_a_new_one(tmp_path: Path) -> None:
    state, copy = tmp_path / "state", tmp_path / "copy.jsonl"
    with EventLog.open(state / "events.jsonl", source="/one") as old:
        forward(old, tmp_path, copy, 30)
    for file in [*paths.segments(state / "events.jsonl"), state / "head"]:  # archived by the user; the cursors stay
        file.unlink()
    copy.unlink()
    with EventLog.open(state / "events.jsonl", source="/two") as new:
        forward(new, tmp_path, copy, 3)
        assert copy.read_bytes() == new.path.read_bytes()
