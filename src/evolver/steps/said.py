"""What an agent CLI left to read: its output, line by line and bounded; and what words of failure mean."""

from __future__ import annotations

import contextlib
import io
import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal, InvalidOperation
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import BinaryIO

import msgspec

TEXT_LIMIT = 64 << 10
LINE_LIMIT = 4 << 20  # a longer line is skipped: no report is that long
MESSAGE_LIMIT = 64 << 10  # of an agent's last message that is kept
REASON_LIMIT = 300
MOST = 10**12  # tokens, dollars: a larger number is nonsense

Json = dict[str, object]


@dataclass(frozen=True, slots=True)
class Said:
    """A finished CLI, as a parser sees it."""

    exit_code: int | None
    log: Path  # everything it printed, both streams
    tail: str  # the end of it
    complete: bool  # whether the log is whole: the disk may have been full, the agent may have deleted the folder
    step_dir: Path  # where a preset told it to write files
    rate_limit: str = ""  # a preset's own expression for "try again later"

    def json_lines(self) -> Iterator[Json]:
        """Every line that is a JSON object. Anything else is passed over; a warning without an end of its own line is cut off."""
        with self._open() as file:
            while line := file.readline(LINE_LIMIT):
                whole = line.endswith(b"\n") or len(line) < LINE_LIMIT
                if not whole:
                    while (more := file.readline(LINE_LIMIT)) and not more.endswith(b"\n"):
                        pass
                elif (at := 0 if line.lstrip()[:1] == b"{" else line.find(b'{"type":')) >= 0:
                    try:
                        value = msgspec.json.decode(line[at:])
                    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
                        continue
                    if isinstance(value, dict):
                        yield value

    def last_block(self) -> Json:
        """The last JSON object that was printed over several lines, to be read by people; an empty one when there is none."""
        end = self.tail.rfind("\n}") + 2
        start = max(self.tail.rfind("\n{\n", 0, end) + 1, 0)
        with contextlib.suppress(msgspec.DecodeError, RecursionError):
            value = msgspec.json.decode(self.tail[start:end].encode("utf-8", "replace"))
            return value if isinstance(value, dict) else {}
        return {}

    def _open(self) -> BinaryIO:
        """The log, or what is known of its end."""
        if self.complete:
            with contextlib.suppress(OSError):
                return self.log.open("rb")
        return io.BytesIO(self.tail.encode("utf-8", "replace"))

    def lines(self) -> Iterator[str]:
        """Every line as text; a long one in parts."""
        with self._open() as file:
            while line := file.readline(TEXT_LIMIT):
                yield line.decode("utf-8", "replace")

    def last_line(self) -> str:
        """The last line for people, shortened. Not a line of JSON: that is the work itself, and no reason."""
        lines = [line.strip() for line in self.tail.splitlines() if line.strip() and not line.lstrip().startswith("{")]
        return short(lines[-1]) if lines else ""


def short(text: str) -> str:
    """One line for a reason."""
    text = " ".join(text.split())
    return text if len(text) <= REASON_LIMIT else text[: REASON_LIMIT - 1] + "…"


def table(value: object, *path: str) -> Json:
    """The object at `path`; an empty one when there is none."""
    for name in path:
        value = value.get(name) if isinstance(value, dict) else None
    return value if isinstance(value, dict) else {}


def text(value: object) -> str:
    return value if isinstance(value, str) else ""


def count(value: object) -> int:
    """A number of tokens or turns, also one written as text; 0 for what cannot be one."""
    amount = _amount(value)
    return int(amount) if amount is not None else 0


def money(value: object) -> str | None:
    """A decimal string, for there are no floats in the stream."""
    amount = _amount(value)
    if amount is None:
        return None
    exponent = amount.as_tuple().exponent
    return format(round(amount, 9) if isinstance(exponent, int) and exponent < -9 else amount, "f")


def _amount(value: object) -> Decimal | None:
    """What a person would believe: an agent may print any number, and the stream holds 64 bits."""
    if isinstance(value, bool) or not isinstance(value, int | float | str | Decimal):
        return None
    try:
        amount = Decimal(str(value))
    except InvalidOperation:
        return None
    return amount if amount.is_finite() and 0 <= amount <= MOST else None


