"""Composition root: `python -m service.main api|reconciler|all|migrate|key|budget|quota`."""

import argparse
import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import uvicorn
from alembic import command
from alembic.config import Config
from alembic.script import ScriptDirectory
from pydantic import ValidationError
from sqlalchemy.ext.asyncio import AsyncEngine

from service import azure_access, console, telemetry
from service.api.app import make_app
from service.api.deps import Parts, PlanDefaults
from service.cloud.provider import CloudProvider
from service.db.engine import driver_url, make_engine
from service.db.listings import ALL
from service.db.notices import Listener
from service.db.pruning import Rows
from service.db.queue import TOPIC
from service.db.schema import Schema
from service.domain.admission import BEAT
from service.domain.dataset import Limits
from service.domain.errors import ServiceError
from service.domain.tiers import Account
from service.operations.grants import Granter
from service.operations.pulse import Pulse
from service.operations.tiers import Outside
from service.pricing.azure_retail import RetailPrices
from service.pricing.source import PriceSource
from service.reconciler.admission import Admissions
from service.reconciler.attempts import AttemptReconciler
from service.reconciler.budgets import ProjectBudgets
from service.reconciler.jobs import JobReconciler
from service.reconciler.lister import Lister
from service.reconciler.loop import BUSY_AT_ONCE, Loop
from service.reconciler.model_copies import ModelCopies
from service.reconciler.orphans import OrphanSweep
from service.reconciler.polite import PoliteCloud
from service.reconciler.price_watch import PriceWatch
from service.reconciler.pruning import Pruning
from service.reconciler.retention import CheckpointSweep
from service.reconciler.scale_sets import SpecMaker
from service.reconciler.storage_cost import StorageMeters
from service.reconciler.tiers import TierMoves
from service.reconciler.uploads import UploadSweep
from service.settings import Settings
from service.storage.azure import AzureBlobStore
from service.storage.store import BlobStore

try:
    import uvloop
except ImportError:  # Windows
    uvloop = None  # type: ignore[assignment]

WATCH_SECONDS = 10.0
SWEEP_SECONDS = 60.0
UPLOAD_SWEEP_SECONDS = 600.0
CHECKPOINT_SWEEP_SECONDS = 600.0
COPY_SECONDS = 30.0
METER_SECONDS = 10.0
CORES_SECONDS = 10.0
PRUNING_SECONDS = 3600.0
MIGRATIONS = Path(__file__).parent.parent / "migrations"
PRICE_SECONDS = 300.0
BUDGET_SECONDS = 15.0  # of Allowance.look


def main() -> int:
    """Read the arguments and the environment, then run."""
    options = arguments()
    telemetry.set_up()
    try:
        settings = Settings()  # type: ignore[call-arg]  # the environment fills it
    except ValidationError as error:
        for fault in error.errors(include_url=False):
            where = "_".join(("REKINDLE", *(str(p) for p in fault["loc"]))).upper()
            sys.stderr.write(f"{where}: {fault['msg']}\n")
        return 2
    if options.command == "migrate":
        migrate(settings.database_url.get_secret_value())
    elif options.command in console.COMMANDS:
        return asyncio.run(_console(settings, options))
    else:
        with asyncio.Runner(loop_factory=event_loop()) as runner:
            runner.run(serve(settings, options))
    return 0


def migrate(url: str) -> None:
    """Bring the schema up to date."""
    config = Config()
    config.set_main_option("script_location", str(MIGRATIONS))
    config.set_main_option("sqlalchemy.url", url.replace("%", "%%"))
    command.upgrade(config, "head")


@dataclass(frozen=True, kw_only=True)
class Adapters:
    """The outside world, as the settings choose it."""

    engine: AsyncEngine
    cloud: CloudProvider
    store: BlobStore
    regional: Mapping[str, BlobStore]  # region -> the account there
    prices: PriceSource
    listener: Listener


@asynccontextmanager
async def adapters(settings: Settings) -> AsyncIterator[Adapters]:
    """Open everything, and close it again."""
    cloud, store = (
        azure_access.cloud(settings, now),
        AzureBlobStore(settings.storage.get_secret_value()),
    )
    regional = {
        region: AzureBlobStore(account.get_secret_value())
        for region, account in settings.region_storage.items()
    }
    prices = RetailPrices(base_url=settings.prices_url, ca_path=azure_access.ca(settings))
    async with inside(settings, cloud, store, regional, prices) as made:
        yield made


