"""The chain's bytes: how a line is sealed, and how one is checked without serialising it again.

A line is a JSON object on one line that ends with the fixed-length tail `,"hash":"<64 lowercase hex>"}` and a newline.
`hash` is SHA-256 over `DOMAIN` and everything of the line before that tail. A checker slices from the end, so it depends
on no JSON library's taste in spaces, escapes or key order.
"""

from __future__ import annotations

import re
from hashlib import sha256

DOMAIN = b"evolver.event.v1\0"
CHAIN_VERSION = 1
ZERO = "0" * 64  # `prevhash` of the very first line

TAIL_START = b',"hash":"'
TAIL_END = b'"}'
TAIL = len(TAIL_START) + 64 + len(TAIL_END)  # without the newline

_SEALED = re.compile(rb',"chainversion":(\d+),"prevhash":"([0-9a-f]{64})"\Z')
_HEX = re.compile(rb"[0-9a-f]{64}\Z")
PREV_FIELD = len(b',"prevhash":"') + 64 + 1  # what stands right before the tail


def digest(body: bytes) -> str:
    """The hash of a line's bytes before its tail."""
    return sha256(DOMAIN + body).hexdigest()


def seal(body: bytes) -> tuple[bytes, str]:
    """`body` is a JSON object without its closing brace, ending in `prevhash`; the whole line and its hash."""
    found = digest(body)
    return body + TAIL_START + found.encode() + TAIL_END + b"\n", found


def stated(line: bytes) -> tuple[int, str, str] | None:
    """What a line (without newline) says of itself: chain version, prevhash, hash. None: its shape is not ours."""
    tail = line[-TAIL:]
    if not tail.startswith(TAIL_START) or not tail.endswith(TAIL_END) or not _HEX.match(tail[len(TAIL_START) : -len(TAIL_END)]):
        return None
    match = _SEALED.search(line, max(0, len(line) - TAIL - PREV_FIELD - 40), len(line) - TAIL)
    if match is None:
        return None
    return int(match[1]), match[2].decode(), tail[len(TAIL_START) : -len(TAIL_END)].decode()


def intact(line: bytes) -> bool:
    """Whether the line's hash is the hash of its bytes (not whether it follows the line before it)."""
    said = stated(line)
    return said is not None and said[0] == CHAIN_VERSION and digest(line[:-TAIL]) == said[2]
