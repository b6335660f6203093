"""Latency from the loss of a machine to the decision, and to the next create call of a scale set.

A machine is lost in three ways, and the service detects each by a path of its own. "notice": the
node reports the eviction. "drop": the capacity of the scale set falls. "silence": heartbeats stop.
"""

import asyncio
import os
import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from bench.chaos import run
from bench.chaos.run import Chaos, Counted
from bench.chaos.victims import Victims
from bench.report import CannotMeasure, Measure, percentile
from bench.scale.stack import ScaleStack, Shape, stack

WAYS = ("notice", "drop", "silence")
BETWEEN_SECONDS = 0.7  # seconds between two losses
TIMEOUT = 120.0
SETTLE_SECONDS = 60.0  # wait after the last loss was detected
SHAPE = Shape(apis=2, reconcilers=3, beat=5.0, commits=20.0, arm_ms=100.0, blob_ms=10.0)


@dataclass(frozen=True)
class Loss:
    """Loss of one machine of one job; ``at`` is in Unix seconds."""

    way: str
    job: str
    at: float


async def measured(
    per_way: int, silence: float, print_line: Callable[[str], None]
) -> list[Measure]:
    """Lose ``per_way`` machines in each way, all of distinct jobs, and return latency quantiles.

    Args:
        per_way: Number of machines to lose in each way.
        silence: Seconds without a heartbeat until a node counts as lost.
        print_line: Prints a line of progress.
    """
    os.environ["REKINDLE_SILENCE_SECONDS"] = str(silence)
    jobs = per_way * len(WAYS)
    async with stack(SHAPE) as running, await run.connected(running) as database:
        rng = random.Random(1)  # noqa: S311 - a repeatable plan
        chaos = Chaos(running, database, Victims(running, rng), rng, Counted(), print_line)
        await chaos.fill(jobs)
        await _all_train(running, 2 * jobs)
        losses = await _lose(running, per_way)
        print_line(f"{len(losses)} machines lost")
        await asyncio.sleep(silence + SETTLE_SECONDS)
        latencies = {way: await _times(chaos, losses, way) for way in WAYS}
    return [measure for way in WAYS for measure in quantiles(way, latencies[way], silence)]


async def _all_train(running: ScaleStack, nodes: int) -> None:
    deadline = time.monotonic() + TIMEOUT
    while await running.fleet.call("training") < nodes:
        if time.monotonic() > deadline:
            raise CannotMeasure(f"{nodes} nodes did not come to train in {TIMEOUT:.0f} s")
        await asyncio.sleep(0.5)


async def _lose(running: ScaleStack, per_way: int) -> list[Loss]:
    losses = []
    for number in range(per_way * len(WAYS)):
        way = WAYS[number % len(WAYS)]
        at = time.time()
        job = await running.fleet.call("lose", way)
        if job:
            losses.append(Loss(way, job, at))
        await asyncio.sleep(BETWEEN_SECONDS)
    return losses


async def _times(chaos: Chaos, losses: Sequence[Loss], way: str) -> tuple[list[float], list[float]]:
    """Return the seconds to the decision, and to the create call that Azure accepted."""
    decided, requested = [], []
    sets = {s.name: s for s in await chaos.stack.world.call("cloud.list_owned")}
    for loss in losses:
        if loss.way != way:
            continue
        rows = await chaos.rows(
            "select extract(epoch from min(at))::float8 as at from events"
            " where extract(epoch from at) > %s and job_id = %s"
            " and code in ('generation.halted', 'attempt.terminating')",
            loss.at,
            loss.job,
        )
        if rows and rows[0]["at"]:
            decided.append(rows[0]["at"] - loss.at)
        successors = await chaos.rows(
            "select id from attempts where job_id = %s and number = 2", loss.job
        )
        scale_set: Any = (
            sets.get("rk-" + successors[0]["id"].removeprefix("att-")) if successors else None
        )
        if scale_set is not None:
            requested.append(scale_set.created_at.timestamp() - loss.at)
    return decided, requested


def quantiles(
    way: str, latencies: tuple[list[float], list[float]], silence: float
) -> list[Measure]:
    """Return the latency measures, in seconds, of one way of losing a machine."""
    decided, requested = latencies
    limit = silence if way == "silence" else 0.0
    bar = 2.0 if way == "notice" else None
    return [
        Measure(name=f"{way}_losses", value=len(decided), unit=""),
        Measure(name=f"{way}_to_decision_s_p50", value=percentile(decided, 50), unit="s"),
        Measure(
            name=f"{way}_to_decision_s_p99",
            value=percentile(decided, 99),
            unit="s",
            bar=bar,
            limit=limit,
        ),
        Measure(name=f"{way}_to_create_s_p50", value=percentile(requested, 50), unit="s"),
        Measure(name=f"{way}_to_create_s_p99", value=percentile(requested, 99), unit="s"),
    ]
