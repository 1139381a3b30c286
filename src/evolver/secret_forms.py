"""What is taken for a secret, and the forms in which one may be printed.

Tools do not print a secret as it stands in the environment only: inside JSON it is escaped, inside a URL percent-encoded,
in a Basic header it is a part of something in base64, and a connection string's password turns up alone.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterator
from urllib.parse import quote, quote_plus, unquote, urlsplit

SHORTEST_PART = 8  # bytes of a part of a secret that is looked for alone: a line, a URL's password, a run of base64

_SECRET_NAME = re.compile(
    # KEY, but not where the name is about something else: desktop settings, or where a key's file lies.
    r"KEY(?!BOARD|MAP|SYM|_PATH|_FILE|_DIR|RING)|TOKEN|SECRET|PASSW|PASSPHRASE|CREDENTIAL|AUTHORIZATION"
    r"|(?:^|_)(?:PASS|PAT|AUTH)$|_PWD$",
    re.IGNORECASE,
)
_INNOCENT_NAME = re.compile(r"GIT_CONFIG_KEY_\d+|.*_SOCK|EVOLVER_SINK_.*SECRET_ENV", re.IGNORECASE)

# What encoders leave as it is, besides letters, digits and `-._`: none of the rest, paths, JavaScript's two functions.
_SAFE = ("", "/", "!*'()~", ";,/?:@&=+$-_.!~*'()#")


def is_secret_name(name: str) -> bool:
    """Whether a variable of this name is taken for a secret."""
    return _SECRET_NAME.search(name) is not None and _INNOCENT_NAME.fullmatch(name) is None


def parts(value: str) -> Iterator[str]:
    """The value; the lines of one that has several (a PEM key), since tools print them one by one; the password of a URL."""
    yield value
    if "\n" in value.strip():
        yield from (line for line in value.split("\n") if len(line.strip()) >= SHORTEST_PART)
    elif "://" in value:
        try:
            password = urlsplit(value.strip()).password or ""
        except ValueError:
            return
        yield from (found for found in {password, unquote(password)} if len(found) >= SHORTEST_PART)


def forms(value: str) -> set[bytes]:
    """The value plain and trimmed, escaped as in JSON (both ways), percent-encoded, in base64."""
    plain = value.strip()
    raw = plain.encode("utf-8", "surrogateescape")
    found = {value.encode("utf-8", "surrogateescape"), raw, *_base64(raw)}
    if re.fullmatch(r"[A-Za-z0-9._-]*", plain):
        return found
    for safe in _SAFE:
        encoded = quote(raw, safe=safe)
        found |= {encoded.encode(), re.sub("%..", lambda match: match[0].lower(), encoded).encode()}
    found.add(quote_plus(raw).encode())
    printable = raw.decode("utf-8", "backslashreplace")
    for ascii_only in (True, False):
        escaped = json.dumps(printable, ensure_ascii=ascii_only)[1:-1]
        found |= {escaped.encode(), escaped.replace("/", "\\/").encode()}
    return found | {printable.encode()}


def _base64(raw: bytes) -> Iterator[bytes]:
    """The value encoded by itself, and the characters that stand for it alone wherever it lies in something encoded."""
    if len(raw) < SHORTEST_PART:
        return
    for encode in (base64.b64encode, base64.urlsafe_b64encode):
        yield encode(raw).rstrip(b"=")
        for before in (1, 2):
            # The first group holds what came before as well, the last one what comes after.
            run = encode(b"\0" * before + raw)[4 : (before + len(raw)) // 3 * 4]
            if len(run) >= SHORTEST_PART:
                yield run
        if len(raw) % 3 and len(run := encode(raw)[: len(raw) // 3 * 4]) >= SHORTEST_PART:
            yield run
