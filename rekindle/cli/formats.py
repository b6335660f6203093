"""Format numbers, times, sizes and job states for people."""

from collections.abc import Mapping
from datetime import UTC, datetime, tzinfo
from decimal import Decimal, InvalidOperation
from typing import Any

from contract.printable import printable

NOTHING = "-"
_SIGNS = {"USD": "$", "EUR": "€", "GBP": "£"}
_PHASES = {
    "validating": "Checking files",
    "validating_files": "Checking files",
    "queued": "Queued",
    "waiting_capacity": "Waiting for capacity",
    "provisioning": "Creating machines",
    "starting": "Starting machines",
    "booting": "Booting machines",
    "loading": "Loading the model",
    "training": "Training",
    "running": "Training",
    "saving": "Saving a checkpoint",
    "migrating": "Migrating to other machines",
    "recovering": "Recovering after an interruption",
    "pausing": "Pausing",
    "paused": "Paused",
    "cancelling": "Cancelling",
    "succeeded": "Succeeded",
    "failed": "Failed",
    "cancelled": "Cancelled",
}
STYLES = {
    "succeeded": "green",
    "failed": "bold red",
    "cancelled": "yellow",
    "paused": "yellow",
    "recovering": "yellow",
    "running": "cyan",
}
OVER = ("succeeded", "failed", "cancelled")


def is_over(job: Mapping[str, Any]) -> bool:
    """Return whether the job has succeeded, failed or been cancelled."""
    return job.get("status") in OVER


def status(job: Mapping[str, Any]) -> str:
    """Return OpenAI's status, or `paused`, which OpenAI does not have."""
    return "paused" if job.get("phase") == "paused" else str(job.get("status") or "")


def phase(job: Mapping[str, Any]) -> str:
    """Return the job's phase in words, such as `Loading the model`."""
    word = str(job.get("status") or "")
    word = word if word in OVER else str(job.get("phase") or word)
    return _PHASES.get(word, word.replace("_", " ").capitalize() or NOTHING)


def reason(job: Mapping[str, Any]) -> str:
    """Return the message of the job's status_reason; empty if it only repeats the status."""
    said = part(job, "status_reason").get("message")
    return str(said) if said and str(said) not in (job.get("status"), job.get("phase")) else ""


def part(thing: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    """Return a member that is an object; an empty object if an older service lacks it."""
    value = thing.get(name)
    return value if isinstance(value, dict) else {}


def money(amount: object, currency: object = "USD") -> str:
    """Format an amount such as `$12.34`; four decimals below one dollar."""
    try:
        value = Decimal(str(amount))
    except InvalidOperation:
        return NOTHING
    digits = f"{abs(value):,.4f}" if abs(value) < 1 and value else f"{abs(value):,.2f}"
    sign = "-" if value < 0 else ""
    known = _SIGNS.get(str(currency))
    return f"{sign}{known}{digits}" if known else f"{sign}{digits} {currency}"


def duration(seconds: object) -> str:
    """Format seconds as `42 s`, `3 min 20 s`, `2 h 05 min` or `3 d 4 h`."""
    if not isinstance(seconds, int | float):
        return NOTHING
    left = max(round(seconds), 0)
    if left < 60:
        return f"{left} s"
    if left < 3600:
        return f"{left // 60} min {left % 60:02} s"
    if left < 86_400:
        return f"{left // 3600} h {left % 3600 // 60:02} min"
    return f"{left // 86_400} d {left % 86_400 // 3600} h"


def ago(moment: object, now: float) -> str:
    """Format the time since a Unix timestamp, such as `3 min 20 s ago`."""
    return f"{duration(now - moment)} ago" if isinstance(moment, int | float) else NOTHING


def clock(moment: object, zone: tzinfo | None = None, *, day: bool = False) -> str:
    """Format a Unix timestamp as local time of day; with ``day``, as date and time."""
    if not isinstance(moment, int | float):
        return NOTHING
    local = datetime.fromtimestamp(moment, UTC).astimezone(zone)
    return local.strftime("%Y-%m-%d %H:%M:%S" if day else "%H:%M:%S")


def size(count: object) -> str:
    """Format bytes, such as `1.2 GB`."""
    if not isinstance(count, int | float):
        return NOTHING
    value = float(count)
    for unit in ("B", "kB", "MB", "GB"):
        if value < 1000:
            return f"{value:.0f} B" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1000
    return f"{value:.1f} TB"


def number(value: object, digits: int = 0) -> str:
    """Format a number, such as `1,280` or `2.314`; a dash for None."""
    return f"{value:,.{digits}f}" if isinstance(value, int | float) else NOTHING


def count(n: int, noun: str) -> str:
    """Format a count with its noun, such as `1 eviction` or `2 evictions`."""
    return f"{n:,} {noun}" if n == 1 else f"{n:,} {noun}s"


def safe(text: object) -> str:
    """Put untrusted text on one line and escape control and hidden characters."""
    return printable(" ".join(str(text).splitlines()))
