"""Composition root: `python -m service.main api|reconciler|all|migrate|check|key|budget|quota`."""

import argparse
import asyncio
import json
import os
import signal
import sys
import time
from collections.abc import Callable, Coroutine
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

from alembic import command
from alembic.config import Config
from alembic.script import ScriptDirectory
from fastapi import FastAPI
from pydantic import ValidationError
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.ext.asyncio import AsyncEngine

from service import check, collector, console, telemetry
from service.adapters import Adapters, Opened, adapters
from service.api import submissions
from service.api.app import make_app, make_probes
from service.api.deps import Parts, PlanDefaults
from service.api.drain import Drain
from service.api.server import Server
from service.cloud.provider import CloudProvider
from service.db.engine import make_engine
from service.db.listings import ALL
from service.db.schema import Schema
from service.domain.admission import Quota
from service.domain.dataset import Limits
from service.domain.errors import ServiceError
from service.operations.grants import Granter
from service.operations.preflights import Preflights
from service.operations.pulse import Pulse
from service.reconciler.polite import PoliteCloud
from service.reconciler.preparation import Preparation
from service.settings import DatabaseSettings, Settings
from service.workers import reconcilers

try:
    import uvloop
except ImportError:  # Windows
    uvloop = None  # type: ignore[assignment]

MIGRATIONS = Path(__file__).parent.parent / "migrations"


def main() -> int:
    """Read the arguments and the environment, then run."""
    options = arguments()
    telemetry.set_up()
    if options.command == "check":
        return asyncio.run(_check(options))
    try:
        return _run(options)
    except ValidationError as error:
        sys.stderr.writelines(f"{name}: {fault}\n" for name, fault in check.faults(error))
        return 2


def _run(options: argparse.Namespace) -> int:
    """Run with the settings that the command needs, of the environment; raise ValidationError."""
    if options.command in ("migrate", *console.COMMANDS):
        return _on_database(DatabaseSettings(), options)  # type: ignore[call-arg]  # the same
    settings = Settings()  # type: ignore[call-arg]  # the environment fills it
    with asyncio.Runner(loop_factory=event_loop()) as runner:
        runner.run(serve(settings, options))
    return 0


def _on_database(settings: DatabaseSettings, options: argparse.Namespace) -> int:
    """Run a command that needs the database alone."""
    url = settings.database_url.get_secret_value()
    try:
        engine = make_engine(url)
    except check.NO_ADDRESS as error:
        return _refused(error)
    try:
        if options.command != "migrate":
            return asyncio.run(_console(engine, settings.usual_quota, options))
        migrate(url)
    except SQLAlchemyError as error:
        return _refused(error)
    return 0


def _refused(error: Exception) -> int:
    """Say why the database cannot be used, and what to do."""
    fault = check.database_fault(error)
    sys.stderr.write(f"{fault.found}\n{fault.remedy}\n")
    return 1


def migrate(url: str) -> None:
    """Bring the schema up to date."""
    config = Config()
    config.set_main_option("script_location", str(MIGRATIONS))
    config.set_main_option("sqlalchemy.url", url.replace("%", "%%"))
    command.upgrade(config, "head")


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
    async with opened(settings, now) as world:
        work: list[Coroutine[Any, Any, object]] = []
        pulse = Pulse(now)
        parts = replace(_parts(settings, world), pulse=pulse, schema=_schema())
        if options.command in ("reconciler", "all"):
            work += reconcilers(settings, world, _preparation(parts), stop, pulse)
        if options.port is not None:
            make = make_app if options.command in ("api", "all") else make_probes
            work.append(_http(settings, make(parts), options, stop))
        await asyncio.gather(*work, collector.in_bites(stop))


async def _http(
    settings: Settings, app: FastAPI, options: argparse.Namespace, stop: asyncio.Event
) -> None:
    drain: Drain = app.state.parts.drain
    server = Server(
        app,
        drain,
        host=options.host,
        port=options.port,
        drain_seconds=settings.drain_seconds,
    )
    serving = asyncio.create_task(server.serve())
    stopping = asyncio.create_task(stop.wait())
    await asyncio.wait((serving, stopping), return_when=asyncio.FIRST_COMPLETED)
    server.should_exit = True
    stop.set()
    await serving


def _parts(settings: Settings, world: Adapters) -> Parts:
    return Parts(
        engine=world.engine,
        store=world.store,
        prices=world.prices,
        preflights=Preflights(
            engine=world.engine, store=world.store, checker=world.checker, now=world.now
        ),
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
            emulated=settings.emulated,
        ),
        cloud=_politely(settings, world),
        operator_project=settings.operator_project,
        secret=settings.secret_key.get_secret_value(),
        outage=timedelta(seconds=settings.outage_seconds),
        now=world.now,
        account=settings.account,
        allowance=settings.allowance,
        limits=Limits(
            max_bytes=settings.file_max_bytes,
            max_upload_bytes=settings.upload_max_bytes,
            max_line_bytes=settings.file_max_line_bytes,
            max_examples=settings.file_max_examples,
        ),
    )


def _preparation(parts: Parts) -> Preparation:
    """What prepares new jobs; it plans them as the HTTP face does."""
    return Preparation(
        engine=parts.engine,
        store=parts.store,
        preflights=parts.preflights,
        replan=partial(submissions.replanned, parts),
        now=parts.now,
    )


def _politely(settings: Settings, world: Adapters) -> CloudProvider:
    """For operators, who share Azure's limits with the reconcilers."""
    times = settings.azure_limits_times
    return PoliteCloud(engine=world.engine, cloud=world.cloud, now=world.now, times=times).at(ALL)


def _schema() -> Schema:
    script = ScriptDirectory(str(MIGRATIONS))
    newest = script.get_current_head()
    assert newest is not None, "there are migrations"
    return Schema(newest=newest, known=frozenset(s.revision for s in script.walk_revisions()))


async def _console(engine: AsyncEngine, usual: Quota, options: argparse.Namespace) -> int:
    """For who runs the service: print what came of it."""
    try:
        lines = await console.answer(engine, options, now(), usual)
    except ServiceError as error:
        sys.stderr.write(f"{error.message}\n")
        return 1
    finally:
        await engine.dispose()
    sys.stdout.write("".join(f"{line}\n" for line in lines))
    return 0


async def _check(options: argparse.Namespace) -> int:
    """For who sets the service up: print what is well and what is not."""
    parts = [part async for part in check.look(_schema(), time.time)]
    if options.json:
        sys.stdout.write(json.dumps([part.as_dict() for part in parts]) + "\n")
    else:
        sys.stdout.write("".join(f"{part}\n" for part in parts))
    return 1 if any(part.remedy for part in parts) else 0


def arguments() -> argparse.Namespace:
    """What the command line says."""
    return console.arguments(__doc__)


if __name__ == "__main__":
    os.umask(0o077)
    sys.exit(main())
