"""How numbers and times are said in sentences. Pure."""

from datetime import UTC, datetime

_MINUTE, _HOUR = 60, 3600
_TEENS = (11, 12, 13)
_ENDINGS = {1: "st", 2: "nd", 3: "rd"}


def duration(seconds: float) -> str:
    """A length of time with as much of it as matters.

    >>> duration(42), duration(600), duration(5400), duration(360_000)
    ('42 s', '10 min', '1.5 h', '100 h')
    """
    if seconds < 2 * _MINUTE:
        return f"{seconds:.0f} s"
    if seconds < _HOUR:
        return f"{seconds / _MINUTE:.0f} min"
    hours = seconds / _HOUR
    return f"{hours:.1f} h" if hours < 24 else f"{hours:.0f} h"


def clock(moment: datetime, beside: datetime | None = None) -> str:
    """The time of day, with its date where that is not ``beside``'s.

    >>> at = datetime(2026, 11, 22, 23, 59, 1, tzinfo=UTC)
    >>> clock(at), clock(at, datetime(2026, 11, 23, tzinfo=UTC))
    ('23:59:01 UTC', '2026-11-22 23:59:01 UTC')
    """
    utc, other = moment.astimezone(UTC), (beside or moment).astimezone(UTC)
    day = "" if other.date() == utc.date() else f"{utc:%Y-%m-%d} "
    return f"{day}{utc:%H:%M:%S} UTC"


def machines(count: int) -> str:
    """A number of machines.

    >>> machines(1), machines(2)
    ('1 machine', '2 machines')
    """
    return f"{count} machine" if count == 1 else f"{count} machines"


def either(count: int, one: str, many: str) -> str:
    """The word that fits a number.

    >>> either(1, "is", "are"), either(2, "is", "are")
    ('is', 'are')
    """
    return one if count == 1 else many


def evictions(count: int) -> str:
    """What the job survived, to be added to a sentence; nothing when there was nothing."""
    return "" if not count else f", {count} eviction{'s' if count > 1 else ''} survived"


def nth(count: int) -> str:
    """An ordinal.

    >>> nth(2), nth(11), nth(23)
    ('2nd', '11th', '23rd')
    """
    ending = "th" if count % 100 in _TEENS else _ENDINGS.get(count % 10, "th")
    return f"{count}{ending}"


def sentence(text: str) -> str:
    """The first line with a capital letter in front and a full stop behind."""
    lines = text.strip().splitlines()
    line = lines[0].strip() if lines else "no reason was given"
    return line[:1].upper() + line[1:] + ("" if line.endswith((".", "!", "?")) else ".")
