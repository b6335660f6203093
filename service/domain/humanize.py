"""Format numbers and times for sentences. Pure."""

from datetime import UTC, datetime

_MINUTE, _HOUR = 60, 3600
_TEENS = (11, 12, 13)
_ENDINGS = {1: "st", 2: "nd", 3: "rd"}


def format_duration(seconds: float) -> str:
    """Format a duration with the precision that matters.

    >>> format_duration(42), format_duration(600), format_duration(5400), format_duration(360_000)
    ('42 s', '10 min', '1.5 h', '100 h')
    """
    if seconds < 2 * _MINUTE:
        return f"{seconds:.0f} s"
    if seconds < _HOUR:
        return f"{seconds / _MINUTE:.0f} min"
    hours = seconds / _HOUR
    return f"{hours:.1f} h" if hours < 24 else f"{hours:.0f} h"


def format_time(moment: datetime, beside: datetime | None = None) -> str:
    """Format the time of day, with its date where that is not ``beside``'s.

    >>> at = datetime(2026, 11, 22, 23, 59, 1, tzinfo=UTC)
    >>> format_time(at), format_time(at, datetime(2026, 11, 23, tzinfo=UTC))
    ('23:59:01 UTC', '2026-11-22 23:59:01 UTC')
    """
    utc, reference = moment.astimezone(UTC), (beside or moment).astimezone(UTC)
    day = "" if reference.date() == utc.date() else f"{utc:%Y-%m-%d} "
    return f"{day}{utc:%H:%M:%S} UTC"


def count_machines(count: int) -> str:
    """Format a number of machines.

    >>> count_machines(1), count_machines(2)
    ('1 machine', '2 machines')
    """
    return f"{count} machine" if count == 1 else f"{count} machines"


def pluralize(count: int, singular: str, plural: str) -> str:
    """Return the word that fits a number.

    >>> pluralize(1, "is", "are"), pluralize(2, "is", "are")
    ('is', 'are')
    """
    return singular if count == 1 else plural


def survived_evictions(count: int) -> str:
    """Return the survived evictions, to end a sentence with; "" for none."""
    return "" if not count else f", {count} eviction{'s' if count > 1 else ''} survived"


def ordinal(count: int) -> str:
    """Format an ordinal.

    >>> ordinal(2), ordinal(11), ordinal(23)
    ('2nd', '11th', '23rd')
    """
    ending = "th" if count % 100 in _TEENS else _ENDINGS.get(count % 10, "th")
    return f"{count}{ending}"


def as_sentence(text: str) -> str:
    """Return the first line, capitalised and with a full stop."""
    lines = text.strip().splitlines()
    line = lines[0].strip() if lines else "no reason was given"
    return line[:1].upper() + line[1:] + ("" if line.endswith((".", "!", "?")) else ".")
