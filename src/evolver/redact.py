"""Secrets, replaced before they reach an event, a step log or a sink.

Secret are the values of environment variables whose names say so, of those that `[redact] env` names, and whatever a
`[redact] patterns` expression matches. Output arrives in chunks, so `StreamRedactor` holds back what may be the first
half of a secret.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from evolver import secret_forms
from evolver.definition import LoopDefinition, RedactSection
from evolver.errors import UsageError

MASK = b"[redacted]"
SHORTEST = 6  # a shorter value (`1`, `true`, `us`) stands everywhere and hides nothing
HELD_FOR_PATTERNS = 4096  # how much of a match that is still growing is kept back
HELD_AT_MOST = 64 << 10
LOOKED_BEHIND = 256  # bytes a pattern may look at before its match (`(?<=token=)`), though they have been passed on

_INNOCENT_VALUE = re.compile(r"(?i)\s*|true|false|enabled|disabled|default|required|optional")


class Redactor:
    """What to hide. Immutable; safe to share between threads."""

    def __init__(self, secrets: Iterable[str] = (), patterns: Iterable[str] = ()) -> None:
        """Raise `UsageError` for a pattern that is no regular expression, or that matches nothing at all."""
        found = {form for value in secrets for part in secret_forms.parts(value) for form in secret_forms.forms(part) if form}
        self._secrets = tuple(sorted(found, key=len, reverse=True))
        self._longest = max((len(s) for s in self._secrets), default=0)
        self._patterns = tuple(_compile(pattern) for pattern in patterns)

    @classmethod
    def from_environment(cls, env: Mapping[str, str], section: RedactSection | None = None) -> Redactor:
        section = section or RedactSection()
        return cls(_secrets_in(env, section.env), section.patterns)

    @classmethod
    def for_loop(cls, env: Mapping[str, str], definition: LoopDefinition) -> Redactor:
        """What a loop's `[redact]` says, the secrets that its sinks sign with, and those it gives to its steps."""
        own = definition.redact
        names = (*own.env, *(sink.secret_env for sink in definition.sink if sink.secret_env))
        given = [definition.codegen.env, *(v.env for v in definition.validator), *(a.env for a in definition.agents.values())]
        found = [value for added in given for value in _secrets_in({**env, **added}, names)]
        return cls(dict.fromkeys(found), own.patterns)

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
        return _mask(data, self.spans(data), 0, len(data)) if self else data

    def redact_text(self, text: str) -> str:
        if not self:
            return text
        raw = text.encode("utf-8", "surrogateescape")
        spans = self.spans(raw)
        return _mask(raw, spans, 0, len(raw)).decode("utf-8", "surrogateescape") if spans else text

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

    @property
    def looked_behind(self) -> int:
        """How many bytes before a chunk decide what matches in it."""
        return LOOKED_BEHIND if self._patterns else 0


class StreamRedactor:
    """Redacts a stream of chunks. Whatever `feed` has not returned yet comes with `flush`. Memory: chunk + 64 KiB."""

    def __init__(self, redactor: Redactor) -> None:
        self._redactor = redactor
        self._before = b""  # the end of what was passed on, for patterns that look behind
        self._held = b""

    def feed(self, chunk: bytes) -> bytes:
        if not self._redactor:
            return chunk
        data, at = self._before + self._held + chunk, len(self._before)
        spans = self._redactor.spans(data)
        cut = max(at, len(data) - self._redactor.held_back)
        for start, end in spans:
            # A secret across the cut, or one at the very end that may go on (a greedy pattern): wait for the rest.
            if start < cut and (end > cut or end == len(data)):
                cut = max(at, start) if len(data) - start <= HELD_AT_MOST else end
                break
        self._before, self._held = data[max(0, cut - self._redactor.looked_behind) : cut], data[cut:]
        return _mask(data, spans, at, cut)

    def flush(self) -> bytes:
        data, at = self._before + self._held, len(self._before)
        self._before = self._held = b""
        return _mask(data, self._redactor.spans(data), at, len(data))


def _mask(data: bytes, spans: list[tuple[int, int]], at: int, upto: int) -> bytes:
    """`data` from `at` to `upto`, the spans in it replaced."""
    parts: list[bytes] = []
    for start, end in spans:
        if start >= upto:
            break
        if end > at:
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


def _secrets_in(env: Mapping[str, str], named: tuple[str, ...]) -> list[str]:
    """The values that are secret by their variable's name, or by its standing in `named`."""
    found: list[str] = []
    for name, value in env.items():
        if _INNOCENT_VALUE.fullmatch(value):
            continue
        if name in named or (secret_forms.is_secret_name(name) and len(value.strip()) >= SHORTEST):
            found.append(value)
        elif name.startswith("GIT_CONFIG_VALUE_"):
            key = env.get(name.replace("_VALUE_", "_KEY_"), "")
            if key.lower().endswith(".extraheader") and value:
                found += [value, value.split()[-1]]  # `Authorization: Basic …`, and what is secret in it
    return found
