"""Format numbers, times, sizes and job states for people."""

from collections.abc import Mapping
from datetime import UTC, datetime, tzinfo
from decimal import Decimal, InvalidOperation
from typing import Any

from contract.printable import printable

DASH = "-"
_CURRENCY_SIGNS = {"USD": "$", "EUR": "€", "GBP": "£"}
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
FINAL_STATUSES = ("succeeded", "failed", "cancelled")


def has_ended(job: Mapping[str, Any]) -> bool:
    """Return whether the job has succeeded, failed or been cancelled."""
    return job.get("status") in FINAL_STATUSES


def status(job: Mapping[str, Any]) -> str:
    """Return OpenAI's status, or `paused`, which OpenAI does not have."""
    return "paused" if job.get("phase") == "paused" else str(job.get("status") or "")


def phase(job: Mapping[str, Any]) -> str:
    """Return the job's phase in words, such as `Loading the model`."""
    name = str(job.get("status") or "")
    name = name if name in FINAL_STATUSES else str(job.get("phase") or name)
    return _PHASES.get(name, name.replace("_", " ").capitalize() or DASH)


def reason(job: Mapping[str, Any]) -> str:
    """Return the message of the job's status_reason; empty if it only repeats the status."""
    message = object_member(job, "status_reason").get("message")
    return (
        str(message)
        if message and str(message) not in (job.get("status"), job.get("phase"))
        else ""
    )


def object_member(document: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    """Return a member that is an object; an empty object if an older service lacks it."""
    value = document.get(name)
    return value if isinstance(value, dict) else {}


def money(amount: object, currency: object = "USD") -> str:
    """Format an amount such as `$12.34`; four decimals below one dollar."""
    try:
        value = Decimal(str(amount))
    except InvalidOperation:
        return DASH
    digits = f"{abs(value):,.4f}" if abs(value) < 1 and value else f"{abs(value):,.2f}"
    sign = "-" if value < 0 else ""
    symbol = _CURRENCY_SIGNS.get(str(currency))
    return f"{sign}{symbol}{digits}" if symbol else f"{sign}{digits} {currency}"


def duration(seconds: object) -> str:
    """Format seconds as `42 s`, `3 min 20 s`, `2 h 05 min` or `3 d 4 h`."""
    if not isinstance(seconds, int | float):
        return DASH
    total = max(round(seconds), 0)
    if total < 60:
        return f"{total} s"
    if total < 3600:
        return f"{total // 60} min {total % 60:02} s"
    if total < 86_400:
        return f"{total // 3600} h {total % 3600 // 60:02} min"
    return f"{total // 86_400} d {total % 86_400 // 3600} h"


def time_since(moment: object, now: float) -> str:
    """Format the time since a Unix timestamp, such as `3 min 20 s ago`."""
    return f"{duration(now - moment)} ago" if isinstance(moment, int | float) else DASH


def local_time(moment: object, zone: tzinfo | None = None, *, day: bool = False) -> str:
    """Format a Unix timestamp as local time of day; with ``day``, as date and time."""
    if not isinstance(moment, int | float):
        return DASH
    local = datetime.fromtimestamp(moment, UTC).astimezone(zone)
    return local.strftime("%Y-%m-%d %H:%M:%S" if day else "%H:%M:%S")


def size(count: object) -> str:
    """Format bytes, such as `1.2 GB`."""
    if not isinstance(count, int | float):
        return DASH
    value = float(count)
    for unit in ("B", "kB", "MB", "GB"):
        if value < 1000:
            return f"{value:.0f} B" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1000
    return f"{value:.1f} TB"


def number(value: object, digits: int = 0) -> str:
    """Format a number, such as `1,280` or `2.314`; a dash for None."""
    return f"{value:,.{digits}f}" if isinstance(value, int | float) else DASH


def count(n: int, noun: str) -> str:
    """Format a count with its noun, such as `1 eviction` or `2 evictions`."""
    return f"{n:,} {noun}" if n == 1 else f"{n:,} {noun}s"


def printable_line(text: object) -> str:
    """Put untrusted text on one line and escape control and hidden characters."""
    return printable(" ".join(str(text).splitlines()))
