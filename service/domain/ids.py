"""Create sortable ids with OpenAI's prefixes: 48 bits of milliseconds, then randomness, base 32."""

import secrets
from datetime import datetime

_ALPHABET = "0123456789abcdefghjkmnpqrstvwxyz"  # Crockford's, lower case: fits a container name
_PAIRS = [a + b for a in _ALPHABET for b in _ALPHABET]
_LENGTH = 26


def new_id(prefix: str, now: datetime) -> str:
    """Return a fresh id, e.g. ``ftjob-01jd8m4x9g5v0c3k2n7p6q8r1s``; ids sort by time."""
    return _format_id(prefix, now, secrets.randbits(80))


def lower_bound_id(prefix: str, at: datetime) -> str:
    """Return a bound that every id created ``at`` this moment or later sorts after."""
    return _format_id(prefix, at, 0)


def _format_id(prefix: str, at: datetime, random_bits: int) -> str:
    number = (int(at.timestamp() * 1000) << 80) | random_bits
    pairs = [_PAIRS[number >> 5 * position & 1023] for position in range(_LENGTH - 2, -1, -2)]
    return f"{prefix}-{''.join(pairs)}"
