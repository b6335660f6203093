"""The node's session with the service: registration, heartbeats, directives, errors."""

import asyncio
import logging
from collections.abc import Awaitable, Callable

from trainer.contract import PROTOCOL, Heartbeat, NodePhase, Registered, Registration, Span
from trainer.supervisor.clock import ServiceTime, StopDeadline
from trainer.supervisor.concurrency import wait_first
from trainer.supervisor.context import SupervisorContext
from trainer.supervisor.control.node_controller import NodeController
from trainer.supervisor.control.node_state import on_attempt_over, on_directive, on_stale_generation
from trainer.supervisor.machine import network
from trainer.supervisor.machine.boot_times import START_SUPERVISOR
from trainer.supervisor.machine.metadata import MetadataError, VmInstance
from trainer.supervisor.report.heartbeat_reports import HeartbeatReports
from trainer.supervisor.report.service_client import (
    AttemptOverError,
    NodeUnauthorizedError,
    ServiceCallError,
    StaleNodeError,
)

_ENDED = frozenset({NodePhase.STOPPED, NodePhase.FAILED})

log = logging.getLogger(__name__)


class ServiceSession:
    """Registers; then ``send_heartbeats`` and ``follow_directives`` run until cancelled."""

    def __init__(
        self,
        context: SupervisorContext,
        controller: NodeController,
        reports: HeartbeatReports,
        time: ServiceTime,
    ) -> None:
        self._given = context
        self._duty = controller
        self._reports = reports
        self._joining = asyncio.Lock()
        self._newer = asyncio.Event()  # the service has a directive that we have not seen
        self._answered = asyncio.Event()
        self._told: Heartbeat | None = None  # the last one that was answered
        self._seq = 0
        self._port = 0
        self._time = time
        self.stop_by = StopDeadline()

    async def join(self) -> tuple[VmInstance, Registered]:
        """Find this machine's identity and register it, however long that takes."""
        self._joining_since = self._given.clock.now(), self._given.clock.monotonic()
        async for attempt in self._given.retry_forever(MetadataError):
            with attempt:
                self._instance = await self._given.metadata.instance()
        self._seat = await self._register()
        now = self._given.clock.now()  # from here on by the service's clock
        self._reports.add_spans(
            [Span(name="join", started_at=now - self._joined_for, ended_at=now)]
        )
        return self._instance, self._seat

    async def send_heartbeats(self) -> None:
        """Send heartbeats regularly, and at once when something has changed."""
        while True:
            await self._speak(self._beat, self._until_news)
            await self._until_news(self._given.limits.heartbeat)

    async def follow_directives(self) -> None:
        """Poll for directives, and apply them."""
        while True:
            self._newer.clear()
            # Cancel a poll on a dead connection when a heartbeat announces a newer directive.
            await wait_first(self._speak(self._poll, asyncio.sleep), self._newer.wait())

    async def wait_until_reported(self) -> None:
        """Return once the service knows the node's present state."""
        while not self._has_told():
            self._answered.clear()
            await self._answered.wait()

    @property
    def _joined_for(self) -> float:
        """Seconds since the joining began, by the monotonic clock."""
        return self._given.clock.monotonic() - self._joining_since[1]

    def _has_told(self) -> bool:
        heartbeat, node = self._told, self._duty.node
        if heartbeat is None or heartbeat.eviction != self._duty.notice:
            return False
        return (heartbeat.phase, heartbeat.generation) == (node.phase, node.generation)

    async def _register(self) -> Registered:
        async for attempt in self._given.retry_forever(ServiceCallError):
            with attempt:
                sent = self._given.clock.monotonic()
                registration = await self._given.service.register(self._registration())
                self.stop_by.extend(sent=sent, now=registration.now, stop_by=registration.stop_by)
                self._time.record_answer(sent=sent, now=registration.now)
                return registration
        raise AssertionError("retried for ever")

    def _registration(self) -> Registration:
        context, since = self._given, self._joining_since[0]
        supervisor = Span(name=START_SUPERVISOR, started_at=context.started_at, ended_at=since)
        return Registration(
            protocol=PROTOCOL,
            attempt_id=self._given.config.attempt_id,
            vm_id=self._instance.vm_id,
            boot_id=self._given.boot_id,
            name=self._instance.name,
            address=self._instance.address,
            gpus=self._given.gpus,
            vm_size=self._instance.vm_size,
            network=network.network_report(self._instance.address, self._instance.vm_size),
            spans=(*context.booted, supervisor),
            now=since + self._joined_for,  # by the wall clock that dated the spans
        )

    async def renew_grants(self) -> None:
        """Get fresh grants by registering the same boot again."""
        try:
            await self._rejoin(self._seat)
        except AttemptOverError as e:
            self._leave(e)

    async def _rejoin(self, registration: Registered) -> None:
        """Register again once, although several loops may find ``registration`` outdated."""
        async with self._joining:
            if self._seat is registration:
                self._seat = await self._register()
                self._duty.on_registered(self._seat)

    async def _speak(
        self, say: Callable[[], Awaitable[None]], wait: Callable[[float], Awaitable[None]]
    ) -> None:
        """Repeat the call until it is answered with 200; react to other answers."""
        try:
            async for attempt in self._given.retry_forever(ServiceCallError, wait):
                with attempt:
                    await self._say(say)
        except AttemptOverError as e:
            self._leave(e)

    def _leave(self, error: AttemptOverError) -> None:
        log.info("node.dismissed reason=%s", error)
        self._duty.apply(on_attempt_over(self._duty.node))

    async def _say(self, say: Callable[[], Awaitable[None]]) -> None:
        registration = self._seat
        try:
            await say()
        except ServiceCallError as e:
            log.warning("service.refused reason=%s", e)
            await self._heed(e, registration)
            raise

    async def _heed(self, error: ServiceCallError, registration: Registered) -> None:
        match error:
            case NodeUnauthorizedError() | StaleNodeError(code="stale_epoch"):
                await self._rejoin(registration)
            case StaleNodeError():
                self._duty.apply(on_stale_generation(self._duty.node))
            case _:
                pass  # it will be retried

    async def _until_news(self, seconds: float) -> None:
        await wait_first(self._reports.changed.wait(), seconds=seconds)

    async def _beat(self) -> None:
        self._reports.changed.clear()
        batch = self._reports.next_payload()
        self._seq += 1
        node, sent = self._duty.node, self._given.clock.monotonic()
        heartbeat = Heartbeat(
            epoch=node.epoch,
            seq=self._seq,
            phase=node.phase,
            generation=node.generation,
            step=self._reports.step,
            free_port=self._free_port(),
            eviction=self._duty.notice,
            error=self._duty.error if node.phase in _ENDED else "",
            broken=self._duty.broken if node.phase in _ENDED else None,
            out_of_memory=self._duty.out_of_memory and node.phase in _ENDED,
            non_retryable=self._duty.non_retryable and node.phase in _ENDED,
            unhealthy=self._duty.unhealthy,
            save_cost=self._reports.save_cost,
            **vars(batch),
        )
        answer = await self._given.service.heartbeat(heartbeat)
        self.stop_by.extend(sent=sent, now=answer.now, stop_by=answer.stop_by)
        self._time.record_answer(sent=sent, now=answer.now)
        self._reports.mark_delivered(batch)
        self._told = heartbeat
        self._answered.set()
        if answer.directive_seq > self._duty.node.directive:
            self._newer.set()

    async def _poll(self) -> None:
        clock = self._given.clock
        after, sent = self._duty.node.directive, clock.monotonic()
        directive = await self._given.service.directive(after)
        self.stop_by.extend(sent=sent, now=directive.now, stop_by=directive.stop_by)
        if directive.grants is not None:
            self._duty.renew_grants(directive.grants)
        self._duty.apply(on_directive(self._duty.node, directive))
        if directive.seq <= after and clock.monotonic() - sent < self._given.limits.poll_interval:
            await asyncio.sleep(self._given.limits.poll_interval)  # the service does not wait

    def _free_port(self) -> int:
        try:
            self._port = network.free_port(self._instance.address, self._port)
        except OSError as e:
            log.warning("port.none reason=%s", e)
            return 0
        return self._port
