"""One simulated node, which uses the node protocol like a supervisor and trains nothing."""

import asyncio
import json
import random
import time
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any, Protocol

from bench.scale.parts.wire import Answer, Pool, Wire
from trainer.contract import PROTOCOL
from trainer.supervisor.clock import NodeLimits

_AGAIN = 1.0  # seconds until a retry
_RETRY = NodeLimits().retry  # maximum seconds between two registrations, as in supervisors
_FIRST_STEP = 0.2  # seconds from the start directive to the first step


class Town(Protocol):
    """Interface of the resources that nodes share."""

    beat: float

    @property
    def pool(self) -> Pool:
        """Connection pool of a random api process."""
        ...

    def record_heartbeat(self, seconds: float, status: int) -> None:
        """Record the duration in seconds and the status of a heartbeat."""
        ...

    async def remove(self, node: "Node") -> None:
        """Remove a node that has left."""
        ...

    def new_wire(self) -> Wire:
        """Return a new connection for long polls."""
        ...

    def start(self, work: Coroutine[Any, Any, None]) -> None:
        """Start a background task."""
        ...


@dataclass(eq=False)
class Node:
    """One simulated node."""

    town: Town
    attempt: str
    job: str
    vm_id: str
    name: str
    id: str = ""
    token: str = ""
    epoch: int = 1
    seq: int = 0
    directive: int = 0
    phase: str = "ready"
    generation: int = 0
    step: int = 0
    rank0: bool = False
    evicted: bool = False
    has_left: bool = False
    _wire: Wire | None = None
    _timer: asyncio.TimerHandle | None = None
    _sending: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def live(self, bootstrap: str) -> None:
        """Register, then send heartbeats and poll directives until the service ends the node."""
        if not await self._register(bootstrap):
            return
        self._wire = self.town.new_wire()
        await self.beat()
        await self._poll_directives()

    async def beat(self, **members: object) -> None:
        """Send a heartbeat, and schedule the next one independently of this one's duration."""
        if self.has_left:
            return
        self._schedule(self.town.beat * random.uniform(0.95, 1.05), self._tick)  # noqa: S311
        async with self._sending:
            start = time.perf_counter()
            status, _ = await self._send_heartbeat(members)
            self.town.record_heartbeat(time.perf_counter() - start, status)
        if status == 410:
            await self._leave()

    async def evict(self) -> None:
        """Report an eviction notice for this machine."""
        self.evicted = True
        event = {"event_id": f"event-{self.vm_id}", "not_before": 0.0, "seen_at": 0.0}
        await self.beat(eviction=event)

    async def _tick(self) -> None:
        if self.phase == "running":
            self.step += 1
        await self.beat(metrics=self._metrics())

    def _metrics(self) -> list[dict[str, object]]:
        if not (self.rank0 and self.phase == "running"):
            return []
        row: dict[str, object] = {
            "step": self.step,
            "loss": 2.0,
            "learning_rate": 1e-3,
            "grad_norm": 1.0,
        }
        return [row | {"tokens": 100_000, "seconds": self.town.beat, "at": time.time()}]

    async def _register(self, bootstrap: str) -> bool:
        message = {"protocol": PROTOCOL, "attempt_id": self.attempt, "vm_id": self.vm_id}
        message |= {"boot_id": f"boot-{self.vm_id}", "name": self.name, "gpus": 8}
        body = json.dumps(message | {"address": "10.0.0.4"})
        longest = _AGAIN / 2
        while True:
            try:
                status, data = await self.town.pool.request(
                    "POST", "/internal/nodes", bootstrap, body
                )
            except OSError:
                status, data = 0, b""
            if status == 200:
                answer = json.loads(data)
                self.id, self.token = answer["node_id"], answer["node_token"]
                self.epoch = answer["epoch"]
                return True
            if status == 410:
                return False
            longest = min(2 * longest, _RETRY)
            await asyncio.sleep(longest * random.random())  # noqa: S311 - jitter, against bursts

    async def _send_heartbeat(self, members: dict[str, object]) -> Answer:
        self.seq += 1
        message = {"epoch": self.epoch, "seq": self.seq, "phase": self.phase, "free_port": 29500}
        message |= {"generation": self.generation, "step": self.step, **members}
        path = f"/internal/nodes/{self.id}/heartbeat"
        try:
            return await self.town.pool.request("POST", path, self.token, json.dumps(message))
        except OSError:
            return 0, b""

    async def _poll_directives(self) -> None:
        assert self._wire is not None
        while not self.has_left:
            path = f"/internal/nodes/{self.id}/directive?after={self.directive}&wait=45"
            path += f"&epoch={self.epoch}"
            try:
                status, data = await self._wire.request("GET", path, self.token)
            except OSError:
                status, data = 0, b""
            if status == 410:
                await self._leave()
            elif status == 200:
                await self._apply_directive(json.loads(data))
            else:
                await asyncio.sleep(_AGAIN)

    async def _apply_directive(self, directive: dict[str, Any]) -> None:
        self.directive = directive["seq"]
        match directive["kind"]:
            case "start":
                self._start(directive["generation"])
            case "stop" | "checkpoint_and_stop":
                self.phase, self.generation = "stopped", directive["number"]
                await self.beat()
                if self.evicted:
                    await self._leave()
            case _:  # nothing to do
                pass

    def _start(self, generation: dict[str, Any]) -> None:
        self.generation, self.phase = generation["number"], "running"
        self.rank0 = generation["members"][0]["node_id"] == self.id
        checkpoint = generation.get("checkpoint")
        self.step = checkpoint["step"] if checkpoint else 0
        self._schedule(_FIRST_STEP, self._tick)

    def _schedule(self, seconds: float, act: Callable[[], Coroutine[Any, Any, None]]) -> None:
        if self._timer:
            self._timer.cancel()
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(seconds, lambda: self.town.start(act()))

    async def _leave(self) -> None:
        if self.has_left:
            return
        self.has_left = True
        if self._timer:
            self._timer.cancel()
        if self._wire:
            self._wire.close()
        await self.town.remove(self)
