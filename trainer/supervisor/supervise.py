"""The supervisor's loops: talk with the service, watch for evictions, mind the stop-by time."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tenacity import AsyncRetrying, retry_if_exception_type, wait_random_exponential

from trainer.contract import (
    PROTOCOL,
    EvictionNotice,
    Heartbeat,
    NodeConfig,
    NodePhase,
    Registered,
    Registration,
    Span,
)
from trainer.supervisor.blobs import Access, JobContainer
from trainer.supervisor.clock import Clock, Limits, StopBy
from trainer.supervisor.duty import Duty
from trainer.supervisor.launch import Launcher
from trainer.supervisor.metadata import Instance, Metadata, MetadataError
from trainer.supervisor.node import directed, dismissed, overdue, refused
from trainer.supervisor.ports import free_port
from trainer.supervisor.reports import Reports
from trainer.supervisor.run import Tools
from trainer.supervisor.service import Dismissed, Refused, Service, ServiceError, Unauthorized
from trainer.supervisor.together import first_of

TELL_SECONDS = 2.0  # for the service to hear how it ended, before the machine is let go

log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class Surroundings:
    """All that a supervisor is given by main, or by a test."""

    config: NodeConfig
    boot_id: str
    started_at: float
    gpus: int
    work: Path
    service: Service
    metadata: Metadata
    access: Access
    launcher: Launcher
    limits: Limits
    clock: Clock


class Supervisor:
    """One node's supervisor, from its start to its leaving."""

    def __init__(self, given: Surroundings) -> None:
        self._given = given
        self._clock = given.clock
        self._limits = given.limits
        self._reports = Reports()
        self._stop_by = StopBy()
        self._joining = asyncio.Lock()
        self._newer = asyncio.Event()  # the service has a directive that we have not seen
        self._duty = Duty(given.work)
        self._seq = 0
        self._port = 0
        self._told: Heartbeat | None = None  # the last one that was answered
        self._answered = asyncio.Event()
        self._group: asyncio.TaskGroup | None = None  # there is one once the node is known

    async def run(self) -> None:
        """Supervise until the node is dismissed, or was told to terminate and has settled."""
        try:
            await self._given.launcher.kill_all()  # an earlier supervisor's
            await first_of(self._join(), self._duty.left.wait())
            if self._duty.left.is_set():
                return
            async with asyncio.TaskGroup() as group:
                self._take_up(group)
                loops = [group.create_task(loop()) for loop in self._loops()]
                await self._duty.left.wait()
                for task in loops:
                    task.cancel()
                await self._duty.end()
        except Dismissed as e:
            log.info("node.dismissed reason=%s", e)
        finally:
            await self._given.launcher.kill_all()

    def terminate(self) -> None:
        """SIGTERM: save and stop as before an eviction, then leave."""
        if self._group is None:
            self._duty.left.set()
            return
        now = self._clock.now()
        seconds = self._limits.notice
        notice = EvictionNotice(event_id="sigterm", not_before=now + seconds, seen_at=now)
        self._duty.announce(notice, seconds)
        self._group.create_task(self._leave_when_settled())

    def _take_up(self, group: asyncio.TaskGroup) -> None:
        self._group = group
        tools = Tools(
            container=JobContainer(self._given.access, self._seat.grants.job),
            launcher=self._given.launcher,
            reports=self._reports,
            limits=self._limits,
            clock=self._clock,
        )
        self._duty.take_up(self._seat.node_id, tools, group)
        self._sit_down(self._seat)

    def _sit_down(self, seat: Registered) -> None:
        self._seat = seat
        self._duty.renew(seat.grants)
        self._duty.seated(seat.epoch)

    def _loops(self) -> tuple[Callable[[], Coroutine[Any, Any, None]], ...]:
        return self._heartbeats, self._directives, self._notices, self._deadline

    # --- joining ----------------------------------------------------------------------------

    async def _join(self) -> None:
        self._instance = await self._identity()
        self._seat = await self._register()

    async def _identity(self) -> Instance:
        async for attempt in self._stubborn(MetadataError):
            with attempt:
                return await self._given.metadata.instance()
        raise AssertionError("retried for ever")

    async def _register(self) -> Registered:
        """Register until answered; only a dismissal ends it."""
        async for attempt in self._stubborn(ServiceError):
            with attempt:
                sent = self._clock.monotonic()
                seat = await self._given.service.register(self._registration())
                self._stop_by.heard(sent=sent, now=seat.now, stop_by=seat.stop_by)
                return seat
        raise AssertionError("retried for ever")

    def _registration(self) -> Registration:
        boot = Span(name="boot", started_at=self._given.started_at, ended_at=self._clock.now())
        return Registration(
            protocol=PROTOCOL,
            attempt_id=self._given.config.attempt_id,
            vm_id=self._instance.vm_id,
            boot_id=self._given.boot_id,
            name=self._instance.name,
            address=self._instance.address,
            gpus=self._given.gpus,
            spans=(boot,),
        )

    async def _rejoin(self, seat: Registered) -> None:
        """Register again, once, however many loops find that ``seat`` is not ours any more."""
        async with self._joining:
            if self._seat is seat:
                self._sit_down(await self._register())

    # --- loops ------------------------------------------------------------------------------

    async def _heartbeats(self) -> None:
        while True:
            await self._speak(self._beat, self._until_news)
            await self._until_news(self._limits.heartbeat)

    async def _until_news(self, seconds: float) -> None:
        await first_of(self._reports.changed.wait(), seconds=seconds)

    async def _beat(self) -> None:
        self._reports.changed.clear()
        batch = self._reports.batch()
        self._seq += 1
        node, sent = self._duty.node, self._clock.monotonic()
        heartbeat = Heartbeat(
            epoch=node.epoch,
            seq=self._seq,
            phase=node.phase,
            generation=node.generation,
            step=self._reports.step,
            free_port=self._free_port(),
            metrics=batch.metrics,
            committed=batch.committed,
            spans=batch.spans,
            eviction=self._duty.notice,
            error=self._duty.error if node.phase is NodePhase.FAILED else "",
        )
        answer = await self._given.service.heartbeat(heartbeat)
        self._stop_by.heard(sent=sent, now=answer.now, stop_by=answer.stop_by)
        self._reports.answered(batch)
        self._told = heartbeat
        self._answered.set()
        if answer.directive_seq > self._duty.node.directive:
            self._newer.set()

    async def _directives(self) -> None:
        while True:
            self._newer.clear()
            # A poll that hangs on a dead connection is given up when a heartbeat tells of more.
            await first_of(self._speak(self._poll, asyncio.sleep), self._newer.wait())

    async def _poll(self) -> None:
        after, sent = self._duty.node.directive, self._clock.monotonic()
        directive = await self._given.service.directive(after)
        self._stop_by.heard(sent=sent, now=directive.now, stop_by=directive.stop_by)
        if directive.grants is not None:
            self._duty.renew(directive.grants)
        self._duty.apply(directed(self._duty.node, directive))
        if directive.seq <= after and self._clock.monotonic() - sent < self._limits.pulse:
            await asyncio.sleep(self._limits.pulse)  # the service does not wait; we do

    async def _speak(
        self, say: Callable[[], Awaitable[None]], wait: Callable[[float], Awaitable[None]]
    ) -> None:
        """Say it until it is answered with 200; act upon every other answer."""
        async for attempt in self._stubborn(ServiceError, wait):
            with attempt:
                seat = self._seat
                try:
                    await say()
                except ServiceError as e:
                    log.warning("service.refused reason=%s", e)
                    await self._heed(e, seat)
                    raise

    async def _heed(self, answer: ServiceError, seat: Registered) -> None:
        match answer:
            case Dismissed():
                self._duty.apply(dismissed(self._duty.node))
            case Unauthorized():
                await self._rejoin(seat)
            case Refused(code="stale_epoch"):
                await self._rejoin(seat)
            case Refused():
                self._duty.apply(refused(self._duty.node))
            case _:
                pass  # it will be said again

    async def _notices(self) -> None:
        """Ask the metadata service every second; it costs one small request."""
        while self._duty.notice is None:
            now = self._clock.now()
            try:
                notice = await self._given.metadata.eviction(self._instance.name, now)
            except MetadataError as e:
                log.warning("notices.unknown reason=%s", e)
                notice = None
            if notice is not None:
                begins_in = notice.not_before - now if notice.not_before else self._limits.notice
                self._duty.announce(notice, begins_in)
                await self._acknowledge_when_settled(notice)
            await asyncio.sleep(self._limits.notice_poll)

    async def _acknowledge_when_settled(self, notice: EvictionNotice) -> None:
        """Let the machine go before its time: what it had is in Blob, and it costs money."""
        await self._settled_and_told()
        async for attempt in self._stubborn(MetadataError):
            with attempt:
                await self._given.metadata.acknowledge(notice.event_id)
        log.info("notice.acknowledged event=%s", notice.event_id)

    async def _leave_when_settled(self) -> None:
        await self._settled_and_told()
        self._duty.left.set()

    async def _settled_and_told(self) -> None:
        await self._duty.settled()
        await first_of(self._tell(), seconds=TELL_SECONDS)

    async def _tell(self) -> None:
        """Return once the service has heard of the node's present state."""
        while not self._has_told():
            self._answered.clear()
            await self._answered.wait()

    def _has_told(self) -> bool:
        told, node = self._told, self._duty.node
        return told is not None and (told.phase, told.generation) == (node.phase, node.generation)

    async def _deadline(self) -> None:
        while True:
            if self._stop_by.passed(self._clock.monotonic()):
                self._duty.apply(overdue(self._duty.node))
            await asyncio.sleep(self._limits.pulse)

    def _free_port(self) -> int:
        try:
            self._port = free_port(self._instance.address, self._port)
        except OSError as e:
            log.warning("port.none reason=%s", e)
            return 0
        return self._port

    def _stubborn(
        self,
        error: type[Exception],
        wait: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> AsyncRetrying:
        """Again and again, with jitter, while it fails in this way; a dismissal is final."""
        return AsyncRetrying(
            retry=retry_if_exception_type(error),
            wait=wait_random_exponential(multiplier=0.25, max=self._limits.retry),
            sleep=wait,
        )
