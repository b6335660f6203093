"""Periodic work of a replica beside jobs, attempts and orphans, as `service/workers.py` has it."""

from collections.abc import Callable, Coroutine, Mapping
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any

from sqlalchemy.ext.asyncio import AsyncEngine

from service.cloud.provider import CloudProvider
from service.db.cloud.scale_set_cache import ALL
from service.db.monitoring.event_pruning import PrunedTable
from service.domain.money.billing_reconciliation import BilledDay
from service.domain.money.budget import DEFAULT_ALLOWANCE
from service.domain.spot.capacity_traces import spot_pool_of
from service.domain.spot.market import EvictionBand, PlacementScore
from service.domain.storage.access_tiers import StorageAccount
from service.operations.storage.tiers import StorageServices
from service.pricing.bills import FakeBills
from service.pricing.fake_market import FakeMarket
from service.pricing.market import MarketUnavailable
from service.pricing.source import PriceSource
from service.reconciler.attempts.access_policies import AccessPolicies
from service.reconciler.cloud.rate_limit import RateLimitedCloud
from service.reconciler.jobs.admission import Admissions
from service.reconciler.jobs.budgets import ProjectBudgets
from service.reconciler.sweeps.bill_watch import BillWatch
from service.reconciler.sweeps.market_watch import MarketWatch
from service.reconciler.sweeps.price_watch import PriceWatch
from service.reconciler.sweeps.pruning import Pruning
from service.reconciler.sweeps.retention import CheckpointSweep
from service.reconciler.sweeps.storage_cost import StorageMeters
from service.reconciler.sweeps.tiers import TierMoves
from service.reconciler.sweeps.uploads import UploadSweep
from service.storage.store import BlobStore
from tests.world import SPOT

Work = Callable[[], Coroutine[Any, Any, object]]


def of(
    engine: AsyncEngine,
    cloud: CloudProvider,
    store: BlobStore,
    prices: PriceSource,
    now: Callable[[], datetime],
    limited_cloud: RateLimitedCloud | None,
) -> Mapping[str, Work]:
    """Return the periodic work, by the names that plays use."""
    queue_cloud = limited_cloud.region(ALL) if limited_cloud else cloud
    queue = Admissions(engine=engine, cloud=queue_cloud, now=now, regions=(SPOT.region,))
    outside = StorageServices(
        store=store, prices=prices, account=StorageAccount(region=SPOT.region)
    )
    pools = (spot_pool_of(SPOT),)
    fake_market = FakeMarket(
        listed_bands=dict.fromkeys(pools, EvictionBand.TO_5),
        listed_scores=dict.fromkeys(pools, PlacementScore.HIGH),
    )
    day = BilledDay(
        day=now().date(), attempt_id="", category="", quantity=Decimal(1), amount=Decimal(1)
    )
    market = MarketWatch(engine=engine, market=fake_market, pools=pools, now=now)
    silent = [MarketUnavailable("Cost Management does not answer")]  # the first time
    bills = BillWatch(engine=engine, bills=FakeBills([day], fail_next=silent), now=now)
    # Metrics alone: by its events a life is judged.
    pruning = Pruning(
        engine=engine, retention_by_table={PrunedTable.METRICS: timedelta(days=1)}, now=now
    )
    access = AccessPolicies(engine=engine, store=store, lifetime=timedelta(days=1), now=now)
    return {
        "cores": queue.read_cores,
        "queue": queue.run_once,
        "budgets": ProjectBudgets(engine=engine, allowance=DEFAULT_ALLOWANCE, now=now).run_once,
        "prices": PriceWatch(engine=engine, prices=prices, now=now).run_once,
        "market": market.run_once,
        "bills": bills.run_once,
        "tiers": TierMoves(engine=engine, store=store, now=now).run_once,
        "storage": StorageMeters(engine=engine, storage=outside, now=now).run_once,
        "uploads": UploadSweep(engine=engine, store=store, now=now).run_once,
        "checkpoints": CheckpointSweep(engine=engine, store=store, now=now).run_once,
        "pruning": pruning.run_once,
        "access": access.run_once,
    }
