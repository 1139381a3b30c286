"""Real receivers on 127.0.0.1: an HTTP server that can be made to misbehave, and rsyslog."""

from __future__ import annotations

import contextlib
import shutil
import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any


def free_port(kind: socket.SocketKind = socket.SOCK_STREAM) -> int:
    with socket.socket(socket.AF_INET, kind) as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@dataclass
class Web:
    """An HTTP server. `mood` decides what the next request meets: ok, 500, hang, reset, redirect, 400, 410, 429."""

    port: int
    mood: str = "ok"
    got: list[tuple[str, dict[str, str], bytes]] = field(default_factory=list)  # path, headers, body of what was taken
    tried: int = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"


@contextlib.contextmanager
def web(port: int = 0, hang_s: float = 1.0) -> Iterator[Web]:
    class Handler(BaseHTTPRequestHandler):
        def log_message(self, format: str, *args: Any) -> None:
            pass

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers.get("content-length", 0)))
            state.tried += 1
            mood = state.mood
            if mood == "hang":
                time.sleep(hang_s)
                self.close_connection = True
                return
            if mood == "reset":
                self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
                self.connection.close()
                self.close_connection = True
                return
            if mood == "redirect" and not self.path.startswith("/moved"):
                self._answer(302, {"location": "/moved" + self.path})
                return
            if mood in ("500", "400", "410", "429", "404"):
                self._answer(int(mood), {"retry-after": "0"} if mood == "429" else {})
                return
            state.got.append((self.path, {k.lower(): v for k, v in self.headers.items()}, body))
            self._answer(200, {"content-type": "application/x-protobuf"})

        def _answer(self, status: int, headers: dict[str, str]) -> None:
            self.send_response(status)
            for name, value in {**headers, "content-length": "0"}.items():
                self.send_header(name, value)
            self.end_headers()

    class Server(ThreadingHTTPServer):
        daemon_threads = True
        allow_reuse_address = True

        def handle_error(self, request: Any, client_address: Any) -> None:
            pass

    server = Server(("127.0.0.1", port), Handler)
    state = Web(server.server_address[1])
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield state
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


class Rsyslog:
    """rsyslogd on loopback, started and stopped at will; writes each message's text to a file."""

    def __init__(self, folder: Path, protocol: str) -> None:
        self.port = free_port(socket.SOCK_DGRAM if protocol == "udp" else socket.SOCK_STREAM)
        self.out = folder / "received"
        self._folder = folder
        self._protocol = protocol
        self._process: subprocess.Popen[bytes] | None = None
        module = "imudp" if protocol == "udp" else "imtcp"
        framing = ' SupportOctetCountedFraming="on"' if protocol == "tcp" else ""
        (folder / "rsyslog.conf").write_text(
            f'global(workDirectory="{folder}" maxMessageSize="64k")\n'
            f'module(load="{module}")\n'
            f'input(type="{module}" port="{self.port}" address="127.0.0.1"{framing})\n'
            'template(name="raw" type="string" string="%pri%|%app-name%|%msgid%|%structured-data%|%msg%\\n")\n'
            f'action(type="omfile" file="{self.out}" template="raw" asyncWriting="off" flushInterval="1")\n'
        )

    def start(self) -> None:
        words = ["-n", "-f", str(self._folder / "rsyslog.conf"), "-i", str(self._folder / "pid")]
        program = shutil.which("rsyslogd") or "/usr/sbin/rsyslogd"
        self._process = subprocess.Popen([program, *words], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        deadline = time.monotonic() + 10
        while time.monotonic() < deadline:
            if self._protocol == "udp":
                if f":{self.port:04X}" in Path("/proc/net/udp").read_text():
                    return
            else:
                with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.port), 0.2):
                    return
            time.sleep(0.05)
        raise AssertionError("rsyslogd did not start")

    def stop(self) -> None:
        if self._process is not None:
            self._process.terminate()
            self._process.communicate(timeout=10)
            self._process = None

    def messages(self) -> list[str]:
        return self.out.read_text().splitlines() if self.out.exists() else []


HAS_RSYSLOG = shutil.which("rsyslogd") is not None or Path("/usr/sbin/rsyslogd").exists()
