"""The wire between nodes and service: it loses, doubles and delays requests and answers."""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random
from typing import TYPE_CHECKING, Any

import httpx

if TYPE_CHECKING:
    from tests.scenario.replicas import Replicas

_LOST, _UNANSWERED, _DOUBLED, _LATE = 0.05, 0.10, 0.15, 0.20  # bounds of what the dice say


@dataclass
class NodeWire:
    """Carries the requests of all nodes; faultless until ``is_faulty`` is set."""

    replicas: Replicas
    dice: Random
    is_faulty: bool = False
    late: list[dict[str, Any]] = field(default_factory=list)

    async def send_request(self, **request: Any) -> httpx.Response | None:  # noqa: ANN401 - httpx's own
        """Send a request; None when no useful answer came, though it may be heard, now or later."""
        draw = self.dice.random() if self.is_faulty else 1.0
        if draw < _LOST:
            return None
        if _DOUBLED <= draw < _LATE:
            self.late.append(request)
            return None
        answer = await self.replicas.send_request(**request)
        if draw < _UNANSWERED:
            return None
        return await self.replicas.send_request(**request) if draw < _DOUBLED else answer

    async def deliver_late(self) -> None:
        """Deliver what is still on its way; nobody waits for the answers any more."""
        late, self.late = self.late, []
        self.dice.shuffle(late)
        for request in late:
            await self.replicas.send_request(**request)
