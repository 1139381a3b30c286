"""From `[[sink]]`, `EVOLVER_SINK_*` and `[alerts]` to sinks. What is wrong with one is a `UsageError` before anything starts."""

from __future__ import annotations

import hashlib
import importlib.util
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from urllib.parse import urlsplit

from evolver.definition import AlertsSection, LoopDefinition, SinkSection
from evolver.errors import UsageError
from evolver.layout import Layout
from evolver.settings import STEP_VARIABLES, Settings
from evolver.sinks.base import Configured, EventSink

COMMAND_TRIES = 6
WEBHOOK_SECRET = "EVOLVER_SINK_WEBHOOK_SECRET"


def build_sinks(
    definition: LoopDefinition, settings: Settings, env: Mapping[str, str], *, directory: Path, layout: Layout
) -> list[Configured]:
    """Every sink of a run. `directory`: what relative paths of the loop file are relative to. Commands run in the worktree."""
    sections = [*definition.sink, *_from_settings(settings)]
    # Not a step: whoever ends the run's processes must not end a sink's command.
    env = {name: value for name, value in env.items() if name not in STEP_VARIABLES}
    found = [_configured(section, settings, env, directory, layout.root) for section in sections]
    found += _alerts(definition.alerts, env, layout)
    names = [sink.name for sink in found]
    for name in names:
        if names.count(name) > 1:
            raise UsageError(f"two sinks are named {name}", "Give each [[sink]] its own name: their cursors are kept by it.")
    return found


def secret_variables(definition: LoopDefinition) -> frozenset[str]:
    """The variables that hold what sinks sign with: no step gets them."""
    return frozenset({WEBHOOK_SECRET, *(sink.secret_env for sink in definition.sink if sink.secret_env)})


def _from_settings(settings: Settings) -> Iterator[SinkSection]:
    if path := settings.text("EVOLVER_SINK_FILE"):
        yield SinkSection(kind="file", name="env-file", path=path)
    if settings.text("EVOLVER_SINK_STDOUT") not in ("", "0"):
        yield SinkSection(kind="stdout", name="env-stdout")
    if url := settings.text("EVOLVER_SINK_SYSLOG"):
        parts = urlsplit(url)
        if parts.scheme not in ("tcp", "udp", "tls") or not parts.hostname:
            raise UsageError(
                f"EVOLVER_SINK_SYSLOG: expected tcp://HOST:PORT, udp://… or tls://…, got {url!r}", "Such as tcp://127.0.0.1:514"
            )
        port = parts.port or (6514 if parts.scheme == "tls" else 514)
        yield SinkSection(kind="syslog", name="env-syslog", host=parts.hostname, port=port, protocol=parts.scheme)  # type: ignore[arg-type]  # checked above
    if url := settings.text("EVOLVER_SINK_WEBHOOK"):
        yield SinkSection(kind="webhook", name="env-webhook", url=url, secret_env=WEBHOOK_SECRET)
    if url := settings.text("EVOLVER_SINK_OTLP"):
        yield SinkSection(kind="otlp", name="env-otlp", url=url)
    if command := settings.text("EVOLVER_SINK_COMMAND"):
        yield SinkSection(kind="command", name="env-command", command=command)


def _need(section: SinkSection, field: str, example: str) -> None:
    if not getattr(section, field):
        raise UsageError(f'[[sink]] kind = "{section.kind}": `{field}` is missing', f"Such as {field} = {example}")


def _file(
    section: SinkSection, settings: Settings, env: Mapping[str, str], directory: Path, cwd: Path
) -> Callable[[], EventSink]:
    from evolver.sinks.files import FileSink

    _need(section, "path", '"/var/log/evolver.jsonl"')
    path = directory / Path(section.path).expanduser()
    return lambda: FileSink(path)


def _stdout(
    section: SinkSection, settings: Settings, env: Mapping[str, str], directory: Path, cwd: Path
) -> Callable[[], EventSink]:
    from evolver.sinks.files import StdoutSink

    return StdoutSink


