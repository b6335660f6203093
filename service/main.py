"""Composition root: `python -m service.main api|reconciler|all|migrate|key`; picks the adapters."""

import argparse
import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import uvicorn
from alembic import command
from alembic.config import Config
from azure.identity.aio import ClientSecretCredential, DefaultAzureCredential
from pydantic import ValidationError
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from service import telemetry
from service.api.app import make_app
from service.api.deps import Parts, PlanDefaults
from service.cloud.azure import AzureCloud
from service.cloud.azure_template import AzureSettings
from service.cloud.fake import FakeCloud
from service.cloud.provider import CloudProvider
from service.db.engine import driver_url, make_engine
from service.db.notices import Listener
from service.domain.attempt import Pace
from service.domain.dataset import Limits
from service.domain.errors import ServiceError
from service.domain.tiers import Account
from service.operations import keys
from service.operations.grants import Granter
from service.operations.tiers import Outside
from service.pricing.azure_retail import RetailPrices
from service.pricing.source import PriceSource
from service.reconciler.attempts import AttemptReconciler
from service.reconciler.jobs import JobReconciler
from service.reconciler.loop import Loop
from service.reconciler.model_copies import ModelCopies
from service.reconciler.orphans import OrphanSweep
from service.reconciler.retention import CheckpointSweep
from service.reconciler.scale_sets import SpecMaker
from service.reconciler.storage_cost import StorageMeters
from service.reconciler.tiers import TierMoves
from service.reconciler.uploads import UploadSweep
from service.settings import Settings
from service.storage.azure import AzureBlobStore
from service.storage.store import BlobStore

WATCH_SECONDS = 10.0
SWEEP_SECONDS = 60.0
UPLOAD_SWEEP_SECONDS = 600.0
CHECKPOINT_SWEEP_SECONDS = 600.0
COPY_SECONDS = 30.0
METER_SECONDS = 10.0


def main() -> int:
    """Read the arguments and the environment, then run."""
    options = _arguments()
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
    elif options.command == "key":
        return asyncio.run(_key(settings, options))
    else:
        asyncio.run(_serve(settings, options))
    return 0


def migrate(url: str) -> None:
    """Bring the schema up to date."""
    config = Config()
    config.set_main_option("script_location", str(Path(__file__).parent.parent / "migrations"))
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
    url = settings.database_url.get_secret_value()
    made = Adapters(
        engine=make_engine(url),
        cloud=_cloud(settings),
        store=AzureBlobStore(settings.storage.get_secret_value()),
        regional={
            region: AzureBlobStore(account.get_secret_value())
            for region, account in settings.region_storage.items()
        },
        prices=RetailPrices(base_url=settings.prices_url, ca_path=_ca(settings)),
        listener=Listener(driver_url(url)),
    )
    listening = asyncio.create_task(made.listener.run())
    try:
        yield made
    finally:
        listening.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await listening
        for store in made.regional.values():
            await store.close()
        for part in (made.cloud, made.store, made.prices):
            await part.close()
        await made.engine.dispose()


def now() -> datetime:
    """The one clock."""
    return datetime.now(UTC)