@asynccontextmanager
async def inside(
    settings: Settings,
    cloud: CloudProvider,
    store: BlobStore,
    regional: Mapping[str, BlobStore],
    prices: PriceSource,
) -> AsyncIterator[Adapters]:
    """The database beside this outside world; closes all of it."""
    url = settings.database_url.get_secret_value()
    made = Adapters(
        engine=make_engine(url),
        cloud=cloud,
        store=store,
        regional=regional,
        prices=prices,
        listener=Listener(driver_url(url)),
    )
    listening = asyncio.create_task(made.listener.run())
    try:
        yield made
    finally:
        listening.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await listening
        for account in made.regional.values():
            await account.close()
        for part in (made.cloud, made.store, made.prices):
            await part.close()
        await made.engine.dispose()


Opened = Callable[[Settings], AbstractAsyncContextManager[Adapters]]


def event_loop() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """The fast one that comes with uvicorn; None, Python's own, where there is none."""
    return getattr(uvloop, "new_event_loop", None)


def now() -> datetime:
    """The one clock."""
    return datetime.now(UTC)


async def serve(settings: Settings, options: argparse.Namespace, opened: Opened = adapters) -> None:
    """Run the faces until SIGTERM or SIGINT; then finish the steps under way and stop."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for wanted in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(wanted, stop.set)
    async with opened(settings) as world:
        work: list[Coroutine[Any, Any, object]] = []
        pulse = Pulse(now)
        if options.command in ("reconciler", "all"):
            work += _reconcilers(settings, world, stop, pulse)
        if options.command in ("api", "all"):
            parts = replace(_parts(settings, world, now), pulse=pulse, schema=_schema())
            work.append(_http(settings, parts, options, stop))
        await asyncio.gather(*work)


def _reconcilers(
    settings: Settings, world: Adapters, stop: asyncio.Event, pulse: Pulse
) -> list[Coroutine[Any, Any, object]]:
    polite = PoliteCloud(
        engine=world.engine, cloud=world.cloud, now=now, times=settings.azure_limits_times
    )
    attempts, lister = _attempts(settings, world, polite)
    jobs = JobReconciler(
        engine=world.engine,
        store=world.store,
        prices=world.prices,
        now=now,
        allowance=settings.allowance,
        usual=settings.usual_quota,
    )
    orphans = OrphanSweep(engine=world.engine, cloud=world.cloud, now=now, polite=polite)
    prune = Pruning(engine=world.engine, keep=_kept(settings), now=now)
    loop = Loop(listener=world.listener, stop=stop, pulse=pulse)
    return [
        loop.whenever_due("attempts", attempts.claim),
        loop.whenever_due("jobs", jobs.claim, BUSY_AT_ONCE),
        loop.every(settings.poll_seconds / 2, "list", lister.run_once),
        loop.every(WATCH_SECONDS, "watch", attempts.keep_watch),
        loop.every(SWEEP_SECONDS, "orphans", orphans.run_once),
        loop.every(PRUNING_SECONDS, "pruning", prune.run_once),
        *_stored(settings, world, loop),
        *_money(settings, world, loop),
        *_queue(settings, world, loop, polite),
    ]


def _attempts(
    settings: Settings, world: Adapters, polite: PoliteCloud
) -> tuple[AttemptReconciler, Lister]:
    """Who looks after attempts, and the list of scale sets that spares most looks."""
    specs = SpecMaker(
        public_url=settings.public_url,
        secret=settings.secret_key.get_secret_value(),
        image=settings.trainer_image,
        accelerator=settings.accelerator,
        deployment=settings.deployment,
    )
    pace = settings.pace
    lister = Lister(engine=world.engine, cloud=polite.at(ALL), every=pace.poll, now=now)
    made = AttemptReconciler(
        engine=world.engine,
        cloud=world.cloud,
        store=world.store,
        specs=specs,
        pace=pace,
        now=now,
        lister=lister,
        polite=polite,
        allowance=settings.allowance,
    )
    return made, lister


def _queue(
    settings: Settings, world: Adapters, loop: Loop, polite: PoliteCloud
) -> Iterator[Coroutine[Any, Any, object]]:
    """Who may ask for machines."""
    usual, regions = settings.usual_quota, settings.spot_regions
    queue = Admissions(
        engine=world.engine, cloud=polite.at(ALL), now=now, usual=usual, regions=regions
    )
    yield loop.whenever(TOPIC, BEAT.total_seconds(), "queue", queue.run_once)
    yield loop.every(CORES_SECONDS, "cores", queue.read_cores)


def _stored(
    settings: Settings, world: Adapters, loop: Loop
) -> Iterator[Coroutine[Any, Any, object]]:
    """What looks after bytes."""
    uploads = UploadSweep(engine=world.engine, store=world.store, now=now)
    copies = ModelCopies(store=world.store, regional=world.regional, now=now)
    saves = CheckpointSweep(engine=world.engine, store=world.store, now=now)
    outside = Outside(store=world.store, prices=world.prices, account=_account(settings))
    moves = TierMoves(engine=world.engine, store=world.store, now=now)
    meters = StorageMeters(engine=world.engine, outside=outside, now=now)
    yield loop.every(COPY_SECONDS, "copies", copies.run_once)
    yield loop.every(UPLOAD_SWEEP_SECONDS, "uploads", uploads.run_once)
    yield loop.whenever_due("tiers", moves.claim)
    yield loop.every(METER_SECONDS, "storage", meters.run_once)
    yield loop.every(CHECKPOINT_SWEEP_SECONDS, "checkpoints", saves.run_once)


def _money(
    settings: Settings, world: Adapters, loop: Loop
) -> Iterator[Coroutine[Any, Any, object]]:
    """What is looked at beside attempts: budgets of projects, prices of what runs."""
    projects = ProjectBudgets(engine=world.engine, allowance=settings.allowance, now=now)
    watch = PriceWatch(engine=world.engine, prices=world.prices, now=now)
    yield loop.every(BUDGET_SECONDS, "budgets", projects.run_once)
    yield loop.every(PRICE_SECONDS, "prices", watch.run_once)


async def _http(
    settings: Settings, parts: Parts, options: argparse.Namespace, stop: asyncio.Event
) -> None:
    config = uvicorn.Config(
        make_app(parts),
        host=options.host,
        port=options.port,
        log_config=None,
        access_log=False,
        lifespan="off",
        timeout_graceful_shutdown=int(settings.drain_seconds),
    )
    server = _Server(config)
    serving = asyncio.create_task(server.serve())
    stopping = asyncio.create_task(stop.wait())
    await asyncio.wait((serving, stopping), return_when=asyncio.FIRST_COMPLETED)
    server.should_exit = True
    stop.set()
    await serving


class _Server(uvicorn.Server):
    """Leaves signals to us: the reconcilers must drain as well."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Capture none."""
        yield


