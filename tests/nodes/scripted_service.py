"""A control plane and metadata service that a test scripts, over real HTTP.

It answers the node protocol and decides nothing. The test sends directives, stops the service,
refuses or dismisses nodes, and reads what the nodes sent.
"""

import asyncio
import json
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from email.utils import formatdate

import uvicorn
from fastapi import FastAPI, Request, Response

from tests.waiting import until
from trainer.contract import (
    Directive,
    DirectiveKind,
    Generation,
    Grants,
    Heartbeat,
    HeartbeatAnswer,
    Message,
    NodePhase,
    Registered,
    Registration,
)

OUTAGE = 503


@dataclass
class ScriptedNode:
    """One node as the service knows it; ``address`` and ``name`` are those of its VM."""

    node_id: str
    name: str
    address: str = "127.0.0.1"
    epoch: int = 0
    boots: list[str] = field(default_factory=list)
    registrations: list[Registration] = field(default_factory=list)
    heartbeats: list[Heartbeat] = field(default_factory=list)
    directives: list[Directive] = field(default_factory=list)
    event: str = ""  # id of its Preempt event; empty: none
    notice: float = 30.0  # seconds from now until the event's NotBefore
    acknowledged: list[str] = field(default_factory=list)
    refusals: list[tuple[int, str]] = field(default_factory=list)  # status, code; for next requests
    cut_off: bool = False  # whether its requests fail with 503
    dismissed: bool = False  # whether it is refused a new registration

    @property
    def last_heartbeat(self) -> Heartbeat:
        """The last heartbeat."""
        return self.heartbeats[-1]

    def has_reported(self, phase: NodePhase, generation: int) -> bool:
        """Return whether the last heartbeat has this phase and generation."""
        last = self.heartbeats[-1] if self.heartbeats else None
        return last is not None and (last.phase, last.generation) == (phase, generation)