# Only ever matched against words of failure, never against a whole log: an agent may well work on a rate limiter.
_TRANSIENT = re.compile(
    r"""\b429\b | \b5(?:00|02|03|04|20|22|24|29)\b | too\ many\ requests | rate.?limit | overloaded | over\ capacity | high\ demand
      | usage\ limit | hit\ your\ limit | quota\ exceeded | resource.?exhausted | server\ (?:is\ )?(?:busy|had\ an\ error)
      | internal\ server\ error | service\ unavailable | bad\ gateway | temporarily\ unavailable | try\ again\ (?:in|later)
      | connection\ (?:error|refused|reset|closed|aborted|timed\ out) | could\ not\ connect | fetch\ failed
      | network\ (?:error|is\ unreachable) | econn(?:reset|refused|aborted) | etimedout | enotfound | eai_again
      | socket\ hang\ up | stream\ (?:disconnected|error) | error\ sending\ request | (?:request|read)\ timed\ out
      | apiconnectionerror | ratelimiterror | internalservererror | serviceunavailableerror | \btimeout\b
    """,
    re.IGNORECASE | re.VERBOSE,
)
# The same words, but waiting does not help.
_FINAL = re.compile(
    r"insufficient.?quota|credit balance|billing|(?:invalid|missing|no).{0,10}api.?key|not logged in|log ?in|authenticat"
    r"|unauthorized|unknown (?:option|argument)|unexpected argument|\b40[1345]\b",
    re.IGNORECASE,
)

# What comes before a time to wait: a header, a field of JSON, a sentence.
_ASKED = re.compile(
    r"""(?:retry[-_ ]?(?:after|delay)(?:[-_ ]?(?P<ms>ms))?["']?\s*[:=]?\s*["']?
        | (?:try\ again|retry(?:ing)?|resets?|wait)\ (?:in\ |for\ )?(?:about\ )?(?=\d)
        | (?:try\ again|retry|resets?)\ (?:at|on)\s+)""",
    re.IGNORECASE | re.VERBOSE,
)
_PART = re.compile(
    r"\s*(?:,|and)?\s*(?P<n>\d+(?:\.\d+)?)\s*"
    r"(?P<unit>ms|msecs?|milliseconds?|s|secs?|seconds?|m|mins?|minutes?|h|hrs?|hours?|d|days?)?(?![A-Za-z0-9])",
    re.IGNORECASE,
)
_COMPACT = re.compile(r"(?P<n>\d+(?:\.\d+)?)(?P<unit>[dhms])(?=\d)", re.IGNORECASE)  # `6m0s`
_HTTP_DATE = re.compile(r"(?:\w{3},? )?\d{1,2} \w{3} \d{4} \d\d:\d\d:\d\d (?:GMT|UTC)")
_ISO_DATE = re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d(?::\d\d(?:\.\d+)?)?\s?(?:Z|[+-]\d\d:?\d\d)")
_RESET_AT = re.compile(r"limit reached\|(\d{10})\b")  # seconds since 1970
_UNIT_MS = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}


def is_transient(words: str, own: str = "") -> bool:
    """Whether waiting may help. `own`: a preset's expression, which counts before ours."""
    if own and re.search(own, words, re.IGNORECASE | re.MULTILINE):
        return True
    return _TRANSIENT.search(words) is not None and not is_final(words)


def is_final(words: str) -> bool:
    """Whether trying again is certain to be useless: no credit, no key, a wrong option."""
    return _FINAL.search(words) is not None


def retry_after(words: str, now: float) -> int | None:
    """Milliseconds to wait, when the words say so: a time to wait, or a moment. `now` in seconds since 1970."""
    if at := _RESET_AT.search(words):
        return max(0, round((int(at[1]) - now) * 1000))
    for asked in _ASKED.finditer(words):
        rest = words[asked.end() :]
        found = _until(rest, now)
        if found is None:
            found = _duration(rest, asked["ms"] is not None)
        if found is not None:
            return found
    return None


def _until(text: str, now: float) -> int | None:
    """A moment as an HTTP date or as ISO 8601 with its zone; a clock time without either says too little."""
    when = None
    with contextlib.suppress(ValueError, OverflowError):
        if (found := _HTTP_DATE.match(text)) is not None:
            when = parsedate_to_datetime(found[0])
        elif (found := _ISO_DATE.match(text)) is not None:
            when = datetime.fromisoformat(found[0].replace(" Z", "Z"))
    return None if when is None else max(0, round((when.timestamp() - now) * 1000))


def _duration(text: str, in_ms: bool) -> int | None:
    """`30`, `1.5s`, `6m0s`, `3 days 4 hours`: parts in falling units. A number without a unit is seconds, and ends it."""
    total, last, place = None, float("inf"), 0
    while (part := _PART.match(text, place) or _COMPACT.match(text, place)) is not None:
        unit = (part["unit"] or "").lower()
        if total is not None and not unit:
            break
        name = "ms" if unit.startswith(("ms", "mil")) or (in_ms and not unit) else unit[:1] or "s"
        if _UNIT_MS[name] >= last:
            break
        total = (total or 0) + float(part["n"]) * _UNIT_MS[name]
        last, place = _UNIT_MS[name], part.end()
        if not unit:
            break
    return round(min(total, MOST)) if total is not None else None
