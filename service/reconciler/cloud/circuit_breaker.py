"""Stop calls to a region that fails; after a pause one replica probes it for all."""

import logging
import random
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy.ext.asyncio import AsyncEngine

from service.cloud.provider import CloudError, Throttled
from service.db.cloud import circuit_breaker
from service.domain.cloud.circuit_breaker import FAILURES

log = logging.getLogger(__name__)
_SHORTEST_WAIT = 1.0  # seconds, while another replica tries


class CircuitOpen(Throttled):
    """The call was not made: the region fails; retry after the pause."""


@dataclass(frozen=True, kw_only=True)
class Admission:
    """A call that may be made."""

    is_region_failing: bool  # the region has failed since its last answer
    is_probe: bool = False  # no other call is made there meanwhile


@dataclass(frozen=True, kw_only=True)
class CircuitBreaker:
    """The circuits of all regions, in PostgreSQL."""

    engine: AsyncEngine
    now: Callable[[], datetime]

    async def admit(self, region: str) -> Admission:
        """Let a call to the region pass. Raises CircuitOpen."""
        async with self.engine.connect() as conn:
            circuit = await circuit_breaker.find(conn, region)
        if circuit.shut_until is None:
            return Admission(is_region_failing=circuit.failures > 0)
        async with self.engine.begin() as conn:
            if await circuit_breaker.claim_probe(conn, region, self.now()):
                return Admission(is_region_failing=True, is_probe=True)
        wait = max((circuit.shut_until - self.now()).total_seconds(), _SHORTEST_WAIT)
        raise CircuitOpen(f"Azure fails in {region}; it is asked again later", "", wait)

    async def record(self, region: str, fault: CloudError | None, call: Admission) -> None:
        """Count a failure of the region; an answer, also any other error, closes the circuit."""
        answered = type(fault) not in (CloudError, Throttled)
        if answered and not call.is_region_failing:
            return  # nothing to close
        async with self.engine.begin() as conn:
            if answered:
                await circuit_breaker.record_success(conn, region)
                return
            jitter = random.random()  # noqa: S311 - no secret
            arguments = (conn, region, self.now(), jitter)
            circuit = await circuit_breaker.record_failure(*arguments, probed=call.is_probe)
        if circuit.failures == FAILURES:
            log.warning("cloud.region_fails", extra={"region": region, "cause": str(fault)})
