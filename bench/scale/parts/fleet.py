"""All simulated nodes: `python -m bench.scale.parts.fleet SOCKET WORLD`.

It takes orders of the benchmark on its own socket, and measures heartbeats by the nodes' clock.
"""

import argparse
import asyncio
import gc
import os
import random
import sys
import time
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

import uvloop

from bench.scale.parts import line
from bench.scale.parts.line import Line
from bench.scale.parts.node import Node
from bench.scale.parts.wire import Pool, Wire
from service.domain import tokens

POLL_SECONDS = 0.5  # seconds between two polls for new machines
POOL = 512  # connections for heartbeats, per api process
COLLECT_AFTER = (100_000, 20, 20)


class NodeFleet:
    """All nodes and the resources that they share."""

    def __init__(self, world: Path, apis: list[int], beat: float, commits: float) -> None:
        self.beat = beat
        self._commits = commits  # seconds between two checkpoints of a job; 0: none
        self._world = Line(world)
        self._apis = apis
        self._pools = [Pool("127.0.0.1", port, POOL) for port in apis]
        self._secret = os.environ["REKINDLE_SECRET_KEY"]
        self._nodes: list[Node] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self._heartbeat_seconds: list[float] = []
        self._failures = 0
        self._jobs_with_loss: set[str] = set()

    @property
    def pool(self) -> Pool:
        """Connection pool of a random api process."""
        return random.choice(self._pools)  # noqa: S311 - no secret

    def new_wire(self) -> Wire:
        """Return a new connection to a random api process."""
        return Wire("127.0.0.1", random.choice(self._apis))  # noqa: S311 - no secret

    def record_heartbeat(self, seconds: float, status: int) -> None:
        """Record the duration in seconds and the status of a heartbeat."""
        self._heartbeat_seconds.append(seconds)
        self._failures += status not in (200, 409, 410)

    def start(self, work: Coroutine[Any, Any, None]) -> None:
        """Start a background task."""
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def remove(self, node: Node) -> None:
        """Remove a node; the cloud then deletes an evicted machine."""
        self._nodes.remove(node)
        if node.evicted:
            await self._world.call("bench.evict", [node.name])

    async def run(self) -> None:
        """Start nodes for new machines, and commit checkpoints of jobs."""
        while True:
            for attempt, job, vm_id, name in await self._world.call("bench.boots"):
                node = Node(self, attempt, job, vm_id, name)
                self._nodes.append(node)
                self.start(node.live(tokens.bootstrap_token(self._secret, attempt)))
            self._commit_some()
            await asyncio.sleep(POLL_SECONDS)

    async def handle(self, method: str, args: tuple[Any, ...], _: dict[str, Any]) -> Any:  # noqa: ANN401
        """Carry out one order of the benchmark."""
        return await getattr(self, f"do_{method}")(*args)

    async def do_training(self) -> int:
        """Return the number of nodes that train."""
        return sum(n.phase == "running" and n.step > 0 for n in self._nodes)

    async def do_heartbeats(self) -> tuple[list[float], int]:
        """Return the durations in seconds and the number of failures since the last call."""
        took = self._heartbeat_seconds
        failed = self._failures
        self._heartbeat_seconds = []
        self._failures = 0
        return took, failed

    async def do_evict(self, count: int) -> int:
        """Give up to ``count`` training nodes an eviction notice at once; return their number."""
        trains = [n for n in self._nodes if n.phase == "running" and not n.evicted]
        chosen = random.sample(trains, min(count, len(trains)))
        for node in chosen:
            self.start(node.evict())
        return len(chosen)

    async def do_lose(self, way: str) -> str:
        """Lose one machine by notice, drop or silence; return its job, or an empty string.

        Only jobs that train on all machines and have lost none before are chosen.
        """
        unsuitable_jobs = {
            n.job for n in self._nodes if n.has_left or n.evicted or n.phase != "running"
        }
        excluded = unsuitable_jobs | self._jobs_with_loss
        node = next((n for n in self._nodes if n.job not in excluded), None)
        if node is None:
            return ""
        self._jobs_with_loss.add(node.job)
        if way == "notice":
            await node.evict()
        else:
            node.has_left = True
            if way == "drop":
                await self._world.call("bench.evict", [node.name])
        return node.job

    async def do_flood(self, seconds: float, lanes: int) -> int:
        """Send heartbeats in ``lanes`` loops without pauses; return the number sent."""
        nodes = [n for n in self._nodes if n.phase == "running"]
        until, sent = time.monotonic() + seconds, 0

        async def lane(share: list[Node]) -> None:
            nonlocal sent
            while time.monotonic() < until:
                for node in share:
                    await node.beat()
                    sent += 1
                    if time.monotonic() >= until:
                        return

        await asyncio.gather(*(lane(nodes[n::lanes]) for n in range(lanes) if nodes[n::lanes]))
        return sent

    def _commit_some(self) -> None:
        if not self._commits:
            return
        chance = POLL_SECONDS / self._commits
        stalled = {n.job for n in self._nodes if n.has_left}  # a checkpoint needs all nodes
        for node in self._nodes:
            commits = node.rank0 and node.step > 0 and node.job not in stalled
            if commits and random.random() < chance:  # noqa: S311 - no secret
                self.start(self._commit(node))

    async def _commit(self, node: Node) -> None:
        await self._world.call("bench.commit", node.job, node.generation, node.step)


async def main() -> None:
    """Serve orders until killed."""
    parser = argparse.ArgumentParser()
    parser.add_argument("socket", type=Path)
    parser.add_argument("world", type=Path)
    parser.add_argument("--apis", type=int, nargs="+", required=True)
    parser.add_argument("--beat", type=float, required=True)
    parser.add_argument("--commits", type=float, required=True)
    options = parser.parse_args()
    gc.freeze()  # else garbage collection here would add to measured latency
    gc.set_threshold(*COLLECT_AFTER)
    fleet = NodeFleet(options.world, options.apis, options.beat, options.commits)
    server = await line.serve(options.socket, fleet.handle)
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    await asyncio.gather(server.serve_forever(), fleet.run())


if __name__ == "__main__":
    uvloop.run(main())
