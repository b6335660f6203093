"""Numbers, times and machine words as a person reads them."""

from collections.abc import Mapping
from datetime import UTC, datetime, tzinfo
from decimal import Decimal, InvalidOperation
from typing import Any

from contract.printable import printable

NOTHING = "-"
_SIGNS = {"USD": "$", "EUR": "€", "GBP": "£"}
_PHASES = {
    "validating": "Checking the files",
    "validating_files": "Checking the files",
    "queued": "Waiting for its turn",
    "waiting_capacity": "Looking for machines",
    "provisioning": "Machines are being made",
    "starting": "Machines are starting",
    "booting": "Machines are booting",
    "loading": "Loading the model",
    "training": "Training",
    "running": "Training",
    "saving": "Saving a checkpoint",
    "migrating": "Moving to other machines",
    "recovering": "Coming back after an interruption",
    "pausing": "Saving, then pausing",
    "paused": "Paused",
    "cancelling": "Being cancelled",
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
    """Whether the job has its final answer."""
    return job.get("status") in OVER


def status(job: Mapping[str, Any]) -> str:
    """OpenAI's status, or `paused`, for which OpenAI has none."""
    return "paused" if job.get("phase") == "paused" else str(job.get("status") or "")


def phase(job: Mapping[str, Any]) -> str:
    """What it is doing, in words."""
    word = str(job.get("status") or "")
    word = word if word in OVER else str(job.get("phase") or word)
    return _PHASES.get(word, word.replace("_", " ").capitalize() or NOTHING)


def reason(job: Mapping[str, Any]) -> str:
    """Why it is where it is: the service's own sentence; empty when it says no more than that."""
    said = part(job, "status_reason").get("message")
    return str(said) if said and str(said) not in (job.get("status"), job.get("phase")) else ""


def part(thing: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    """A member that is an object; empty where an older service does not have it."""
    value = thing.get(name)
    return value if isinstance(value, dict) else {}


def money(amount: object, currency: object = "USD") -> str:
    """`$12.34`; with four digits below a dollar."""
    try:
        value = Decimal(str(amount))
    except InvalidOperation:
        return NOTHING
    digits = f"{abs(value):,.4f}" if abs(value) < 1 and value else f"{abs(value):,.2f}"
    sign = "-" if value < 0 else ""
    known = _SIGNS.get(str(currency))
    return f"{sign}{known}{digits}" if known else f"{sign}{digits} {currency}"


def duration(seconds: object) -> str:
    """`42 s`, `3 min 20 s`, `2 h 05 min`, `3 d 4 h`."""
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
    """`3 min 20 s ago`."""
    return f"{duration(now - moment)} ago" if isinstance(moment, int | float) else NOTHING


def clock(moment: object, zone: tzinfo | None = None, *, day: bool = False) -> str:
    """The time of day by this machine's own zone, with the date where it matters."""
    if not isinstance(moment, int | float):
        return NOTHING
    local = datetime.fromtimestamp(moment, UTC).astimezone(zone)
    return local.strftime("%Y-%m-%d %H:%M:%S" if day else "%H:%M:%S")


def size(count: object) -> str:
    """`1.2 GB`."""
    if not isinstance(count, int | float):
        return NOTHING
    value = float(count)
    for unit in ("B", "kB", "MB", "GB"):
        if value < 1000:
            return f"{value:.0f} B" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1000
    return f"{value:.1f} TB"


def number(value: object, digits: int = 0) -> str:
    """`1,280` or `2.314`; a dash where there is none."""
    return f"{value:,.{digits}f}" if isinstance(value, int | float) else NOTHING


def count(n: int, noun: str) -> str:
    """`1 eviction`, `2 evictions`."""
    return f"{n:,} {noun}" if n == 1 else f"{n:,} {noun}s"


def safe(text: object) -> str:
    """Text of strangers on one line; what would move the cursor or hide is shown."""
    return printable(" ".join(str(text).splitlines()))
