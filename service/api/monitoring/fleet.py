"""/v1/organization/fleet and /prices: machines, capacity and Spot prices, from rows alone."""

from datetime import timedelta
from decimal import Decimal
from typing import Annotated, Any

from fastapi import APIRouter, Query
from sqlalchemy import RowMapping

from service.api.deps import Db, Now, PartsDep, Reader
from service.api.jobs.job_views import money, seconds
from service.api.schemas import fleet as shown
from service.api.schemas.fleet import Fleet, PriceHistories, PriceHistory, PricePoint
from service.db.cloud.fleet import MAX_ROWS
from service.db.cloud.offerings import of as offering_of
from service.db.spot import market
from service.domain import humanize
from service.domain.cloud.fleet import scale_set_name
from service.domain.performance.vm_catalogue import lookup
from service.domain.queue.admission import RegionCores
from service.domain.spot.capacity_traces import SpotPool
from service.domain.states import CapacityType
from service.operations.monitoring import fleet
from service.operations.monitoring.fleet import Overview

router = APIRouter(prefix="/organization", tags=["Organization"])
_ZERO = Decimal(0)
_COPIED_FIELDS = ("id", "number", "region", "vm_size", "capacity_type", "engine", "state", "boot")
Days = Annotated[int, Query(ge=1, le=90, description="Days of history.")]


@router.get("/fleet", operation_id="retrieveFleet")
async def get_fleet(parts: PartsDep, db: Db, caller: Reader, now: Now) -> Fleet:
    """Show offerings, machines and the queue: of the key's project, or of all for operators."""
    offerings = parts.plan_defaults.offerings
    overview = await fleet.overview(db, caller, offerings, parts.operator_project, now)
    rows = overview.rows
    sums = [
        sum((row[name] or _ZERO for row in rows.attempts), _ZERO)
        for name in ("per_hour", "on_demand_per_hour")
    ]
    return Fleet(
        all_projects=overview.all_projects,
        offerings=[_offering(row, overview) for row in rows.capacity],
        attempts=[_attempt(row) for row in rows.attempts],
        queue=[_queued(row) for row in rows.waiting],
        has_more=MAX_ROWS in (len(rows.attempts), len(rows.waiting)),
        per_hour=money(sums[0]),
        on_demand_per_hour=money(sums[1]),
        currency="USD",
        as_of=seconds(now),
    )


@router.get("/prices", operation_id="listSpotPrices")
async def get_prices(
    parts: PartsDep, db: Db, caller: Reader, now: Now, days: Days = 30
) -> PriceHistories:
    """Show the history of the offerings' Spot prices, as Azure published them."""
    since = now - timedelta(days=days)
    spot = (o for o in parts.plan_defaults.offerings if o.capacity_type is CapacityType.SPOT)
    pools = sorted({SpotPool(o.region, o.vm_size) for o in spot})
    prices = await market.prices(db, pools, since, now)
    return PriceHistories(
        data=[_history(pool, prices.get(pool, [])) for pool in pools],
        since=seconds(since),
        until=seconds(now),
        currency="USD",
    )


def _history(pool: SpotPool, points: list[Any]) -> PriceHistory:
    prices = [PricePoint(at=seconds(at), per_hour=money(hourly)) for at, hourly in points]
    return PriceHistory(region=pool.region, vm_size=pool.vm_size, prices=prices)


def _offering(row: RowMapping, overview: Overview) -> shown.FleetOffering:
    offering, sku = offering_of(row), lookup(row["vm_size"])
    prices = overview.prices[SpotPool(offering.region, offering.vm_size)]
    is_spot = offering.capacity_type is CapacityType.SPOT
    return shown.FleetOffering(
        region=offering.region,
        vm_size=offering.vm_size,
        capacity_type=offering.capacity_type.value,
        engine=offering.engine.value,
        gpus=sku.gpus if sku else None,
        gpu=sku.gpu if sku else None,
        per_hour=_money(prices.get(offering.capacity_type)),
        on_demand_per_hour=_money(prices.get(CapacityType.ON_DEMAND)),
        cores=_cores(overview.cores.get(offering.pool)) if is_spot else None,
        shortage=_shortage(row),
        last_given_at=seconds(row["given_at"]),
        eviction_rate=row["band"],
        placement_score=row["score"],
        machines=int(row["machines"] or 0),
    )


def _cores(cores: RegionCores | None) -> shown.Cores | None:
    """Return the Spot cores of a region; null where Azure was not asked lately."""
    if cores is None:
        return None
    used = cores.own + cores.others
    return shown.Cores(limit=cores.limit, used=used, used_by_others=cores.others)


def _shortage(row: RowMapping) -> shown.Shortage | None:
    if row["since"] is None:
        return None
    return shown.Shortage(
        since=seconds(row["since"]),
        retry_at=seconds(row["ends_at"]),
        refusals=row["in_a_row"],
        machines=row["short_of"],
        reason=row["reason"],
    )


def _attempt(row: RowMapping) -> shown.FleetAttempt:
    nodes = [_node(node) for node in row["nodes"]]
    return shown.FleetAttempt(
        **{name: row[name] for name in _COPIED_FIELDS},
        name=scale_set_name(row["id"]),
        job=row["job_id"],
        job_name=row["name"],
        project=row["project_id"],
        since=seconds(row["since"]),
        machines=row["instance_count"],
        running=row["running"],
        joined=len(nodes),
        seen_at=seconds(row["seen_at"]),
        per_hour=money(row["per_hour"] or _ZERO),
        on_demand_per_hour=money(row["on_demand_per_hour"] or _ZERO),
        boot_at=seconds(row["boot_at"]),
        nodes=nodes,
    )


def _node(node: dict[str, Any]) -> shown.FleetNode:
    members = ("id", "vm_id", "name", "phase", "generation", "step")
    unhealthy = node["unhealthy_at"]
    return shown.FleetNode(
        **{name: node[name] for name in members},
        is_evicting=node["evicting"],
        unhealthy_since=None if unhealthy is None else int(unhealthy),
        error=node["error"] or None,
        registered_at=int(node["registered_at"]),
        heard_at=int(node["heard_at"]),
    )


def _queued(row: RowMapping) -> shown.QueuedJob:
    return shown.QueuedJob(
        job=row["job_id"],
        job_name=row["name"],
        project=row["project_id"],
        position=row["position"],
        priority=row["priority"],
        gpus=row["gpus"],
        code=row["code"],
        reason=humanize.as_sentence(row["why"]) if row["why"] else None,
        since=seconds(row["waits_since"]),
    )


def _money(amount: Decimal | None) -> str | None:
    return None if amount is None else money(amount)
