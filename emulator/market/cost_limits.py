"""How often Cost Management may be asked: its own limits, told in headers of its own.

Microsoft counts query units: here one for each call, twelve in ten seconds, sixty in a minute,
six hundred in an hour. They are counted in memory, and only with `--throttling azure`.
"""

from collections import deque
from weakref import WeakKeyDictionary

from starlette.responses import JSONResponse, Response

from emulator.fabric import Fabric

WINDOWS = (
    ("QueriesPerHour", 3600.0, 600),
    ("QueriesPerMin", 60.0, 60),
    ("QueriesPer10Sec", 10.0, 12),
)
PREFIX = "x-ms-ratelimit-microsoft.costmanagement-qpu"
_CALLS: WeakKeyDictionary[Fabric, dict[str, deque[float]]] = WeakKeyDictionary()


def refuse(fabric: Fabric, subscription: str) -> Response | None:
    """Count a call; the answer to one too many, or None."""
    if fabric.settings.throttling != "azure":
        return None
    now, by_subscription = fabric.now(), _CALLS.setdefault(fabric, {})
    calls = by_subscription.setdefault(subscription.lower(), deque())
    while calls and calls[0] <= now - WINDOWS[0][1]:
        calls.popleft()
    waits, remaining = [], []
    for name, seconds, most in WINDOWS:
        recent = [at for at in calls if at > now - seconds]
        remaining.append(f"{name}:{max(most - len(recent), 0)}")
        if len(recent) >= most:
            waits.append(recent[-most] + seconds - now)
    if not waits:
        calls.append(now)
        return None
    headers = {
        f"{PREFIX}-retry-after": str(max(int(max(waits)) + 1, 1)),
        f"{PREFIX}-consumed": "1",
        f"{PREFIX}-remaining": ",".join(remaining),
    }
    error = {"code": "429", "message": "Too many requests. Please retry."}
    return JSONResponse({"error": error}, status_code=429, headers=headers)
