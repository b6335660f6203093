"""Machines of a project or of all: offerings, attempts and the queue, from rows alone."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal

from sqlalchemy.ext.asyncio import AsyncConnection

from service.db.cloud import fleet
from service.db.cloud.fleet import FleetRows
from service.db.cloud.offerings import of as offering_of
from service.db.cloud.offerings import values
from service.db.money import price_doubts
from service.db.projects.keys import Caller
from service.db.queue import quotas
from service.domain.cloud.fleet import Offering
from service.domain.queue.admission import RegionCores
from service.domain.spot.capacity_traces import SpotPool
from service.domain.states import CapacityType
from service.operations.projects import operators


@dataclass(frozen=True, kw_only=True)
class Overview:
    """The rows, and what is known of the offerings' prices and cores."""

    rows: FleetRows
    prices: Mapping[SpotPool, Mapping[CapacityType, Decimal]]
    cores: Mapping[str, RegionCores]  # by pool
    all_projects: bool


async def overview(
    conn: AsyncConnection,
    caller: Caller,
    offerings: Sequence[Offering],
    operator_project: str,
    now: datetime,
) -> Overview:
    """Return the overview of the caller's project; for operators, of all projects."""
    is_operator = await operators.is_operator(conn, caller, operator_project)
    project = None if is_operator else caller.project_id
    rows = await fleet.read_fleet(conn, project, [values(o) for o in dict.fromkeys(offerings)])
    pools = dict.fromkeys(SpotPool(o.region, o.vm_size) for o in map(offering_of, rows.capacity))
    return Overview(
        rows=rows,
        prices={pool: await price_doubts.last_good_prices(conn, pool, now) for pool in pools},
        cores=await quotas.regions(conn, now),
        all_projects=is_operator,
    )
