"""Secrets, replaced before they reach an event, a step log or a sink.

Secret are the values of environment variables whose names say so, of those that `[redact] env` names, and whatever a
`[redact] patterns` expression matches. Output arrives in chunks, so `StreamRedactor` holds back what may be the first
half of a secret.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping

from evolver.definition import LoopDefinition, RedactSection
from evolver.errors import UsageError

MASK = b"[redacted]"
SHORTEST = 6  # a shorter value (`1`, `true`, `us`) stands everywhere and hides nothing
SHORTEST_LINE = 8  # of a secret of several lines
HELD_FOR_PATTERNS = 4096  # how much of a match that is still growing is kept back
HELD_AT_MOST = 64 << 10

_SECRET_NAME = re.compile(r"KEY|TOKEN|SECRET|PASSW|PASSPHRASE|CREDENTIAL|AUTHORIZATION", re.IGNORECASE)
# Names that only look the part: git's injected configuration, desktop settings, sockets.
_INNOCENT_NAME = re.compile(
    r"GIT_CONFIG_KEY_\d+|.*KEY(BOARD|MAP|SYM|_PATH|_FILE|_DIR|RING).*|.*_SOCK|EVOLVER_SINK_.*SECRET_ENV", re.IGNORECASE
)
_INNOCENT_VALUE = re.compile(r"(?i)\s*|true|false|enabled|disabled|default|required|optional")


def is_secret_name(name: str) -> bool:
    """Whether a variable of this name is taken for a secret."""
    return _SECRET_NAME.search(name) is not None and _INNOCENT_NAME.fullmatch(name) is None


def _parts(value: str) -> Iterator[str]:
    """The value, and the lines of one that has several (a PEM key): tools print them one by one."""
    yield value
    if "\n" in value.strip():
        yield from (line for line in value.split("\n") if len(line.strip()) >= SHORTEST_LINE)


def _forms(value: str) -> set[bytes]:
    """The value as it may be printed: plain, trimmed, and as it stands inside JSON (both ways of escaping)."""
    plain = value.strip()
    forms = {value.encode("utf-8", "surrogateescape"), plain.encode("utf-8", "surrogateescape")}
    if plain.isprintable() and plain.isascii() and '"' not in plain and "\\" not in plain and "/" not in plain:
        return forms
    printable = plain.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")
    for ascii_only in (True, False):
        forms.add(json.dumps(printable, ensure_ascii=ascii_only)[1:-1].encode())
    forms.add(json.dumps(printable)[1:-1].replace("/", "\\/").encode())
    forms.add(printable.encode())
    return forms


class Redactor:
    """What to hide. Immutable; safe to share between threads."""

    def __init__(self, secrets: Iterable[str] = (), patterns: Iterable[str] = ()) -> None:
        """Raise `UsageError` for a pattern that is no regular expression, or that matches nothing at all."""
        forms = {form for value in secrets for part in _parts(value) for form in _forms(part)}
        self._secrets = tuple(sorted((f for f in forms if f), key=len, reverse=True))
        self._longest = max((len(s) for s in self._secrets), default=0)
        self._patterns = tuple(_compile(pattern) for pattern in patterns)

    @classmethod
    def from_environment(cls, env: Mapping[str, str], section: RedactSection | None = None) -> Redactor:
        section = section or RedactSection()
        found: list[str] = []
        for name, value in env.items():
            if _INNOCENT_VALUE.fullmatch(value):
                continue
            if name in section.env or (is_secret_name(name) and len(value.strip()) >= SHORTEST):
                found.append(value)
            elif name.startswith("GIT_CONFIG_VALUE_"):
                key = env.get(name.replace("_VALUE_", "_KEY_"), "")
                if key.lower().endswith(".extraheader") and value:
                    found.append(value)
        return cls(found, section.patterns)

    @classmethod
    def for_loop(cls, env: Mapping[str, str], definition: LoopDefinition) -> Redactor:
        """What a loop's `[redact]` says, and the secrets that its sinks sign with."""
        own = definition.redact
        names = (*own.env, *(sink.secret_env for sink in definition.sink if sink.secret_env))
        return cls.from_environment(env, RedactSection(patterns=own.patterns, env=names))

    def __bool__(self) -> bool:
        return bool(self._secrets or self._patterns)

    def spans(self, data: bytes) -> list[tuple[int, int]]:
        """Where the secrets are, merged, in order."""
        found: list[tuple[int, int]] = []
        for secret in self._secrets:
            at = data.find(secret)  # a plain search first: output without a secret must stay cheap
            while at >= 0:
                found.append((at, at + len(secret)))
                at = data.find(secret, at + 1)
        for pattern in self._patterns:
            found.extend(match.span() for match in pattern.finditer(data) if match.end() > match.start())
        found.sort()
        merged: list[tuple[int, int]] = []
        for start, end in found:
            if merged and start < merged[-1][1]:
                merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
            else:
                merged.append((start, end))
        return merged

    def redact_bytes(self, data: bytes) -> bytes:
        """The same bytes with every secret replaced by `[redacted]`."""
        return _mask(data, self.spans(data), len(data)) if self else data

    def redact_text(self, text: str) -> str:
        if not self:
            return text
        raw = text.encode("utf-8", "surrogateescape")
        spans = self.spans(raw)
        return _mask(raw, spans, len(raw)).decode("utf-8", "surrogateescape") if spans else text

    def redact_value(self, value: object) -> object:
        """Every string in a tree of plain values, keys too. The shape stays, so the result is still the JSON it was."""
        match value:
            case str():
                return self.redact_text(value)
            case dict():
                return {self.redact_text(str(k)): self.redact_value(v) for k, v in value.items()}
            case list() | tuple():
                return [self.redact_value(v) for v in value]
        return value

    def stream(self) -> StreamRedactor:
        return StreamRedactor(self)

    @property
    def held_back(self) -> int:
        """How many bytes at the end of a chunk may be the first part of a secret."""
        return max(self._longest - 1, HELD_FOR_PATTERNS if self._patterns else 0, 0)


