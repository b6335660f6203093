"""Hearing thousands of nodes: what comes while a transaction is under way shares the next one.

Alone, a heartbeat costs one transaction of its own, as ever; a crowd costs one for all of it.
"""

import logging
import math
from collections.abc import Awaitable, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import TypeVar

from sqlalchemy.exc import DataError, IntegrityError
from sqlalchemy.ext.asyncio import AsyncEngine

from service.db import heartbeats
from service.db.engine import reading
from service.db.heartbeats import Beaten, Order
from service.db.together import Together
from service.instruments import GPU_ECC, GPU_MEMORY, GPU_UTILIZATION, GPU_XID
from service.operations import news, nodes
from service.operations.nodes import Heard
from trainer.contract import GpuErrors, Heartbeat

log = logging.getLogger(__name__)
T = TypeVar("T")
# Between two crowds that tell nothing new: nobody waits for what they say, unless many do.
_BREATH_SECONDS, _MANY = 0.05, 50


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
        self._beats = Together(partial(_beats, engine), breath=_BREATH_SECONDS, enough=_MANY)
        self._news = Together(partial(_news, engine))
        self._orders = Together(partial(_orders, engine))

    async def beat(self, node: str, heartbeat: Heartbeat, now: datetime) -> Beaten | None:
        """Take it in if it tells nothing new; None: it is to be heard by itself."""
        if not is_quiet(heartbeat):
            return None
        beaten = await self._beats.do(Said(node, heartbeat, now))
        if beaten is not None:
            _observe_gpus(heartbeat, beaten.region, beaten.vm_size)
        return beaten

    async def hear(self, node: str, heartbeat: Heartbeat, now: datetime) -> Heard:
        """Take in what may be news. Raises Gone and NodeNotFound."""
        said = Said(node, heartbeat, now)
        heard = await self._news.do(said) if is_usual(heartbeat) else None
        heard = heard or await _alone(self._engine, said)
        if heard.is_fresh:
            _observe_gpus(heartbeat, heard.region, heard.vm_size)
        return heard

    async def order(self, node: str, after: int) -> Order | None:
        """How it stands with the node's directive, as it has number ``after``; None: no such node.

        The generation is in it where the node is to be told of it.
        """
        return await self._orders.do((node, after))


def _observe_gpus(heartbeat: Heartbeat, region: str, vm_size: str) -> None:
    """Record the readings of a node's GPUs. Counters of a place begin at 0 with its first one."""
    if not heartbeat.gpus and heartbeat.gpu_errors is None:
        return
    for gpu in heartbeat.gpus:
        GPU_UTILIZATION.observe(region, vm_size, value=gpu.busy)
        GPU_MEMORY.observe(region, vm_size, value=gpu.memory)
    errors = heartbeat.gpu_errors or GpuErrors()
    GPU_ECC.add("corrected", region, vm_size, amount=errors.corrected)
    GPU_ECC.add("uncorrected", region, vm_size, amount=errors.uncorrected)
    GPU_XID.add("fatal", region, vm_size, amount=errors.fatal_xids)
    GPU_XID.add("other", region, vm_size, amount=errors.other_xids)


def is_quiet(heartbeat: Heartbeat) -> bool:
    """True for one that may be without news: it says nothing but how far the node is."""
    told = (heartbeat.committed, *_rare(heartbeat))
    return not any(told) and heartbeat.eviction is None and _is_finite(heartbeat)


def is_usual(heartbeat: Heartbeat) -> bool:
    """True for news of a kind that thousands of nodes tell at once, as when they are evicted."""
    return not any(_rare(heartbeat)) and _is_finite(heartbeat)


def _rare(heartbeat: Heartbeat) -> tuple[object, ...]:
    return (
        heartbeat.spans,
        heartbeat.troubles,
        heartbeat.error,
        heartbeat.broken,
        heartbeat.unhealthy,
    )


def _is_finite(heartbeat: Heartbeat) -> bool:
    numbers = (v for m in heartbeat.metrics for v in vars(m).values())
    return all(math.isfinite(v) for v in numbers if isinstance(v, float))


async def _beats(engine: AsyncEngine, said: Sequence[Said]) -> Sequence[Beaten | None]:
    return await _or_one_by_one(_taken(engine, said), said)


async def _or_one_by_one(heard: Awaitable[Sequence[T]], said: Sequence[Said]) -> Sequence[T | None]:
    """Of a crowd of which one cannot be kept each is heard by itself: the fault is that one's."""
    try:
        return await heard
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
        await news.keep_measured(conn, new, now)
    return [taken.get(one.node) if first[one.node] is one else None for one in said]


async def _orders(engine: AsyncEngine, asked: Sequence[tuple[str, int]]) -> list[Order | None]:
    # Not with a ROLLBACK after it: psycopg then forgets what the connection has prepared.
    async with reading(engine).connect() as conn:
        found = await heartbeats.orders(conn, list(dict.fromkeys(asked)))
    return [found.get(one) for one in asked]


async def _news(engine: AsyncEngine, said: Sequence[Said]) -> Sequence[Heard | Exception | None]:
    return await _or_one_by_one(_told(engine, said), said)


async def _alone(engine: AsyncEngine, said: Said) -> Heard:
    async with engine.begin() as conn:
        return await nodes.hear(conn, said.node, said.heartbeat, said.at)


async def _told(engine: AsyncEngine, said: Sequence[Said]) -> list[Heard | Exception | None]:
    first: dict[str, Said] = {}
    for one in said:
        first.setdefault(one.node, one)  # of two at once the second is heard by itself
    now = max(one.at for one in said)
    async with engine.begin() as conn:
        heard = await news.hear_all(conn, {n: one.heartbeat for n, one in first.items()}, now)
    return [heard[one.node] if first[one.node] is one else None for one in said]
