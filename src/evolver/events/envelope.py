"""One line of the stream as a value: a CloudEvents 1.0 envelope, then the chain's three fields."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import msgspec
import orjson

from evolver.events import chain
from evolver.events.ids import uuid7
from evolver.events.types import PREFIX, Event, Severity
from evolver.redact import Redactor


class Envelope(msgspec.Struct, frozen=True, kw_only=True):
    """The fields in the order in which they are written. `data` stays raw: readers decode what they know."""

    specversion: str = "1.0"
    id: str
    source: str
    type: str
    subject: str | None = None  # iteration_id, else the run's id; absent in events that belong to no run
    time: str
    datacontenttype: str = "application/json"
    sequence: int
    runid: str | None = None
    iteration: int | None = None
    severity: Severity = "info"
    data: msgspec.Raw
    chainversion: int
    prevhash: str
    hash: str

    @property
    def name(self) -> str:
        """The type without its prefix: `run.started`."""
        return self.type.removeprefix(PREFIX)

    def decoded(self) -> dict[str, Any]:
        """`data` as plain values, for showing."""
        found = orjson.loads(bytes(self.data))
        return found if isinstance(found, dict) else {"value": found}


_DECODER = msgspec.json.Decoder(Envelope)


def decode(line: bytes) -> Envelope:
    """Raise `msgspec.DecodeError` when the line is no envelope. Fields of a newer version are passed over."""
    return _DECODER.decode(line)


def now() -> str:
    """UTC with microseconds, always 27 characters, so that times sort as text."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def _plain(value: object) -> object:
    """Strings that JSON can hold: a path's undecodable bytes become `\\xNN` (a lone surrogate is no JSON)."""
    match value:
        case str():
            return (
                value.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace") if not value.isascii() else value
            )
        case dict():
            return {str(_plain(k)): _plain(v) for k, v in value.items()}
        case list() | tuple():
            return [_plain(v) for v in value]
    return value


def encode_data(event: Event, redactor: Redactor | None) -> bytes:
    """The event's `data` as JSON, its secrets replaced before anything is hashed or written."""
    plain = _plain(msgspec.to_builtins(event))
    return orjson.dumps(redactor.redact_value(plain) if redactor is not None else plain)


def build(
    event: Event,
    *,
    source: str,
    sequence: int,
    prevhash: str,
    run_id: str | None,
    iteration: int | None,
    redactor: Redactor | None,
) -> tuple[Envelope, bytes]:
    """The sealed envelope and its line, newline included."""
    data = encode_data(event, redactor)
    subject = f"{run_id}/{iteration}" if run_id and iteration is not None else run_id
    head: dict[str, object] = {"specversion": "1.0", "id": uuid7(), "source": source, "type": PREFIX + event.TYPE}
    if subject:
        head["subject"] = subject
    head |= {"time": now(), "datacontenttype": "application/json", "sequence": sequence}
    if run_id:
        head["runid"] = run_id
    if iteration is not None:
        head["iteration"] = iteration
    head |= {
        "severity": event.SEVERITY,
        "data": orjson.Fragment(data),
        "chainversion": chain.CHAIN_VERSION,
        "prevhash": prevhash,
    }
    line, _ = chain.seal(orjson.dumps(head)[:-1])
    return decode(line), line
