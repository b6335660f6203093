"""Set up the reconcilers of one process: their duties, intervals and adapters."""

import asyncio
from collections.abc import Coroutine, Iterator
from dataclasses import replace
from datetime import timedelta
from typing import Any

from service.adapters import Adapters
from service.cloud import engines
from service.db.cloud.scale_set_cache import ALL
from service.db.monitoring.event_pruning import PrunedTable
from service.db.queue.queue import TOPIC
from service.domain.queue.admission import BEAT
from service.operations.core.liveness import LoopLiveness
from service.operations.storage.tiers import StorageServices
from service.reconciler.attempts.access_policies import AccessPolicies
from service.reconciler.attempts.attempts import AttemptReconciler
from service.reconciler.attempts.scale_sets import SpecMaker
from service.reconciler.cloud.ingress_probe import IngressProbe, make_probe
from service.reconciler.cloud.lister import Lister
from service.reconciler.cloud.rate_limit import RateLimitedCloud
from service.reconciler.jobs.admission import Admissions
from service.reconciler.jobs.budgets import ProjectBudgets
from service.reconciler.jobs.jobs import JobReconciler
from service.reconciler.jobs.model_registry import ModelRegistrations
from service.reconciler.jobs.preparation import Preparation
from service.reconciler.jobs.trackers import TrackerRuns
from service.reconciler.loop import Loop
from service.reconciler.sweeps.bill_watch import BillWatch
from service.reconciler.sweeps.containers import ContainerWatch
from service.reconciler.sweeps.market_watch import MarketWatch
from service.reconciler.sweeps.model_copies import ModelCopies
from service.reconciler.sweeps.orphans import OrphanSweep
from service.reconciler.sweeps.price_watch import PriceWatch
from service.reconciler.sweeps.pruning import Pruning
from service.reconciler.sweeps.retention import CheckpointSweep
from service.reconciler.sweeps.storage_cost import StorageMeters
from service.reconciler.sweeps.tiers import TierMoves
from service.reconciler.sweeps.untracked_resources import UntrackedResourceSweep
from service.reconciler.sweeps.uploads import UploadSweep
from service.settings import Settings

WATCH_SECONDS = 10.0
REACH_SECONDS = 15.0
SWEEP_SECONDS = 60.0
UNTRACKED_SECONDS = 900.0
UPLOAD_SWEEP_SECONDS = 600.0
CONTAINER_SECONDS = 600.0
CHECKPOINT_SWEEP_SECONDS = 600.0
COPY_SECONDS = 30.0
REGISTRY_SECONDS = 30.0
TRACKER_SECONDS = 5.0
ACCESS_SECONDS = 5.0  # and up to 30 more at Azure, until nodes of an ended attempt write no more
METER_SECONDS = 10.0
TIER_SECONDS = 1.0  # rare and slow, and woken by whatever is due
CORES_SECONDS = 10.0
PRUNING_SECONDS = 3600.0
PRICE_SECONDS = 300.0
MARKET_SECONDS = 30.0
BUDGET_SECONDS = 15.0  # of Allowance.look


def reconcilers(
    settings: Settings,
    world: Adapters,
    preparation: Preparation,
    stop: asyncio.Event,
    liveness: LoopLiveness,
) -> list[Coroutine[Any, Any, object]]:
    """Return all reconcilers; each runs until ``stop``."""
    limited_cloud = RateLimitedCloud(
        engine=world.engine, cloud=world.cloud, now=world.now, multiple=settings.azure_limits_times
    )
    attempts, lister = _attempt_reconciler(settings, world, limited_cloud)
    reach = IngressProbe(
        engine=world.engine,
        probe=make_probe(settings.public_url),
        visibility=attempts.visibility,
        now=world.now,
        max_blindness=timedelta(seconds=settings.outage_seconds),
    )
    jobs = JobReconciler(
        engine=world.engine,
        preparation=preparation,
        prices=world.prices,
        now=world.now,
        allowance=settings.allowance,
        default_quota=settings.default_quota,
        egress=settings.egress,
    )
    orphans = OrphanSweep(
        engine=world.engine, cloud=world.cloud, now=world.now, limited_cloud=limited_cloud
    )
    untracked = UntrackedResourceSweep(
        engine=world.engine, cloud=limited_cloud.region(ALL), now=world.now
    )
    prune = Pruning(engine=world.engine, retention_by_table=_retention(settings), now=world.now)
    drain = settings.drain_seconds
    loop = Loop(listener=world.listener, stop=stop, liveness=liveness, drain=drain)
    return [
        loop.run_when_due("attempts", attempts.claim),
        loop.run_when_due("jobs", jobs.claim),
        loop.run_every(settings.poll_seconds / 2, "list", lister.run_once),
        loop.run_every(WATCH_SECONDS, "watch", attempts.check_database),
        loop.run_every(REACH_SECONDS, "reach", reach.run_once),
        loop.run_every(SWEEP_SECONDS, "orphans", orphans.run_once),
        loop.run_every(UNTRACKED_SECONDS, "untracked", untracked.run_once),
        loop.run_every(PRUNING_SECONDS, "pruning", prune.run_once),
        *_storage_loops(settings, world, loop),
        *_money_loops(settings, world, loop),
        *_queue_loops(settings, world, loop, limited_cloud),
    ]


