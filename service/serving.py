"""Serve the HTTP API and run the reconcilers; apart from main, because its imports take seconds."""

import argparse
import asyncio
import signal
from collections.abc import Callable, Coroutine
from dataclasses import replace
from datetime import timedelta
from functools import partial
from typing import Any

from fastapi import FastAPI

from contract.figures import EXPERIMENT
from service import collector
from service.adapters import Adapters, Clock, OpenAdapters, adapters
from service.api import web
from service.api.app import make_app, make_probes
from service.api.deps import Parts, PlanDefaults
from service.api.http.drain import Drain
from service.api.http.rate_limits import RateLimits
from service.api.http.server import DrainingServer
from service.api.jobs import submissions
from service.cloud.provider import CloudProvider
from service.db.cloud.scale_set_cache import ALL
from service.domain.datasets.dataset import DatasetLimits
from service.migration import schema
from service.operations.core.liveness import LoopLiveness
from service.operations.core.release import release
from service.operations.jobs.preflights import Preflights
from service.operations.nodes.grants import Granter
from service.reconciler.cloud.rate_limit import RateLimitedCloud
from service.reconciler.jobs.preparation import Preparation
from service.settings import Settings
from service.workers import reconcilers

try:
    import uvloop
except ImportError:  # Windows
    uvloop = None  # type: ignore[assignment]


def run(settings: Settings, options: argparse.Namespace, now: Clock) -> None:
    """Serve until SIGTERM or SIGINT."""
    with asyncio.Runner(loop_factory=event_loop()) as runner:
        runner.run(serve(settings, options, now))


def event_loop() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """Return uvicorn's fast event loop; None, for Python's own, where it is missing."""
    return getattr(uvloop, "new_event_loop", None)


async def serve(
    settings: Settings, options: argparse.Namespace, now: Clock, opened: OpenAdapters = adapters
) -> None:
    """Run until SIGTERM or SIGINT; then finish the current steps and stop."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for signum in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(signum, stop.set)
    async with opened(settings, now) as world:
        world.listener.introduce(options.command, release())  # its task has not begun yet
        work: list[Coroutine[Any, Any, object]] = []
        liveness = LoopLiveness(now)
        parts = replace(_parts(settings, world), liveness=liveness, schema=schema())
        if options.command in ("reconciler", "all"):
            work += reconcilers(settings, world, _preparation(parts), stop, liveness)
        if options.port is not None:
            make = make_app if options.command in ("api", "all") else make_probes
            work.append(_http(settings, make(parts), options, stop))
        await asyncio.gather(*work, collector.run_in_steps(stop))


async def _http(
    settings: Settings, app: FastAPI, options: argparse.Namespace, stop: asyncio.Event
) -> None:
    drain: Drain = app.state.parts.drain
    server = DrainingServer(
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
            engine=world.engine,
            store=world.store,
            lifetime=settings.grant_lifetime,
            regional=world.regional,
        ),
        plan_defaults=PlanDefaults(
            offerings=settings.offerings,
            hazard_per_hour=settings.hazard_per_hour,
            recovery_seconds=settings.recovery_seconds,
            accelerator=settings.accelerator,
            processes_per_node=settings.processes_per_node,
            cpu_flops=settings.cpu_flops,
            is_emulated=settings.emulated,
        ),
        cloud=_limited_cloud(settings, world),
        operator_project=settings.operator_project,
        secret=settings.secret_key.get_secret_value(),
        accepted_secret=settings.accepted_secret_key.get_secret_value(),
        outage=timedelta(seconds=settings.outage_seconds),
        now=world.now,
        web=web.FOLDER,
        registers_models=bool(settings.azureml_workspace),
        trackers=frozenset(world.trackers),
        mlflow_experiment=EXPERIMENT if settings.tracks_in_workspace else "",
        account=settings.account,
        rates=RateLimits(settings.requests_per_minute),
        allowance=settings.allowance,
        limits=DatasetLimits(
            max_bytes=settings.file_max_bytes,
            max_upload_bytes=settings.upload_max_bytes,
            max_line_bytes=settings.file_max_line_bytes,
            max_examples=settings.file_max_examples,
        ),
    )


def _preparation(parts: Parts) -> Preparation:
    """Prepare new jobs; plan them as the HTTP API does."""
    return Preparation(
        engine=parts.engine,
        store=parts.store,
        preflights=parts.preflights,
        replan=partial(submissions.replan_job, parts),
        now=parts.now,
    )


def _limited_cloud(settings: Settings, world: Adapters) -> CloudProvider:
    """Return the cloud for operators, who share Azure's rate limits with the reconcilers."""
    times = settings.azure_limits_times
    return RateLimitedCloud(
        engine=world.engine, cloud=world.cloud, now=world.now, multiple=times
    ).region(ALL)
