"""Moments as ARM writes them."""

from datetime import UTC, datetime


def timestamp(at: float) -> str:
    """ISO 8601 with an offset; ``at`` in unix seconds."""
    return datetime.fromtimestamp(at, UTC).isoformat()