def _attempt_reconciler(
    settings: Settings, world: Adapters, limited_cloud: RateLimitedCloud
) -> tuple[AttemptReconciler, Lister]:
    """Return the reconciler of attempts, and the shared list of scale sets."""
    specs = SpecMaker(
        public_url=settings.public_url,
        secret=settings.secret_key.get_secret_value(),
        image=settings.trainer_image,
        storage_ingress=settings.storage_ingress_gbps * 1e9 / 8,
        accelerator=settings.accelerator,
        deployment=settings.deployment,
        identity=settings.azure_identity_id,
    )
    pace = settings.pace
    sets = replace(limited_cloud, cloud=engines.scale_sets(limited_cloud.cloud))
    lister = Lister(engine=world.engine, cloud=sets.region(ALL), interval=pace.poll, now=world.now)
    reconciler = AttemptReconciler(
        engine=world.engine,
        cloud=world.cloud,
        store=world.store,
        specs=specs,
        pace=pace,
        now=world.now,
        lister=lister,
        limited_cloud=limited_cloud,
        allowance=settings.allowance,
    )
    return reconciler, lister


def _queue_loops(
    settings: Settings, world: Adapters, loop: Loop, limited_cloud: RateLimitedCloud
) -> Iterator[Coroutine[Any, Any, object]]:
    """Return the reconcilers of the queue."""
    default_quota, regions = settings.default_quota, settings.core_pools
    queue = Admissions(
        engine=world.engine,
        cloud=limited_cloud.region(ALL),
        now=world.now,
        default_quota=default_quota,
        regions=regions,
        replica_name=world.listener.name,
    )
    yield loop.run_on_notice(TOPIC, BEAT.total_seconds(), "queue", queue.run_once)
    yield loop.run_every(CORES_SECONDS, "cores", queue.read_cores)


def _storage_loops(
    settings: Settings, world: Adapters, loop: Loop
) -> Iterator[Coroutine[Any, Any, object]]:
    """Return the reconcilers of stored data."""
    uploads = UploadSweep(engine=world.engine, store=world.store, now=world.now)
    containers = ContainerWatch(engine=world.engine, store=world.store, now=world.now)
    copies = ModelCopies(store=world.store, regional=world.regional, now=world.now)
    policies = AccessPolicies(
        engine=world.engine,
        store=world.store,
        lifetime=settings.grant_lifetime,
        now=world.now,
    )
    saves = CheckpointSweep(engine=world.engine, store=world.store, now=world.now)
    storage = StorageServices(store=world.store, prices=world.prices, account=settings.account)
    moves = TierMoves(engine=world.engine, store=world.store, now=world.now)
    meters = StorageMeters(engine=world.engine, storage=storage, now=world.now)
    if world.registry:
        registrations = ModelRegistrations(
            engine=world.engine, store=world.store, registry=world.registry, now=world.now
        )
        yield loop.run_every(REGISTRY_SECONDS, "registry", registrations.run_once)
    for kind, tracker in world.trackers.items():
        runs = TrackerRuns(engine=world.engine, kind=kind, tracker=tracker, now=world.now)
        yield loop.run_every(TRACKER_SECONDS, kind, runs.run_once)
    yield loop.run_every(ACCESS_SECONDS, "access", policies.run_once)
    yield loop.run_every(COPY_SECONDS, "copies", copies.run_once)
    yield loop.run_every(UPLOAD_SWEEP_SECONDS, "uploads", uploads.run_once)
    yield loop.run_every(CONTAINER_SECONDS, "containers", containers.run_once)
    yield loop.run_when_due("tiers", moves.claim, interval=TIER_SECONDS)
    yield loop.run_every(METER_SECONDS, "storage", meters.run_once)
    yield loop.run_every(CHECKPOINT_SWEEP_SECONDS, "checkpoints", saves.run_once)


def _money_loops(
    settings: Settings, world: Adapters, loop: Loop
) -> Iterator[Coroutine[Any, Any, object]]:
    """Return the reconcilers of project budgets, prices and bills."""
    projects = ProjectBudgets(engine=world.engine, allowance=settings.allowance, now=world.now)
    watch = PriceWatch(engine=world.engine, prices=world.prices, now=world.now)
    yield loop.run_every(BUDGET_SECONDS, "budgets", projects.run_once)
    market = MarketWatch(
        engine=world.engine, market=world.market, pools=settings.spot_pools, now=world.now
    )
    yield loop.run_every(PRICE_SECONDS, "prices", watch.run_once)
    yield loop.run_every(MARKET_SECONDS, "market", market.run_once)
    bills = BillWatch(engine=world.engine, bills=world.bills, now=world.now)
    yield loop.run_every(MARKET_SECONDS, "bills", bills.run_once)


def _retention(settings: Settings) -> dict[PrunedTable, timedelta]:
    return {
        PrunedTable.EVENTS: timedelta(days=settings.event_days),
        PrunedTable.METRICS: timedelta(days=settings.metric_days),
    }