async def _serve(settings: Settings, options: argparse.Namespace) -> None:
    """Run the faces until SIGTERM or SIGINT; then finish the steps under way and stop."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for wanted in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(wanted, stop.set)
    async with adapters(settings) as world:
        work: list[Coroutine[Any, Any, object]] = []
        if options.command in ("reconciler", "all"):
            work += _reconcilers(settings, world, stop)
        if options.command in ("api", "all"):
            work.append(_http(settings, world, options.host, options.port, stop))
        await asyncio.gather(*work)


def _reconcilers(
    settings: Settings, world: Adapters, stop: asyncio.Event
) -> list[Coroutine[Any, Any, object]]:
    specs = SpecMaker(
        public_url=settings.public_url,
        secret=settings.secret_key.get_secret_value(),
        image=settings.trainer_image,
        accelerator=settings.accelerator,
        deployment=settings.deployment,
    )
    attempts = AttemptReconciler(
        engine=world.engine,
        cloud=world.cloud,
        store=world.store,
        specs=specs,
        pace=_pace(settings),
        now=now,
    )
    jobs = JobReconciler(engine=world.engine, store=world.store, prices=world.prices, now=now)
    uploads = UploadSweep(engine=world.engine, store=world.store, now=now)
    copies = ModelCopies(store=world.store, regional=world.regional, now=now)
    orphans = OrphanSweep(engine=world.engine, cloud=world.cloud)
    saves = CheckpointSweep(engine=world.engine, store=world.store, now=now)
    outside = Outside(store=world.store, prices=world.prices, account=_account(settings))
    moves = TierMoves(engine=world.engine, store=world.store, now=now)
    meters = StorageMeters(engine=world.engine, outside=outside, now=now)
    loop = Loop(listener=world.listener, stop=stop)
    return [
        loop.whenever_due("attempts", attempts.claim),
        loop.whenever_due("jobs", jobs.claim),
        loop.every(WATCH_SECONDS, "watch", attempts.keep_watch),
        loop.every(SWEEP_SECONDS, "orphans", orphans.run_once),
        loop.every(COPY_SECONDS, "copies", copies.run_once),
        loop.every(UPLOAD_SWEEP_SECONDS, "uploads", uploads.run_once),
        loop.whenever_due("tiers", moves.claim),
        loop.every(METER_SECONDS, "storage", meters.run_once),
        loop.every(CHECKPOINT_SWEEP_SECONDS, "checkpoints", saves.run_once),
    ]


async def _http(
    settings: Settings, world: Adapters, host: str, port: int, stop: asyncio.Event
) -> None:
    app = make_app(_parts(settings, world, now))
    config = uvicorn.Config(
        app,
        host=host,
        port=port,
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
        secret=settings.secret_key.get_secret_value(),
        outage=timedelta(seconds=settings.outage_seconds),
        now=clock,
        account=_account(settings),
        limits=Limits(
            max_bytes=settings.file_max_bytes,
            max_line_bytes=settings.file_max_line_bytes,
            max_examples=settings.file_max_examples,
        ),
    )


def _account(settings: Settings) -> Account:
    region = settings.storage_region or settings.offerings[0].region
    return Account(region=region, redundancy=settings.storage_redundancy)


def _pace(settings: Settings) -> Pace:
    return Pace(
        poll=timedelta(seconds=settings.poll_seconds),
        read_lag=timedelta(seconds=settings.read_lag_seconds),
        silence=timedelta(seconds=settings.silence_seconds),
        settle=timedelta(seconds=settings.settle_seconds),
        save=timedelta(seconds=settings.save_seconds),
    )


def _cloud(settings: Settings) -> CloudProvider:
    if settings.cloud == "fake":
        return FakeCloud(now=now)
    secret = settings.azure_client_secret.get_secret_value()
    if secret:
        credential: Any = ClientSecretCredential(
            settings.azure_tenant_id,
            settings.azure_client_id,
            secret,
            **_authority(settings),
        )
    else:
        credential = DefaultAzureCredential()
    return AzureCloud(
        AzureSettings(
            subscription_id=settings.azure_subscription_id,
            resource_group=settings.azure_resource_group,
            owner=settings.deployment,
            subnet_id=settings.azure_subnet_id,
            ssh_public_key=settings.azure_ssh_public_key,
            image=settings.azure_image,
            identity_id=settings.azure_identity_id,
        ),
        credential,
        base_url=settings.azure_endpoint,
        ca_path=_ca(settings),
    )


def _authority(settings: Settings) -> dict[str, Any]:
    """A private endpoint (the emulator) is its own login authority."""
    if settings.azure_ca is None:
        return {}
    return {
        "authority": settings.azure_endpoint,
        "disable_instance_discovery": True,
        "connection_verify": _ca(settings),
    }


def _ca(settings: Settings) -> str:
    return str(settings.azure_ca) if settings.azure_ca else ""


async def _key(settings: Settings, options: argparse.Namespace) -> int:
    """Make, list or revoke API keys: for who runs the service and has no key, or no more."""
    engine = make_engine(settings.database_url.get_secret_value())
    try:
        async with engine.begin() as conn:
            lines = await _key_lines(conn, options)
    except ServiceError as error:
        sys.stderr.write(f"{error.message}\n")
        return 1
    finally:
        await engine.dispose()
    sys.stdout.write("".join(f"{line}\n" for line in lines))
    return 0


async def _key_lines(conn: AsyncConnection, options: argparse.Namespace) -> list[str]:
    if options.action == "create":
        return [await keys.create(conn, options.project, options.name, now())]
    project_id = await keys.project(conn, options.project)
    if options.action == "list":
        return [keys.in_words(key) for key in await keys.every(conn, project_id)]
    key, left = await keys.revoke(conn, project_id, options.id, now())
    return [f"{key.id} is revoked; project {options.project} has {left} keys left."]


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m service.main", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    for name in ("api", "reconciler", "all"):
        face = commands.add_parser(name)
        face.add_argument("--host", default="127.0.0.1")
        face.add_argument("--port", type=int, default=8080)
    commands.add_parser("migrate", help="bring the database schema up to date")
    key = commands.add_parser("key", help="API keys")
    actions = key.add_subparsers(dest="action", required=True)
    for action, what in (
        ("create", "make a key and print it, once"),
        ("list", "print a project's keys: id, hint, name, made, used last"),
        ("revoke", "from now on it opens nothing"),
    ):
        one = actions.add_parser(action, help=what)
        one.add_argument("--project", default="default")
        if action == "create":
            one.add_argument("--name", default="default")
        if action == "revoke":
            one.add_argument("id", help="as `key list` prints it")
    return parser.parse_args()


if __name__ == "__main__":
    os.umask(0o077)
    sys.exit(main())