def _parts(settings: Settings, world: Adapters, clock: Callable[[], datetime]) -> Parts:
    return Parts(
        engine=world.engine,
        store=world.store,
        prices=world.prices,
        listener=world.listener,
        granter=Granter(
            store=world.store,
            life=timedelta(hours=settings.grant_hours),
            regional=world.regional,
        ),
        plan_defaults=PlanDefaults(
            offerings=settings.offerings,
            hazard_per_hour=settings.hazard_per_hour,
            recovery_seconds=settings.recovery_seconds,
            accelerator=settings.accelerator,
            processes_per_node=settings.processes_per_node,
            cpu_flops=settings.cpu_flops,
        ),
        cloud=world.cloud,
        operator_project=settings.operator_project,
        secret=settings.secret_key.get_secret_value(),
        outage=timedelta(seconds=settings.outage_seconds),
        now=clock,
        account=_account(settings),
        allowance=settings.allowance,
        limits=Limits(
            max_bytes=settings.file_max_bytes,
            max_line_bytes=settings.file_max_line_bytes,
            max_examples=settings.file_max_examples,
        ),
    )


def _kept(settings: Settings) -> dict[Rows, timedelta]:
    return {
        Rows.EVENTS: timedelta(days=settings.event_days),
        Rows.METRICS: timedelta(days=settings.metric_days),
    }


def _schema() -> Schema:
    script = ScriptDirectory(str(MIGRATIONS))
    newest = script.get_current_head()
    assert newest is not None, "there are migrations"
    return Schema(newest=newest, known=frozenset(s.revision for s in script.walk_revisions()))


def _account(settings: Settings) -> Account:
    region = settings.storage_region or settings.offerings[0].region
    return Account(region=region, redundancy=settings.storage_redundancy)


async def _console(settings: Settings, options: argparse.Namespace) -> int:
    """For who runs the service: print what came of it."""
    engine = make_engine(settings.database_url.get_secret_value())
    try:
        lines = await console.answer(engine, options, now(), settings.usual_quota)
    except ServiceError as error:
        sys.stderr.write(f"{error.message}\n")
        return 1
    finally:
        await engine.dispose()
    sys.stdout.write("".join(f"{line}\n" for line in lines))
    return 0


def arguments() -> argparse.Namespace:
    """What the command line says."""
    return console.arguments(__doc__)


if __name__ == "__main__":
    os.umask(0o077)
    sys.exit(main())
