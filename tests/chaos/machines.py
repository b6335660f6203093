"""Machines as the service meets them: they outlive it, obey it, and repeat what it did not answer.

Nothing here is told about kills. A machine trains one step in each of its turns, and commits to
Blob by itself, as rank 0's node does.
"""

from dataclasses import dataclass, field
from typing import Any

import httpx

from service.domain import tokens
from service.storage.fake import MemoryStore
from service.storage.store import PreconditionFailed
from tests.chaos.replicas import Replicas
from tests.integration.stored import FILES, put
from tests.scripted_node import committed, metrics
from tests.world import SECRET
from trainer.contract import (
    HEAD,
    MEASURED,
    PROTOCOL,
    BrokenCheckpoint,
    Committed,
    Directive,
    DirectiveKind,
    EvictionNotice,
    Generation,
    Head,
    Heartbeat,
    NodePhase,
    Registered,
    Registration,
    StaleGeneration,
)

NODES = "/internal/nodes"
REFUSED = "Error response from daemon: unauthorized: authentication required\n" * 10


@dataclass
class Machine:
    """One VM with its supervisor."""

    vm_id: str
    attempt_id: str
    job_id: str
    replicas: Replicas
    store: MemoryStore
    seat: Registered | None = None
    phase: NodePhase = NodePhase.READY
    generation: Generation | None = None
    number: int = 0  # of the newest generation that was started or stopped here
    broken: BrokenCheckpoint | None = None  # why that one stopped
    step: int = 0
    boots: int = 1  # of its supervisor
    seq: int = 0
    heard: int = 0  # the newest directive
    news: bool = True  # the service has not answered to what is so
    chatty: bool = False  # says something in each of its turns
    noticed: bool = False  # Azure has announced that it takes the machine
    silent: bool = False  # cut off from the service, and only from it
    hopeless: bool = False
    boots_never: bool = False  # no try to pull its image succeeds
    unhealthy: bool = False  # a GPU of it is broken
    hold: int = 10**9  # no step after this one, until the play says so
    last: int = 0  # the last step; 0 while the play has other things in mind
    told: list[str] = field(default_factory=list)

    async def turn(self) -> None:
        """Talk to the service, obey it, do a step, say what is new."""
        if self.silent or self.seat is None:
            return
        await self._obey()
        await self._train()
        if self.news or self.chatty:
            await self._say()

    def restart(self) -> None:
        """Its supervisor starts again, and knows of nothing."""
        self.boots += 1
        self.seat = self.generation = self.broken = None
        self.phase, self.number, self.step, self.heard = NodePhase.READY, 0, 0, 0

    def registration(self) -> dict[str, Any]:
        """The request that it repeats until it has a seat, or until it has said why it has none."""
        token = tokens.bootstrap_token(SECRET, self.attempt_id)
        if self.boots_never:
            report = f"phase=pull_image&said=gave_up&machine={self.vm_id}"
            url = f"/internal/boots/{self.attempt_id}?{report}"
            return {"method": "POST", "url": url} | _as(token, REFUSED)
        message = Registration(
            protocol=PROTOCOL,
            attempt_id=self.attempt_id,
            vm_id=self.vm_id,
            boot_id=f"boot-{self.boots}",
            name=self.vm_id,
            address="127.0.0.9",
            gpus=0,
        )
        return {"method": "POST", "url": NODES} | _as(token, message.to_json())

    def be_seated(self, answer: httpx.Response | None) -> None:
        """What came of its registration."""
        if self.boots_never:
            self.silent = answer is not None
        elif answer is not None and answer.status_code == 200:
            self.seat, self.seq, self.news = Registered.from_json(answer.content), 0, True

    async def _obey(self) -> None:
        assert self.seat is not None
        path = f"{NODES}/{self.seat.node_id}/directive?after={self.heard}&wait=0"
        path += f"&epoch={self.seat.epoch}"
        answer = await self._ask("GET", path, self.seat.node_token)
        if answer is None or answer.status_code != 200:
            return
        directive = Directive.from_json(answer.content)
        self.heard = directive.seq
        self.told.append(directive.kind)
        match directive.kind:
            case DirectiveKind.START if directive.generation:
                await self._start(directive.generation)
            case DirectiveKind.CHECKPOINT_AND_STOP if self._runs(directive.number):
                await self._commit("stop")
                self._become(NodePhase.STOPPED)
            case DirectiveKind.STOP if self.phase is NodePhase.RUNNING:
                self._become(NodePhase.STOPPED)

    async def _start(self, generation: Generation) -> None:
        self.generation, self.number = generation, generation.number
        self.step = generation.checkpoint.step if generation.checkpoint else 0
        self.broken = await self._wrong_with(generation.checkpoint)
        self._become(NodePhase.STOPPED if self.broken else NodePhase.RUNNING)

    async def _wrong_with(self, entry: Committed | None) -> BrokenCheckpoint | None:
        """What of the files that it must load is not there."""
        found = {b.name for b in await self.store.list_blobs(self.job_id)}
        gone = [f for f in FILES if entry and f"{entry.path}/{f}" not in found]
        if entry is None or not gone:
            return None
        return BrokenCheckpoint(path=entry.path, file=gone[0], reason="is gone")

    def _runs(self, number: int) -> bool:
        return self.phase is NodePhase.RUNNING and number == self.number

    def _become(self, phase: NodePhase) -> None:
        self.phase, self.news = phase, True

    @property
    def _leads(self) -> bool:
        assert self.generation is not None
        assert self.seat is not None
        return self.generation.members[0].node_id == self.seat.node_id

    async def _train(self) -> None:
        if self.phase is not NodePhase.RUNNING or self.generation is None:
            return
        if self.hopeless or self.unhealthy:
            self._become(NodePhase.FAILED)
        elif self.step < self.hold and not self.noticed:
            self.step, self.news = self.step + 1, True
            if self._leads and self.step % 2 == 0:
                await self._commit("periodic")
        if self.last and self.step >= self.last:
            if self._leads:
                await self._commit("final")
            self._become(NodePhase.FINISHED)

    async def _commit(self, kind: str) -> None:
        """Compare and swap of HEAD, unless a newer generation has taken it."""
        if not self._leads:
            return
        entry = committed(self.step, self.number, kind)
        data, etag = await self.store.read(self.job_id, HEAD)
        head = Head.from_json(data)
        try:
            await put(self.store, self.job_id, entry.path)
            if kind == "stop":  # what the service may not have heard any more
                told = metrics(self.step).to_json().encode()
                await self.store.write(self.job_id, f"{entry.path}/{MEASURED}", told)
            after = head.with_model(entry) if kind == "final" else head.with_checkpoint(entry)
            text = after.to_json().encode()
            await self.store.write(self.job_id, HEAD, text, if_match=etag)
        except (StaleGeneration, PreconditionFailed):
            self._become(NodePhase.STOPPED)

    async def _say(self) -> None:
        assert self.seat is not None
        measured = self.phase is NodePhase.RUNNING and self.step > 0 and self._leads
        notice = EvictionNotice(event_id="event-1", not_before=0.0, seen_at=0.0)
        beat = Heartbeat(
            epoch=self.seat.epoch,
            seq=self.seq + 1,
            phase=self.phase,
            generation=self.number,
            step=self.step,
            free_port=29500,
            metrics=(metrics(self.step),) if measured else (),
            eviction=notice if self.noticed else None,
            error="row 17 has no text" if self.phase is NodePhase.FAILED else "",
            hopeless=self.phase is NodePhase.FAILED and not self.unhealthy,
            unhealthy="GPU 3 has fallen off the bus" if self.unhealthy else "",
            broken=self.broken if self.phase is NodePhase.STOPPED else None,
        )
        path = f"{NODES}/{self.seat.node_id}/heartbeat"
        answer = await self._ask("POST", path, self.seat.node_token, beat.to_json())
        if answer is None:
            return
        if answer.status_code == 409 and "stale_epoch" in answer.text:
            self.seat = None
        elif answer.status_code in (409, 410):
            stops = self.phase is NodePhase.RUNNING
            self._become(NodePhase.STOPPED if stops else self.phase)
            self.news = stops and answer.status_code == 409
            self.seq += 1
        elif answer.status_code == 200:
            self.seq, self.news = self.seq + 1, False

    async def _ask(
        self, method: str, path: str, token: str, body: str | None = None
    ) -> httpx.Response | None:
        """None: it did not answer; the same is asked again in the next turn."""
        return await self.replicas.ask(method, path, **_as(token, body))


def _as(token: str, body: str | None) -> dict[str, Any]:
    headers = {"authorization": f"Bearer {token}", "content-type": "application/json"}
    return {"content": body, "headers": headers}
