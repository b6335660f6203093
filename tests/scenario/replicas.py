"""The replicas of the service, which are struck and replaced."""

import asyncio
from collections.abc import Coroutine, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any, TypeVar

import httpx
from sqlalchemy import text
from sqlalchemy.exc import SQLAlchemyError

from service.api.app import make_app
from service.cloud.fake import FakeCloud
from service.cloud.provider import CloudError
from service.db.cloud.scale_set_cache import ALL
from service.operations.jobs.preflights import Preflights
from service.preflight.inline import InlineChecker
from service.reconciler.attempts.attempts import AttemptReconciler
from service.reconciler.cloud.heartbeat_visibility import HeartbeatVisibility
from service.reconciler.cloud.lister import Lister
from service.reconciler.cloud.rate_limit import RateLimitedCloud
from service.reconciler.jobs.jobs import JobReconciler
from service.reconciler.sweeps.orphans import OrphanSweep
from service.storage.store import StorageError
from tests.clock import Clock
from tests.scenario import periodic_work
from tests.scenario.seams import Hook, HookedCloud, HookedEngine, HookedStore
from tests.world import World, client, preparation

T = TypeVar("T")
_END_FROZEN = text(
    "select pg_terminate_backend(pid) from pg_stat_activity where datname = current_database()"
    " and state like 'idle in transaction%' and pid <> pg_backend_pid()"
)
# Faults that a round of reconciler/loop.py survives.
FAULTS = (SQLAlchemyError, CloudError, StorageError)


@dataclass
class Replica:
    """One process of the service: an API and a reconciler."""

    hook: Hook
    http: httpx.AsyncClient
    jobs: JobReconciler
    attempts: AttemptReconciler
    orphans: OrphanSweep
    periodic: Mapping[str, periodic_work.Work]


@dataclass
class Replicas:
    """One replica that may be struck, and its successor without faults."""

    world: World
    cloud: FakeCloud
    hook: Hook = field(default_factory=Hook)
    rate_limited: bool = False
    strikes: int = 0
    asleep: list[tuple[Hook, asyncio.Task[Any]]] = field(default_factory=list)
    now: Replica = field(init=False)

    def __post_init__(self) -> None:
        """Start the first replica."""
        self.now = start(
            self.world, self.cloud, self.hook, self.world.clock, rate_limited=self.rate_limited
        )

    async def send_request(self, method: str, url: str, **options: Any) -> httpx.Response | None:  # noqa: ANN401
        """Send a request; return None after no response or a server error."""
        return _useful(await self.turn(self.now.http.request(method, url, **options)))

    async def ask_all(self, requests: Sequence[Mapping[str, Any]]) -> list[httpx.Response | None]:
        """Send requests at the same time, so that they share batched transactions."""
        answers = await self.turn(_at_once(self.now.http, requests))
        return [_useful(a) for a in answers] if answers else [None] * len(requests)

    async def turn(self, work: Coroutine[Any, Any, T]) -> T | None:
        """Run ``work`` on the replica; return None if it died or stalled meanwhile."""
        hook = self.now.hook
        tasks_before = asyncio.all_tasks()
        task = asyncio.create_task(work)
        stopped = asyncio.create_task(hook.stopped.wait())
        await asyncio.wait({task, stopped}, return_when=asyncio.FIRST_COMPLETED)
        stopped.cancel()
        if hook.dead:  # nobody else would end the tasks of a dead replica
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            await _cancel_new_tasks(tasks_before)
            self._replace()
            return None
        if not task.done():
            self.asleep.append((hook, task))
            self._replace()
            return None
        try:
            return task.result()
        except FAULTS:
            return None

    async def wake(self) -> None:
        """Resume stalled work and wait for its end."""
        for hook, task in self.asleep:
            hook.stalled.clear()
            hook.released.set()
            await asyncio.gather(task, return_exceptions=True)
        self.asleep.clear()

    async def end_stalled_transactions(self) -> None:
        """End the transactions of stalled replicas, as service/db/core/engine.py configures.

        PostgreSQL does so by the real clock, which hardly moves during a life.
        """
        if self.asleep:
            async with self.world.engine.connect() as conn:
                await conn.execute(_END_FROZEN)

    def restore(self) -> None:
        """Make everything reachable and commits fast again."""
        self.now.hook.restore()

    def _replace(self) -> None:
        self.strikes += 1
        self.now = start(
            self.world, self.cloud, Hook(), self.world.clock, rate_limited=self.rate_limited
        )


def start(
    world: World, cloud: FakeCloud, hook: Hook, clock: Clock, *, rate_limited: bool = False
) -> Replica:
    """Start a new replica; only state outside the process survives its predecessor."""
    hook.clock = world.clock
    engine = HookedEngine(world.parts.engine, hook)
    hooked_cloud, store = HookedCloud(cloud, hook), HookedStore(world.store, hook)
    parts = replace(world.parts, engine=engine, store=store, now=clock, long_poll=timedelta(0))
    checks = Preflights(engine=engine, store=store, checker=InlineChecker(), now=clock)
    parts = replace(parts, preflights=checks)
    reconcile = {"engine": engine, "store": store, "now": clock}
    limited = (
        RateLimitedCloud(engine=engine, cloud=hooked_cloud, now=clock) if rate_limited else None
    )
    every, watch = world.attempts.pace.poll, HeartbeatVisibility()
    lister = (
        Lister(engine=engine, cloud=limited.region(ALL), interval=every, now=clock)
        if limited
        else None
    )
    shared = {"cloud": hooked_cloud, "limited_cloud": limited}
    return Replica(
        hook=hook,
        http=client(make_app(parts)),
        jobs=replace(world.jobs, engine=engine, now=clock, preparation=preparation(parts)),
        attempts=replace(world.attempts, visibility=watch, lister=lister, **shared, **reconcile),  # type: ignore[arg-type]
        orphans=OrphanSweep(engine=engine, now=clock, **shared),  # type: ignore[arg-type]
        periodic=periodic_work.of(engine, hooked_cloud, store, parts.prices, clock, limited),
    )


def _useful(answer: httpx.Response | None) -> httpx.Response | None:
    return None if answer is None or answer.status_code >= 500 else answer


async def _at_once(
    http: httpx.AsyncClient, requests: Sequence[Mapping[str, Any]]
) -> list[httpx.Response | None]:
    calls = [http.request(**request) for request in requests]
    answers: list[httpx.Response | None] = []
    for answer in await asyncio.gather(*calls, return_exceptions=True):
        if isinstance(answer, BaseException) and not isinstance(answer, FAULTS):
            raise answer
        answers.append(answer if isinstance(answer, httpx.Response) else None)
    return answers


async def _cancel_new_tasks(tasks_before: set[asyncio.Task[Any]]) -> None:
    """Cancel the other tasks of a dead replica and wait for their end."""
    tasks = asyncio.all_tasks() - tasks_before - {asyncio.current_task()}
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