class StreamRedactor:
    """Redacts a stream of chunks. Whatever `feed` has not returned yet comes with `flush`. Memory: chunk + 64 KiB."""

    def __init__(self, redactor: Redactor) -> None:
        self._redactor = redactor
        self._held = b""

    def feed(self, chunk: bytes) -> bytes:
        if not self._redactor:
            return chunk
        data = self._held + chunk
        spans = self._redactor.spans(data)
        cut = max(0, len(data) - self._redactor.held_back)
        for start, end in spans:
            # A secret across the cut, or one at the very end that may go on (a greedy pattern): wait for the rest.
            if start < cut and (end > cut or end == len(data)):
                cut = start if len(data) - start <= HELD_AT_MOST else end
                break
        self._held = data[cut:]
        return _mask(data, spans, cut)

    def flush(self) -> bytes:
        held, self._held = self._held, b""
        return self._redactor.redact_bytes(held)


def _mask(data: bytes, spans: list[tuple[int, int]], upto: int) -> bytes:
    parts: list[bytes] = []
    at = 0
    for start, end in spans:
        if start >= upto:
            break
        parts += (data[at:start], MASK)
        at = end
    parts.append(data[at:upto])
    return b"".join(parts)


def _compile(pattern: str) -> re.Pattern[bytes]:
    try:
        compiled = re.compile(pattern.encode())
    except re.error as error:
        message = f"[redact] patterns: {pattern!r} is no regular expression: {error}"
        raise UsageError(message, "Escape special characters with a backslash.") from error
    if compiled.fullmatch(b""):
        message = f"[redact] patterns: {pattern!r} matches the empty string"
        raise UsageError(message, "Make it match at least one character.")
    return compiled
