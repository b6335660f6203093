"""Sortable ids with OpenAI's prefixes: 48 bits of milliseconds, then randomness, in base 32."""

import secrets
from datetime import datetime

_ALPHABET = "0123456789abcdefghjkmnpqrstvwxyz"  # Crockford's, lower case: fits a container name
_LENGTH = 26


def new_id(prefix: str, now: datetime) -> str:
    """A fresh id, e.g. ``ftjob-01jd8m4x9g5v0c3k2n7p6q8r1s``; later ids sort after earlier."""
    number = (int(now.timestamp() * 1000) << 80) | secrets.randbits(80)
    digits = []
    for _ in range(_LENGTH):
        number, digit = divmod(number, 32)
        digits.append(_ALPHABET[digit])
    return f"{prefix}-{''.join(reversed(digits))}"
