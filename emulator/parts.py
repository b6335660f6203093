"""What a part of Azure brings to the emulator. Each part has one `PART`, in its `routes.py`."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from emulator.fabric import Chore

Route = tuple[str, str, Callable[..., Any]]  # verb, path, handler

SUBSCRIPTION = "/subscriptions/{subscription}"
GROUP = SUBSCRIPTION + "/resourceGroups/{group}"
COMPUTE = "/providers/Microsoft.Compute"


@dataclass(frozen=True, kw_only=True)
class AzurePart:
    """Where it answers, and what it does as time passes."""

    arm: Sequence[Route] = ()  # over TLS, in the place of Azure's public addresses
    metadata: Sequence[Route] = ()  # over plain http, in the place of 169.254.169.254
    admin: Sequence[Route] = ()  # on both doors: routes of localhost only
    chores: Sequence[Chore] = ()  # done in each step, in this order
