"""Sortable ids with OpenAI's prefixes: 48 bits of milliseconds, then randomness, in base 32."""

import secrets
from datetime import datetime

_ALPHABET = "0123456789abcdefghjkmnpqrstvwxyz"  # Crockford's, lower case: fits a container name
_PAIRS = [a + b for a in _ALPHABET for b in _ALPHABET]
_LENGTH = 26


def new_id(prefix: str, now: datetime) -> str:
    """A fresh id, e.g. ``ftjob-01jd8m4x9g5v0c3k2n7p6q8r1s``; later ids sort after earlier."""
    number = (int(now.timestamp() * 1000) << 80) | secrets.randbits(80)
    pairs = [_PAIRS[number >> 5 * at & 1023] for at in range(_LENGTH - 2, -1, -2)]
    return f"{prefix}-{''.join(pairs)}"
