"""Parse OpenAI's `expires_after` of an upload form."""

from typing import Final

from service.domain.errors import InvalidRequest, MissingParameter

ANCHOR: Final = "created_at"
SHORTEST_SECONDS: Final = 3600
LONGEST_SECONDS: Final = 30 * 86_400
ANCHOR_FIELD: Final = "expires_after[anchor]"
SECONDS_FIELD: Final = "expires_after[seconds]"


def parse_form(anchor: str | None, seconds: str | None) -> int | None:
    """Return the seconds after which the file expires; None without the fields."""
    if anchor is None and seconds is None:
        return None
    if anchor is None or seconds is None:
        missing = ANCHOR_FIELD if anchor is None else SECONDS_FIELD
        raise MissingParameter(
            f"{missing}: missing. Send both {ANCHOR_FIELD} and {SECONDS_FIELD}.",
            param=missing,
        )
    if anchor != ANCHOR:
        raise InvalidRequest(f"{ANCHOR_FIELD}: use {ANCHOR!r}.", param=ANCHOR_FIELD)
    number = int(seconds) if seconds.isdecimal() and len(seconds) < 10 else 0
    if not SHORTEST_SECONDS <= number <= LONGEST_SECONDS:
        raise InvalidRequest(
            f"{SECONDS_FIELD}: use a whole number from {SHORTEST_SECONDS} to {LONGEST_SECONDS}.",
            param=SECONDS_FIELD,
        )
    return number
