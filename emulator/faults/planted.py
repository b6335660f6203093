"""Faults that are planted: which there are, what they meet, how often they strike.

Planted by `/_emulator/faults`, kept in the state file, so that a restart forgets none.
"""

import re
import uuid
from collections.abc import Iterable
from dataclasses import dataclass, fields
from typing import Any

from emulator.core.errors import invalid
from emulator.core.state import EmulatorState, FaultRow
from emulator.machines.pull_refusals import CODES

# What a fault can be, and what it does. The first four meet any request, the others an order.
ANSWERS = {
    "throttle": "429 with Retry-After (`retry_after`) and Azure's rate limit headers",
    "error": "`status` (500, 502, 503 ...), in JSON with `code` and `message`; 502 is a page",
    "drop": "the connection breaks; `when`: before or after the request was carried out",
    "slow": "the answer takes `delay` seconds; `when`: before or after it was carried out",
}
ORDERS = {
    "sku_not_available": "a create is refused at once: the size is not to be had in the region",
    "quota": "a create is refused at once: the region's quota is used up (`code`)",
    "allocation_failed": "a create is accepted and fails after `delay` seconds with `code`",
    "policy": "a create is denied at once by the Azure Policy `policy`: 403, additionalInfo",
    "partial": "like allocation_failed, with `instances` of its machines up and running",
    "failed_instances": "like partial, but those that fail stay in the list with `code`",
    "stragglers": "`instances` of a create's machines come `delay` seconds after the others",
    "delete_fails": "a delete is accepted and fails; everything stays as it was",
    "delete_hangs": "a delete is accepted and takes `delay` seconds, or until the fault is cleared",
}
PULLS = {"pull_fails": f"a VM's docker pull fails; `code`: {', '.join(CODES)}"}
KINDS = ANSWERS | ORDERS | PULLS
ORDINARY = re.compile(r"/subscriptions/", re.IGNORECASE)  # met when no path is given
TYPES = {"count": int, "status": int, "retry_after": int, "instances": int}
NUMBERS = ("seconds", "delay")


@dataclass(frozen=True, kw_only=True)
class FaultTarget:
    """What a fault may meet: a request, or an order for a scale set."""

    method: str
    path: str
    region: str = ""
    vm_size: str = ""


def plant(state: EmulatorState, body: dict[str, Any], now: float) -> FaultRow:
    """Keep a new fault; ArmError for what is none."""
    members = dict(body)
    if members.get("kind") not in KINDS:
        raise invalid(f"'kind' must be one of {', '.join(KINDS)}, not {members.get('kind')!r}.")
    if members["kind"] in PULLS and members.get("code") not in CODES:
        raise invalid(f"'code' of a pull that fails must be one of {', '.join(CODES)}.")
    seconds = members.pop("seconds", None)
    allowed = {field.name for field in fields(FaultRow)} - {"id", "until", "struck"}
    if unknown := sorted(set(members) - allowed):
        raise invalid(f"A fault has no member {unknown[0]!r}; it has {', '.join(sorted(allowed))}.")
    for name, value in {**members, "seconds": seconds}.items():
        _check(name, value)
    until = None if seconds is None else now + seconds
    fault = FaultRow(id=uuid.uuid4().hex, until=until, **members)
    return state.put(fault)


def take_fault(
    state: EmulatorState, kinds: Iterable[str], target: FaultTarget, now: float
) -> FaultRow | None:
    """Return the first fault of these kinds that matches the target, counting one more strike."""
    accepted = set(kinds)
    for fault in state.faults.values():
        if fault.kind in accepted and fault.live(now) and _matches(fault, target):
            return state.change(fault, struck=fault.struck + 1)
    return None


def clear(state: EmulatorState, name: str, now: float) -> list[str]:
    """Forget one fault, or all; what they hold up goes on."""
    faults = [fault for fault in state.faults.values() if name in ("", fault.id)]
    for cleared in faults:
        state.remove(cleared)
        for operation in state.operations.values():
            if operation.held_by == cleared.id:
                state.change(operation, due_at=min(operation.due_at, now))
    return [fault.id for fault in faults]


def _check(name: str, value: Any) -> None:  # noqa: ANN401 - as it came
    if value is None:
        return
    kind: Any = TYPES.get(name, (int, float) if name in NUMBERS else str)
    if not isinstance(value, kind) or isinstance(value, bool):
        raise invalid(f"'{name}' of a fault cannot be {value!r}.")
    if not isinstance(value, str) and value < 0:
        raise invalid(f"'{name}' of a fault cannot be less than nothing.")
    if name == "when" and value not in ("before", "after"):
        raise invalid("'when' of a fault must be before or after.")
    if name == "path":
        try:
            re.compile(value)
        except re.error as error:
            raise invalid(f"'path' of a fault is no regular expression: {error}.") from error


def _matches(fault: FaultRow, target: FaultTarget) -> bool:
    path = re.compile(fault.path, re.IGNORECASE) if fault.path else ORDINARY
    return (
        path.search(target.path) is not None
        and fault.method.lower() in ("", target.method.lower())
        and fault.region.lower() in ("", target.region.lower())
        and fault.vm_size.lower() in ("", target.vm_size.lower())
    )