class ScriptedService:
    """The service; ``happened`` lists what it saw, in order."""

    def __init__(self, grants: Grants) -> None:
        self.grants = grants
        self.nodes: dict[str, ScriptedNode] = {}
        self.happened: list[str] = []
        self.down = False
        self.stop_in = 3600.0  # seconds from now until stop_by, in every answer
        self.not_seen_yet = 0  # number of registrations to answer with 425
        self.closing = False
        self.fresh: Grants | None = None  # grants to send with every directive
        self.knocks = 0  # number of registration requests
        self.url = ""
        self._changed = asyncio.Condition()

    def add(self, node_id: str, address: str = "127.0.0.1") -> ScriptedNode:
        """Add a VM and return its node."""
        self.nodes[node_id] = ScriptedNode(node_id, f"rk-{node_id}_0", address)
        return self.nodes[node_id]

    async def direct(
        self,
        node: ScriptedNode,
        kind: DirectiveKind,
        generation: Generation | None = None,
        *,
        number: int = 0,
        seq: int = 0,
    ) -> None:
        """Send a directive, with the next sequence number unless one is given."""
        directive = Directive(
            seq=seq or len(node.directives) + 1,
            kind=kind,
            now=0.0,
            stop_by=0.0,
            number=generation.number if generation else number,
            generation=generation,
        )
        node.directives.append(directive)
        await self.wake()

    async def registers(self, request: Request) -> Response:
        """Answer POST /internal/nodes."""
        self.knocks += 1
        if self.down:
            return Response(status_code=OUTAGE)
        if self.not_seen_yet:
            self.not_seen_yet -= 1
            return Response(status_code=425)
        registration = Registration.from_json(await request.body())
        node = self.nodes[registration.vm_id]
        if node.dismissed:
            return Response(status_code=410)
        node.registrations.append(registration)
        if registration.boot_id not in node.boots:
            node.boots.append(registration.boot_id)
        node.epoch = node.boots.index(registration.boot_id) + 1
        now = time.time()
        token = f"token-{node.node_id}-{len(node.registrations)}"
        return _answer(
            Registered(
                node_id=node.node_id,
                node_token=token,
                epoch=node.epoch,
                now=now,
                stop_by=now + self.stop_in,
                grants=self.grants,
            )
        )

    async def beats(self, node_id: str, request: Request) -> Response:
        """Answer POST /internal/nodes/{id}/heartbeat."""
        node = self.nodes[node_id]
        if refusal := self._refusal(node, request):
            return refusal
        heartbeat = Heartbeat.from_json(await request.body())
        node.heartbeats.append(heartbeat)
        self._note(f"{node_id} {heartbeat.phase} {heartbeat.generation}")
        if heartbeat.eviction:
            self._note(f"{node_id} noticed")
        now = time.time()
        newest = node.directives[-1].seq if node.directives else 0
        return _answer(HeartbeatAnswer(now=now, stop_by=now + self.stop_in, directive_seq=newest))

    async def asks(self, node_id: str, after: int, request: Request) -> Response:
        """Answer GET /internal/nodes/{id}/directive."""
        node = self.nodes[node_id]
        if refusal := self._refusal(node, request):
            return refusal
        try:
            async with asyncio.timeout(1.0), self._changed:
                await self._changed.wait_for(
                    lambda: self.closing or self._due(node, after) is not None
                )
        except TimeoutError:
            pass
        if self.down:
            return Response(status_code=OUTAGE)
        now = time.time()
        quiet = Directive(seq=after, kind=DirectiveKind.CARRY_ON, now=now, stop_by=now)
        due = self._due(node, after) or quiet
        return _answer(replace(due, now=now, stop_by=now + self.stop_in, grants=self.fresh))

    async def instance(self, vm: str) -> Response:
        """Answer with the instance document of the metadata service."""
        node = self.nodes[vm]
        address = {"privateIpAddress": node.address}
        document = {
            "compute": {"vmId": node.node_id, "name": node.name, "vmSize": "Standard_D2s_v5"},
            "network": {"interface": [{"ipv4": {"ipAddress": [address]}}]},
        }
        return _json(document)

    async def events(self, vm: str) -> Response:
        """Answer with the scheduled events of the metadata service."""
        node = self.nodes[vm]
        event = {
            "EventId": node.event,
            "EventType": "Preempt",
            "EventStatus": "Scheduled",
            "Resources": [node.name],
            "NotBefore": formatdate(time.time() + node.notice, usegmt=True),
        }
        pending = node.event and node.event not in node.acknowledged
        return _json({"DocumentIncarnation": 1, "Events": [event] if pending else []})

    async def acknowledges(self, vm: str, request: Request) -> Response:
        """Answer the acknowledgement of a scheduled event, after which Azure may take the VM."""
        for start in (await request.json())["StartRequests"]:
            self.nodes[vm].acknowledged.append(start["EventId"])
            self._note(f"{vm} acknowledged")
        return _json({})

    async def wake(self) -> None:
        """Wake up all long polls."""
        async with self._changed:
            self._changed.notify_all()

    def _due(self, node: ScriptedNode, after: int) -> Directive | None:
        return next((d for d in reversed(node.directives) if d.seq > after), None)

    def _refusal(self, node: ScriptedNode, request: Request) -> Response | None:
        if self.down or node.cut_off:
            return Response(status_code=OUTAGE)
        if node.refusals:
            status, code = node.refusals.pop(0)
            return _json({"error": {"code": code, "message": "as the test wants"}}, status)
        token = f"Bearer token-{node.node_id}-{len(node.registrations)}"
        authorized = request.headers.get("Authorization") == token
        return None if authorized else Response(status_code=401)

    def _note(self, event: str) -> None:
        if not self.happened or self.happened[-1] != event:
            self.happened.append(event)


@asynccontextmanager
async def serving(service: ScriptedService) -> AsyncIterator[ScriptedService]:
    """Serve on a free port of loopback, whose address is ``service.url``."""
    app = FastAPI()
    app.post("/internal/nodes")(service.registers)
    app.post("/internal/nodes/{node_id}/heartbeat")(service.beats)
    app.get("/internal/nodes/{node_id}/directive")(service.asks)
    app.get("/vms/{vm}/metadata/instance")(service.instance)
    app.get("/vms/{vm}/metadata/scheduledevents")(service.events)
    app.post("/vms/{vm}/metadata/scheduledevents")(service.acknowledges)
    server = uvicorn.Server(
        uvicorn.Config(app, port=0, log_level="error", lifespan="off", timeout_graceful_shutdown=1)
    )
    task = asyncio.create_task(server._serve())
    await until(_started(server), bool, interval=0.01)
    port = server.servers[0].sockets[0].getsockname()[1]
    service.url = f"http://127.0.0.1:{port}"
    try:
        yield service
    finally:
        server.should_exit = service.closing = True
        await service.wake()
        await task


def _started(server: uvicorn.Server) -> Callable[[], Awaitable[bool]]:
    async def look() -> bool:
        return server.started

    return look


def _answer(message: Message) -> Response:
    return Response(message.to_json(), media_type="application/json")


def _json(document: object, status: int = 200) -> Response:
    return Response(json.dumps(document), status, media_type="application/json")
