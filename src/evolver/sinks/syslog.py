"""Events as RFC 5424 messages: TCP with octet counting (RFC 6587), UDP (RFC 5426), TLS (RFC 5425).

Syslog acknowledges nothing. Over TCP an event counts as taken when the peer's kernel has acknowledged its bytes and the
connection was not reset a moment later; a receiver that dies in that moment may lose it.
"""

from __future__ import annotations

import fcntl
import os
import re
import socket
import ssl
import struct
import time
from typing import Literal

from evolver.events.reader import Record
from evolver.sinks.base import RefusedError, SinkError

FACILITY = 13  # log audit
LEVELS = {"debug": 7, "info": 6, "warning": 4, "error": 3, "alert": 1}
ENTERPRISE = "evolver@32473"  # structured data id; 32473 is the number set aside for examples and private use
TIMEOUT_S = 5.0
SETTLE_S = 0.02
_SIOCOUTQ = 0x5411  # Linux: bytes the peer has not acknowledged
_UNPRINTABLE = re.compile(rb"[^\x21-\x7e]")

Protocol = Literal["tcp", "udp", "tls"]


def _parameter(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("]", "\\]")


def message(record: Record, hostname: str, pid: int) -> bytes:
    """One RFC 5424 message; its text is the event's line as it stands in the stream."""
    envelope = record.envelope
    priority = FACILITY * 8 + LEVELS.get(envelope.severity, 6)
    host = _UNPRINTABLE.sub(b"-", hostname.encode())[:255].decode() or "-"
    fields = {"id": envelope.id, "sequence": str(envelope.sequence), "runid": envelope.runid or "", "hash": envelope.hash}
    data = " ".join(f'{name}="{_parameter(value)}"' for name, value in fields.items() if value)
    name = _UNPRINTABLE.sub(b"-", envelope.name.encode())[:32].decode()
    head = f"<{priority}>1 {envelope.time} {host} evolver {pid} {name} [{ENTERPRISE} {data}] "
    return head.encode() + b"\xef\xbb\xbf" + record.line


class SyslogSink:
    def __init__(self, host: str, port: int, protocol: Protocol) -> None:
        self._address = (host, port)
        self._protocol: Protocol = protocol
        self._socket: socket.socket | None = None
        self._hostname = socket.gethostname()

    def deliver(self, record: Record) -> None:
        data = message(record, self._hostname, os.getpid())
        try:
            if self._socket is None:
                self._socket = self._connect()
            if self._protocol == "udp":
                self._socket.send(data)
                return
            if self._said_goodbye(self._socket):  # writing would seem to succeed once more
                self.close()
                self._socket = self._connect()
            self._socket.sendall(b"%d " % len(data) + data)
            self._wait_for_the_peer(self._socket)
        except OSError as error:
            self.close()
            where = f"{self._protocol}://{self._address[0]}:{self._address[1]}"
            if self._protocol == "udp" and len(data) > 1400 and "too long" in str(error).lower():
                raise RefusedError(f"{where}: {len(data)} bytes are too many for a datagram") from error
            raise SinkError(f"{where}: {error.strerror or error}") from error

    def _connect(self) -> socket.socket:
        if self._protocol == "udp":
            family, kind, proto, _, address = socket.getaddrinfo(*self._address, type=socket.SOCK_DGRAM)[0]
            datagrams = socket.socket(family, kind, proto)
            datagrams.connect(address)  # so that a refusal is told to us
            return datagrams
        connected = socket.create_connection(self._address, timeout=TIMEOUT_S)
        connected.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        if self._protocol == "tls":
            return ssl.create_default_context().wrap_socket(connected, server_hostname=self._address[0])
        return connected

    def _said_goodbye(self, connected: socket.socket) -> bool:
        """Whether the other side closed in order; a syslog server never talks. Raise `OSError` when it broke off."""
        connected.settimeout(0)
        try:
            return not connected.recv(1024)
        except (BlockingIOError, ssl.SSLWantReadError):
            # Nothing to read. Over TLS 1.3 what came may be a session ticket, which is no data: waiting for more would not end.
            return False
        finally:
            connected.settimeout(TIMEOUT_S)

    def _wait_for_the_peer(self, connected: socket.socket) -> None:
        deadline = time.monotonic() + TIMEOUT_S
        while self._unacknowledged(connected):
            if time.monotonic() > deadline:
                raise TimeoutError("the other side takes nothing")
            time.sleep(0.001)
        time.sleep(SETTLE_S)
        if self._said_goodbye(connected):
            # In order, and not by a reset: a kernel whose program left bytes unread resets, so ours were read.
            self.close()

    def _unacknowledged(self, connected: socket.socket) -> int:
        try:
            return int(struct.unpack("i", fcntl.ioctl(connected.fileno(), _SIOCOUTQ, b"\0\0\0\0"))[0])
        except OSError:  # not Linux
            return 0

    def close(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None
