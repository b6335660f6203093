"""Stop calls to a region that fails; after a pause one replica probes it for all."""

import asyncio
import logging
import random
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from sqlalchemy.ext.asyncio import AsyncEngine

from service.cloud.provider import CloudError, Throttled
from service.db.cloud import circuit_breaker
from service.domain.cloud.circuit_breaker import FAILURES, Circuit

log = logging.getLogger(__name__)
_LIFE = timedelta(seconds=1)  # time for which a circuit is cached
_SHORTEST_WAIT = 1.0  # seconds, while another replica tries


class CircuitOpen(Throttled):
    """The call was not made: the region fails; retry after the pause."""


@dataclass
class CircuitBreaker:
    """The circuits of all regions, as this process has read them from PostgreSQL."""

    engine: AsyncEngine
    now: Callable[[], datetime]
    _known: dict[str, tuple[Circuit, datetime]] = field(default_factory=dict)
    _reading: defaultdict[str, asyncio.Lock] = field(
        default_factory=lambda: defaultdict(asyncio.Lock)
    )

    async def admit(self, region: str) -> bool:
        """Let a call to the region pass; True: it is the probe. Raises CircuitOpen."""
        circuit = await self._circuit(region)
        if not circuit.is_tried:
            return False
        async with self.engine.begin() as conn:
            if await circuit_breaker.claim_probe(conn, region, self.now()):
                return True
        until = circuit.shut_until or self.now()
        wait = max((until - self.now()).total_seconds(), _SHORTEST_WAIT)
        raise CircuitOpen(f"Azure fails in {region}; it is asked again later", "", wait)

    async def record_failure(self, region: str, fault: CloudError, *, probed: bool) -> None:
        """Count a failure of the region; any other error is an answer and closes the circuit."""
        if type(fault) not in (CloudError, Throttled):
            await self.record_success(region)
            return
        jitter = random.random()  # noqa: S311 - no secret
        async with self.engine.begin() as conn:
            circuit = await circuit_breaker.record_failure(
                conn, region, self.now(), jitter, probed=probed
            )
        self._known[region] = (circuit, self.now() + _LIFE)
        if circuit.failures == FAILURES:
            log.warning("cloud.region_fails", extra={"region": region, "cause": str(fault)})

    async def record_success(self, region: str) -> None:
        """Close the circuit after an answer."""
        known, _ = self._known.get(region, (Circuit(), self.now()))
        if known.failures:
            async with self.engine.begin() as conn:
                await circuit_breaker.record_success(conn, region)
            self._known.pop(region, None)  # a concurrent answer may have removed it

    async def _circuit(self, region: str) -> Circuit:
        async with self._reading[region]:  # else each of many calls would read it
            known, until = self._known.get(region, (Circuit(), self.now()))
            if until > self.now():
                return known
            async with self.engine.connect() as conn:
                circuit = await circuit_breaker.find(conn, region)
            self._known[region] = (circuit, self.now() + _LIFE)
            return circuit
