"""A simulated node that uses the node protocol over HTTP and commits through HEAD."""

import json
import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import httpx

from service.domain import tokens
from service.domain.cloud.fleet import scale_set_name
from tests.world import SECRET, World
from trainer.contract import (
    HEAD,
    PROTOCOL,
    Committed,
    Directive,
    EvictionNotice,
    Head,
    Heartbeat,
    NodePhase,
    Registered,
    Registration,
    StepMetrics,
)


@dataclass
class ScriptedNode:
    """One VM's supervisor, which a test drives step by step."""

    world: World
    attempt_id: str
    vm_id: str
    boot_id: str = "boot-1"
    seq: int = 0
    directive_seq: int = 0
    seat: Registered | None = None
    last: Directive | None = field(default=None)

    async def register(self) -> httpx.Response:
        """Register with the service; keep the answer when it is accepted."""
        message = Registration(
            protocol=PROTOCOL,
            attempt_id=self.attempt_id,
            vm_id=self.vm_id,
            boot_id=self.boot_id,
            name=self.vm_id,
            address="127.0.0.9",
            gpus=0,
        )
        token = tokens.bootstrap_token(SECRET, self.attempt_id)
        answer = await self._post("/internal/nodes", message.to_json(), token)
        if answer.status_code == 200:
            self.seat = Registered.from_json(answer.content)
            self.seq = 0
        return answer

    async def say(self, phase: NodePhase, generation: int = 0, **members: Any) -> httpx.Response:  # noqa: ANN401
        """Send the next heartbeat."""
        assert self.seat is not None
        self.seq += 1
        values = {
            "epoch": self.seat.epoch,
            "seq": self.seq,
            "step": 0,
            "free_port": 29500,
        } | members
        message = Heartbeat(phase=phase, generation=generation, **values)
        path = f"/internal/nodes/{self.seat.node_id}/heartbeat"
        return await self._post(path, message.to_json(), self.seat.node_token)

    async def notice(self, generation: int, step: int) -> httpx.Response:
        """Send a heartbeat with an eviction notice."""
        event = EvictionNotice(event_id="event-1", not_before=0.0, seen_at=0.0)
        return await self.say(NodePhase.RUNNING, generation, step=step, eviction=event)

    async def hear(self) -> Directive:
        """Return the newest directive; it must exist, because this does not wait."""
        answer = await self.ask()
        assert answer.status_code == 200, answer.text
        self.last = Directive.from_json(answer.content)
        self.directive_seq = self.last.seq
        return self.last

    async def ask(self) -> httpx.Response:
        """Request a directive that is newer than the last one."""
        assert self.seat is not None
        return await self.world.http.get(
            f"/internal/nodes/{self.seat.node_id}/directive",
            params={"after": self.directive_seq, "epoch": self.seat.epoch, "wait": 20},
            headers={"authorization": f"Bearer {self.seat.node_token}"},
        )

    async def _post(self, path: str, body: str, token: str) -> httpx.Response:
        headers = {"authorization": f"Bearer {token}", "content-type": "application/json"}
        return await self.world.http.post(path, content=body, headers=headers)


def metrics(step: int, loss: float = 2.0) -> StepMetrics:
    """Return the metrics of a step, as rank 0 reports them."""
    return StepMetrics(
        step=step, loss=loss, learning_rate=1e-3, grad_norm=1.0, tokens=100, seconds=0.5, at=0.0
    )


def committed(step: int, generation: int, kind: str = "periodic") -> Committed:
    """Return HEAD's entry of a checkpoint, or of a model if ``kind`` is "final"."""
    folder = "models" if kind == "final" else "checkpoints"
    return Committed(
        path=f"{folder}/step-{step:08d}-{generation:08x}",
        step=step,
        consumed_samples=step * 8,
        world_size=2,
        generation=generation,
        kind=kind,
        size=1000,
        manifest_sha256="0" * 64,
        committed_at=1_795_000_000.0,
    )


async def commit(world: World, job_id: str, entry: Committed) -> None:
    """Write an entry into HEAD, as rank 0's node does."""
    data, etag = await world.store.read(job_id, HEAD)
    head = Head.from_json(data)
    after = head.with_model(entry) if entry.kind == "final" else head.with_checkpoint(entry)
    await world.store.write(job_id, HEAD, after.to_json().encode(), if_match=etag)


async def evicted(world: World, job_id: str) -> None:
    """Evict all machines of the newest attempt without notice."""
    name = scale_set_name((await world.attempts_of(job_id))[-1]["id"])
    for instance in (await world.cloud.get(name)).instances:
        world.cloud.evict(name, instance.instance_id)


async def boot(world: World, job_id: str) -> list[ScriptedNode]:
    """Advance time until the newest attempt's machines exist, and register their nodes."""
    attempt: dict[str, Any] = {"state": "none"}
    for _ in range(20):
        await world.tick(seconds=_until_machines(world))
        attempt = (await world.attempts_of(job_id) or [attempt])[-1]
        if attempt["state"] == "starting":
            break
    assert attempt["state"] == "starting", attempt
    scale_set = await world.cloud.get(scale_set_name(attempt["id"]))
    nodes = [ScriptedNode(world, attempt["id"], i.vm_id) for i in scale_set.instances]
    for node in nodes:
        answer = await node.register()
        assert answer.status_code == 200, answer.text
        assert (await node.say(NodePhase.READY)).status_code == 200
    return nodes


def _until_machines(world: World) -> float:
    """Return the seconds until all machines exist, in multiples of 15 and at least 15.

    One long step is much cheaper than many polls of machines that do not exist yet. The reconciler
    treats such a long step as an outage of its own, so heartbeat timeouts start again after it.
    """
    ready_at = [e.accepted_at + e.create_time for e in world.cloud._entries.values()]
    remaining = max((at - world.clock() for at in ready_at), default=timedelta(0))
    return max(math.ceil(remaining / timedelta(seconds=15)), 1) * 15.0


async def train(world: World, nodes: list[ScriptedNode], step: int) -> int:
    """Open the next generation, let it finish ``step``, and return the generation's number."""
    await world.tick()
    directives = [await node.hear() for node in nodes]
    number = directives[0].number
    assert all(d.generation and d.number == number for d in directives), directives
    for rank, node in enumerate(nodes):
        measured = (metrics(step),) if rank == 0 else ()
        await node.say(NodePhase.RUNNING, number, step=step, metrics=measured)
    await world.tick(2, seconds=2)
    return number


async def start_training(
    world: World,
    step: int = 1,
    **body: Any,  # noqa: ANN401 - JSON
) -> tuple[str, list[ScriptedNode], int]:
    """Submit a job and let it finish ``step``; return its id, its nodes and the generation."""
    job_id = str((await world.submit(**body))["id"])
    nodes = await boot(world, job_id)
    return job_id, nodes, await train(world, nodes, step)


async def say_all(
    nodes: Iterable[ScriptedNode],
    phase: NodePhase,
    generation: int = 0,
    **members: Any,  # noqa: ANN401 - members of a heartbeat
) -> None:
    """Send the same heartbeat from every node."""
    for node in nodes:
        await node.say(phase, generation, **members)


def body(answer: httpx.Response) -> dict[str, Any]:
    """Return the JSON of an answer."""
    parsed: dict[str, Any] = json.loads(answer.content)
    return parsed
