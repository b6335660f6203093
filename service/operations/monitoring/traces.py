"""Capacity traces: what the service's own attempts observed of Spot capacity."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from sqlalchemy.ext.asyncio import AsyncConnection

from service.db.spot import capacity_observations
from service.domain.spot.capacity_traces import (
    CapacitySample,
    CapacityTrace,
    HeldMachine,
    SpotPool,
    TraceWindow,
    build_trace,
)


@dataclass(frozen=True, kw_only=True)
class ObservedCapacity:
    """The rows of a window; traces are computed from them after the connection is released."""

    window: TraceWindow
    held_machines: Mapping[SpotPool, Sequence[HeldMachine]]
    samples: Mapping[SpotPool, Sequence[CapacitySample]]

    def traces(self, pools: Sequence[SpotPool]) -> list[CapacityTrace]:
        """Return one trace for each pool with data, in this order; takes a while."""
        capacity_traces = (
            build_trace(
                pool, self.window, self.held_machines.get(pool, ()), self.samples.get(pool, ())
            )
            for pool in pools
        )
        return [trace for trace in capacity_traces if trace is not None]


async def read_capacity(
    conn: AsyncConnection, pools: Collection[SpotPool], window: TraceWindow
) -> ObservedCapacity:
    """Read what attempts observed of these pools in this window."""
    if not pools:
        return ObservedCapacity(window=window, held_machines={}, samples={})
    until = window.begins + window.ticks * window.gap
    holds = await capacity_observations.held_machines(conn, pools, window.begins, until)
    observations = await capacity_observations.observations(conn, pools, window.begins, until)
    return ObservedCapacity(window=window, held_machines=holds, samples=observations)
