"""Hearing thousands of nodes: what comes while a transaction is under way shares the next one.

Alone, a heartbeat costs one transaction of its own, as ever; a crowd costs one for all of it.
"""

import asyncio
import logging
import math
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from functools import partial
from typing import Generic, TypeVar

from sqlalchemy.exc import DataError, IntegrityError
from sqlalchemy.ext.asyncio import AsyncEngine

from service.db import heartbeats
from service.db.heartbeats import Beaten, Order, Progress
from service.domain.errors import InvalidRequest
from service.operations import nodes
from trainer.contract import Heartbeat

log = logging.getLogger(__name__)
T = TypeVar("T")
R = TypeVar("R")
MOST = 250  # in one transaction
_LONG = ("tokens", "peak_memory")  # columns of 64 bits; the others have 32
AT_ONCE = 2  # transactions: while one waits for the disk the next one is made ready


class Together(Generic[T, R]):
    """Does one kind of work for many at a time."""

    def __init__(self, work: Callable[[Sequence[T]], Awaitable[Sequence[R]]]) -> None:
        self._work = work
        self._waiting: deque[tuple[T, asyncio.Future[R]]] = deque()
        self._under_way: set[asyncio.Task[None]] = set()

    async def do(self, item: T) -> R:
        """The work's answer for ``item``; a failure is that of all who shared it."""
        answer: asyncio.Future[R] = asyncio.get_running_loop().create_future()
        self._waiting.append((item, answer))
        if len(self._under_way) < AT_ONCE:
            task = asyncio.create_task(self._run())
            self._under_way.add(task)
            task.add_done_callback(self._under_way.discard)
        return await answer

    async def _run(self) -> None:
        while self._waiting:
            count = min(len(self._waiting), MOST)
            taken = [self._waiting.popleft() for _ in range(count)]
            try:
                answers = await self._work([item for item, _ in taken])
            except Exception as fault:  # noqa: BLE001 - it is raised where each waits
                for _, answer in taken:
                    if not answer.done():
                        answer.set_exception(fault)
            else:
                for (_, answer), value in zip(taken, answers, strict=True):
                    if not answer.done():
                        answer.set_result(value)


@dataclass(frozen=True)
class Said:
    """A heartbeat and whose it is."""

    node: str
    heartbeat: Heartbeat
    at: datetime


class Hearing:
    """One per api process."""

    def __init__(self, engine: AsyncEngine) -> None:
        self._engine = engine
        self._beats = Together(partial(_beats, engine))
        self._orders = Together(partial(_orders, engine))

    async def beat(self, node: str, heartbeat: Heartbeat, now: datetime) -> Beaten | None:
        """Take it in if it tells nothing new; None: it is to be heard by itself.

        Raises InvalidRequest for a number that no column holds.
        """
        _check(heartbeat)
        return await self._beats.do(Said(node, heartbeat, now)) if is_quiet(heartbeat) else None

    async def order(self, node: str) -> Order | None:
        """How it stands with the node's directive; None: there is no such node."""
        return await self._orders.do(node)


def is_quiet(heartbeat: Heartbeat) -> bool:
    """True for one that may be without news: it says nothing but how far the node is."""
    told = (heartbeat.committed, heartbeat.spans, heartbeat.troubles, heartbeat.error)
    if any(told) or heartbeat.eviction is not None or heartbeat.broken is not None:
        return False
    numbers = (v for m in heartbeat.metrics for v in asdict(m).values())
    return all(math.isfinite(v) for v in numbers if isinstance(v, float))


def _check(heartbeat: Heartbeat) -> None:
    for where, told in (("", heartbeat), *(("metrics.", m) for m in heartbeat.metrics)):
        for name, value in vars(told).items():
            bits = 63 if name in _LONG else 31
            if type(value) is int and not -(2**bits) <= value < 2**bits:
                raise InvalidRequest(f"{where}{name}: {value} is more than this service can keep.")


async def _beats(engine: AsyncEngine, said: Sequence[Said]) -> list[Beaten | None]:
    """Of a crowd of which one cannot be kept each is heard by itself: the fault is that one's."""
    try:
        return await _taken(engine, said)
    except (DataError, IntegrityError) as fault:
        log.warning("heartbeats.crowd_refused", extra={"count": len(said), "cause": str(fault)})
        return [None] * len(said)


async def _taken(engine: AsyncEngine, said: Sequence[Said]) -> list[Beaten | None]:
    first: dict[str, Said] = {}
    for one in said:
        first.setdefault(one.node, one)  # of two at once the second is heard by itself
    now = max(one.at for one in said)
    async with engine.begin() as conn:
        given = {node: one.heartbeat for node, one in first.items()}
        taken = await heartbeats.beat(conn, given, now)
        new = [(taken[node].job_id, given[node]) for node in sorted(taken) if given[node].metrics]
        rows = [(job_id, h.generation, h.metrics) for job_id, h in new]
        await heartbeats.measured(conn, rows)
        progress = {job_id: _progress(job_id, h) for job_id, h in new}
        await heartbeats.progressed(conn, list(progress.values()), now)
    return [taken.get(one.node) if first[one.node] is one else None for one in said]


async def _orders(engine: AsyncEngine, ids: Sequence[str]) -> list[Order | None]:
    async with engine.connect() as conn:
        found = await heartbeats.orders(conn, ids)
    return [found.get(node) for node in ids]


def _progress(job_id: str, heartbeat: Heartbeat) -> Progress:
    last = max(heartbeat.metrics, key=lambda m: m.step)
    return Progress(
        job_id=job_id,
        generation=heartbeat.generation,
        step=last.step,
        news=nodes.news(heartbeat),
    )
