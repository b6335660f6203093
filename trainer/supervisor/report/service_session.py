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
        self._context = context
        self._controller = controller
        self._reports = reports
        self._join_lock = asyncio.Lock()
        self._directive_announced = asyncio.Event()  # the service has a newer directive
        self._heartbeat_answered = asyncio.Event()
        self._last_answered: Heartbeat | None = None  # the last one that was answered
        self._seq = 0
        self._port = 0
        self._time = time
        self.stop_by = StopDeadline()

    async def join(self) -> tuple[VmInstance, Registered]:
        """Find this machine's identity and register it, however long that takes."""
        self._join_started_at = self._context.clock.now()
        self._join_started_monotonic = self._context.clock.monotonic()
        async for attempt in self._context.retry_forever(MetadataError):
            with attempt:
                self._instance = await self._context.metadata.instance()
        self._registration = await self._register()
        now = self._context.clock.now()  # from here on by the service's clock
        self._reports.add_spans(
            [Span(name="join", started_at=now - self._join_seconds, ended_at=now)]
        )
        return self._instance, self._registration

    async def send_heartbeats(self) -> None:
        """Send heartbeats regularly, and at once when something has changed."""
        while True:
            await self._call_until_answered(self._send_heartbeat, self._wait_for_changes)
            await self._wait_for_changes(self._context.limits.heartbeat)

    async def follow_directives(self) -> None:
        """Poll for directives, and apply them."""
        while True:
            self._directive_announced.clear()
            # Cancel a poll on a dead connection when a heartbeat announces a newer directive.
            await wait_first(
                self._call_until_answered(self._poll_directive, asyncio.sleep),
                self._directive_announced.wait(),
            )

    async def wait_until_reported(self) -> None:
        """Return once the service knows the node's present state."""
        while not self._is_state_reported():
            self._heartbeat_answered.clear()
            await self._heartbeat_answered.wait()

    @property
    def _join_seconds(self) -> float:
        """Seconds since the joining began, by the monotonic clock."""
        return self._context.clock.monotonic() - self._join_started_monotonic

    def _is_state_reported(self) -> bool:
        heartbeat, node = self._last_answered, self._controller.node
        if heartbeat is None or heartbeat.eviction != self._controller.notice:
            return False
        return (heartbeat.phase, heartbeat.generation) == (node.phase, node.generation)

    async def _register(self) -> Registered:
        async for attempt in self._context.retry_forever(ServiceCallError):
            with attempt:
                sent = self._context.clock.monotonic()
                registration = await self._context.service.register(self._build_registration())
                self.stop_by.extend(sent=sent, now=registration.now, stop_by=registration.stop_by)
                self._time.record_answer(sent=sent, now=registration.now)
                return registration
        raise AssertionError("retried for ever")

    def _build_registration(self) -> Registration:
        context, since = self._context, self._join_started_at
        supervisor = Span(name=START_SUPERVISOR, started_at=context.started_at, ended_at=since)
        return Registration(
            protocol=PROTOCOL,
            attempt_id=self._context.config.attempt_id,
            vm_id=self._instance.vm_id,
            boot_id=self._context.boot_id,
            name=self._instance.name,
            address=self._instance.address,
            gpus=self._context.gpus,
            vm_size=self._instance.vm_size,
            network=network.network_report(self._instance.address, self._instance.vm_size),
            spans=(*context.boot_spans, supervisor),
            now=since + self._join_seconds,  # by the wall clock that dated the spans
        )

    async def renew_grants(self) -> None:
        """Get fresh grants by registering the same boot again."""
        try:
            await self._rejoin(self._registration)
        except AttemptOverError as e:
            self._leave_attempt(e)

    async def _rejoin(self, registration: Registered) -> None:
        """Register again once, although several loops may find ``registration`` outdated."""
        async with self._join_lock:
            if self._registration is registration:
                self._registration = await self._register()
                self._controller.on_registered(self._registration)

    async def _call_until_answered(
        self, call: Callable[[], Awaitable[None]], wait: Callable[[float], Awaitable[None]]
    ) -> None:
        """Repeat the call until it is answered with 200; react to other answers."""
        try:
            async for attempt in self._context.retry_forever(ServiceCallError, wait):
                with attempt:
                    await self._call_once(call)
        except AttemptOverError as e:
            self._leave_attempt(e)

    def _leave_attempt(self, error: AttemptOverError) -> None:
        log.info("node.dismissed reason=%s", error)
        self._controller.apply(on_attempt_over(self._controller.node))

    async def _call_once(self, call: Callable[[], Awaitable[None]]) -> None:
        registration = self._registration
        try:
            await call()
        except ServiceCallError as e:
            log.warning("service.refused reason=%s", e)
            await self._react_to_error(e, registration)
            raise

    async def _react_to_error(self, error: ServiceCallError, registration: Registered) -> None:
        match error:
            case NodeUnauthorizedError() | StaleNodeError(code="stale_epoch"):
                await self._rejoin(registration)
            case StaleNodeError():
                self._controller.apply(on_stale_generation(self._controller.node))
            case _:
                pass  # it will be retried

    async def _wait_for_changes(self, seconds: float) -> None:
        await wait_first(self._reports.changed.wait(), seconds=seconds)

    async def _send_heartbeat(self) -> None:
        self._reports.changed.clear()
        batch = self._reports.next_payload()
        self._seq += 1
        node, sent = self._controller.node, self._context.clock.monotonic()
        heartbeat = Heartbeat(
            epoch=node.epoch,
            seq=self._seq,
            phase=node.phase,
            generation=node.generation,
            step=self._reports.step,
            free_port=self._free_port(),
            eviction=self._controller.notice,
            error=self._controller.error if node.phase in _ENDED else "",
            broken=self._controller.broken if node.phase in _ENDED else None,
            out_of_memory=self._controller.out_of_memory and node.phase in _ENDED,
            non_retryable=self._controller.non_retryable and node.phase in _ENDED,
            unhealthy=self._controller.unhealthy,
            save_cost=self._reports.save_cost,
            **vars(batch),
        )
        answer = await self._context.service.heartbeat(heartbeat)
        self.stop_by.extend(sent=sent, now=answer.now, stop_by=answer.stop_by)
        self._time.record_answer(sent=sent, now=answer.now)
        self._reports.mark_delivered(batch)
        self._last_answered = heartbeat
        self._heartbeat_answered.set()
        if answer.directive_seq > self._controller.node.directive:
            self._directive_announced.set()

    async def _poll_directive(self) -> None:
        clock = self._context.clock
        after, sent = self._controller.node.directive, clock.monotonic()
        directive = await self._context.service.directive(after)
        self.stop_by.extend(sent=sent, now=directive.now, stop_by=directive.stop_by)
        if directive.grants is not None:
            self._controller.renew_grants(directive.grants)
        self._controller.apply(on_directive(self._controller.node, directive))
        if directive.seq <= after and clock.monotonic() - sent < self._context.limits.poll_interval:
            await asyncio.sleep(self._context.limits.poll_interval)  # the service does not wait

    def _free_port(self) -> int:
        try:
            self._port = network.free_port(self._instance.address, self._port)
        except OSError as e:
            log.warning("port.none reason=%s", e)
            return 0
        return self._port
