"""UUIDv7 (RFC 9562), which the standard library of Python 3.11 lacks: sortable by time, random beyond it."""

from __future__ import annotations

import os
import time
import uuid


def uuid7() -> str:
    """48 bits of Unix milliseconds, 12 bits of the millisecond's fraction, 62 random bits; in the usual notation."""
    ms, rest = divmod(time.time_ns(), 1_000_000)
    fraction = (rest << 12) // 1_000_000
    random = int.from_bytes(os.urandom(8), "big") & ((1 << 62) - 1)
    value = (ms & ((1 << 48) - 1)) << 80 | 0x7 << 76 | fraction << 64 | 0b10 << 62 | random
    return str(uuid.UUID(int=value))
