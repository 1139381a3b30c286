"""Events as OpenTelemetry log records over OTLP/HTTP (protobuf). Needs the extra `evolver[otlp]`."""

from __future__ import annotations

import logging
from datetime import UTC, datetime
from urllib.parse import urlsplit

from opentelemetry._logs import LogRecord, SeverityNumber
from opentelemetry.exporter.otlp.proto.http._log_exporter import OTLPLogExporter
from opentelemetry.sdk._logs import ReadableLogRecord
from opentelemetry.sdk._logs.export import LogRecordExportResult
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.util.instrumentation import InstrumentationScope

from evolver._version import __version__
from evolver.errors import UsageError
from evolver.events.reader import Record
from evolver.sinks.base import SinkError

TIMEOUT_S = 5.0
_SEVERITIES = {
    "debug": SeverityNumber.DEBUG,
    "info": SeverityNumber.INFO,
    "warning": SeverityNumber.WARN,
    "error": SeverityNumber.ERROR,
    "alert": SeverityNumber.FATAL,
}


class OtlpSink:
    def __init__(self, url: str) -> None:
        """`url`: the receiver's logs endpoint, or its root (`/v1/logs` is added). Raise `UsageError`."""
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise UsageError(f"sink otlp: {url!r} is no http(s) URL", "Such as http://127.0.0.1:4318/v1/logs")
        self._url = url if parts.path.strip("/") else url.rstrip("/") + "/v1/logs"
        # The exporter tells its failures to the root logger, that is to the user's terminal. Ours go to the caller.
        quiet = logging.getLogger("opentelemetry.exporter")
        quiet.addHandler(logging.NullHandler())
        quiet.propagate = False
        self._exporter = OTLPLogExporter(endpoint=self._url, timeout=TIMEOUT_S)
        self._resource = Resource({"service.name": "evolver", "service.version": __version__})
        self._scope = InstrumentationScope("evolver", __version__)

    def deliver(self, record: Record) -> None:
        envelope = record.envelope
        attributes: dict[str, str | int] = {
            "event.id": envelope.id,
            "event.sequence": envelope.sequence,
            "event.hash": envelope.hash,
            "evolver.source": envelope.source,
        }
        if envelope.runid is not None:
            attributes["evolver.run_id"] = envelope.runid
        if envelope.iteration is not None:
            attributes["evolver.iteration"] = envelope.iteration
        moment = datetime.strptime(envelope.time, "%Y-%m-%dT%H:%M:%S.%fZ").replace(tzinfo=UTC)
        nanoseconds = int(moment.timestamp()) * 1_000_000_000 + moment.microsecond * 1000
        log_record = LogRecord(
            timestamp=nanoseconds,
            observed_timestamp=nanoseconds,
            severity_text=envelope.severity,
            severity_number=_SEVERITIES.get(envelope.severity, SeverityNumber.INFO),
            body=record.line.decode(),
            attributes=attributes,
            event_name=envelope.type,
        )
        readable = ReadableLogRecord(log_record, self._resource, self._scope)
        if self._exporter.export([readable]) is not LogRecordExportResult.SUCCESS:
            raise SinkError(f"{urlsplit(self._url).hostname}: not taken")

    def close(self) -> None:
        self._exporter.shutdown()  # type: ignore[no-untyped-call]  # of the SDK