def _syslog(
    section: SinkSection, settings: Settings, env: Mapping[str, str], directory: Path, cwd: Path
) -> Callable[[], EventSink]:
    from evolver.sinks.syslog import SyslogSink

    return lambda: SyslogSink(section.host, section.port, section.protocol)


def _webhook(
    section: SinkSection, settings: Settings, env: Mapping[str, str], directory: Path, cwd: Path
) -> Callable[[], EventSink]:
    from evolver.sinks.webhook import WebhookSink

    _need(section, "url", '"https://example.org/hook"')
    secret = settings.text(WEBHOOK_SECRET) if section.secret_env == WEBHOOK_SECRET else ""
    secret = secret or (env.get(section.secret_env, "") if section.secret_env else "")
    if section.secret_env and not secret and not section.name.startswith("env-"):
        raise UsageError(f"[[sink]] webhook: {section.secret_env} is not set", "It holds the secret that signs the requests.")
    WebhookSink(section.url, secret or None).close()  # a bad URL or secret is found before the run
    return lambda: WebhookSink(section.url, secret or None)


def _otlp(
    section: SinkSection, settings: Settings, env: Mapping[str, str], directory: Path, cwd: Path
) -> Callable[[], EventSink]:
    _need(section, "url", '"http://127.0.0.1:4318/v1/logs"')
    if importlib.util.find_spec("opentelemetry") is None or importlib.util.find_spec("opentelemetry.exporter") is None:
        raise UsageError("sink otlp needs the OpenTelemetry SDK", "pip install 'evolver[otlp]'")

    def open_sink() -> EventSink:
        from evolver.sinks.otlp import OtlpSink

        return OtlpSink(section.url)

    if urlsplit(section.url).scheme not in ("http", "https"):
        raise UsageError(f"sink otlp: {section.url!r} is no http(s) URL", "Such as http://127.0.0.1:4318/v1/logs")
    return open_sink


def _command(
    section: SinkSection, settings: Settings, env: Mapping[str, str], directory: Path, cwd: Path
) -> Callable[[], EventSink]:
    from evolver.sinks.command import CommandSink

    _need(section, "command", '"my-forwarder"')
    command = section.command
    assert command is not None
    return lambda: CommandSink(command, env, cwd)


Builder = Callable[[SinkSection, Settings, Mapping[str, str], Path, Path], Callable[[], EventSink]]
KINDS: Mapping[str, Builder] = {
    "file": _file,
    "stdout": _stdout,
    "syslog": _syslog,
    "webhook": _webhook,
    "otlp": _otlp,
    "command": _command,
}


def _configured(section: SinkSection, settings: Settings, env: Mapping[str, str], directory: Path, cwd: Path) -> Configured:
    return Configured(
        name=_name(section),
        open=KINDS[section.kind](section, settings, env, directory, cwd),
        types=section.types,
        severity=section.severity,
        drain_ms=int(section.drain),
        replay=section.kind != "stdout",
        tries=COMMAND_TRIES if section.kind == "command" else 0,
    )


def _name(section: SinkSection) -> str:
    """The given name, else the kind and a mark of where it leads (a URL itself may be a secret)."""
    if section.name:
        return re.sub(r"[^A-Za-z0-9._-]+", "-", section.name).lstrip(".-") or section.kind
    where = f"{section.path}|{section.url}|{section.host}|{section.port}|{section.protocol}|{section.command}"
    return section.kind if section.kind == "stdout" else f"{section.kind}-{hashlib.sha256(where.encode()).hexdigest()[:8]}"


def _alerts(section: AlertsSection, env: Mapping[str, str], layout: Layout) -> list[Configured]:
    """`[alerts]` are sinks that take only alerts: they get the spool, the retries and the drain for nothing."""
    found: list[Configured] = []
    if section.command is not None:
        from evolver.sinks.command import CommandSink

        command = section.command
        found.append(
            Configured(
                "alerts-command", lambda: CommandSink(command, env, layout.root), severity="alert", drain_ms=15_000, tries=3
            )
        )
    if section.tracker:
        from evolver.sinks.tracker import TrackerSink

        found.append(Configured("alerts-tracker", lambda: TrackerSink(env, layout), severity="alert", drain_ms=30_000, tries=3))
    return found
