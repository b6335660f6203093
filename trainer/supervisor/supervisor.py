"""One node's supervisor, from its start to its end."""

import asyncio
import logging
from dataclasses import replace

from trainer.contract import EvictionNotice, Registered, Span
from trainer.supervisor.blob.container import JobContainer
from trainer.supervisor.clock import NodeClock, ServiceTime
from trainer.supervisor.concurrency import wait_first
from trainer.supervisor.context import SupervisorContext
from trainer.supervisor.control.generation_run import RunServices
from trainer.supervisor.control.node_controller import NodeController
from trainer.supervisor.control.node_state import on_stop_by_passed
from trainer.supervisor.input.cache import InputCache
from trainer.supervisor.machine.metadata import MetadataError
from trainer.supervisor.report.heartbeat_reports import HeartbeatReports
from trainer.supervisor.report.service_client import AttemptOverError
from trainer.supervisor.report.service_session import ServiceSession

GPU_SECONDS = 60.0  # between two readings of GPU utilization
REPORT_SECONDS = 2.0  # to report the end to the service, before the machine is released

log = logging.getLogger(__name__)


class Supervisor:
    """Joins, talks to the service, watches for evictions and the stop-by deadline."""

    def __init__(self, context: SupervisorContext) -> None:
        self._time = ServiceTime(context.clock)
        clock = NodeClock(now=self._time.now, monotonic=context.clock.monotonic)
        self._context = replace(context, clock=clock)
        self._reports = HeartbeatReports()
        self._controller = NodeController(context.work)
        self._session = ServiceSession(self._context, self._controller, self._reports, self._time)
        self._group: asyncio.TaskGroup | None = None  # there is one once the node has joined

    async def run(self) -> None:
        """Supervise until the attempt is over, or the node was terminated and has settled."""
        try:
            await self._context.launcher.kill_all()  # an earlier supervisor's
            await wait_first(self._join(), self._controller.leave_requested.wait())
            if not self._controller.leave_requested.is_set():
                await self._run_loops()
        except AttemptOverError as e:
            log.info("node.dismissed reason=%s", e)
        finally:
            await self._context.launcher.kill_all()

    def terminate(self) -> None:
        """Handle SIGTERM: save and stop as before an eviction, then leave."""
        if self._group is None:
            self._controller.leave_requested.set()
            return
        now, seconds = self._context.clock.now(), self._context.limits.notice
        notice = EvictionNotice(event_id="sigterm", not_before=now + seconds, seen_at=now)
        self._controller.announce_eviction(notice, seconds)
        self._group.create_task(self._leave_when_settled())

    async def _join(self) -> None:
        """Join; check the machine's health before the first heartbeat."""
        checking = asyncio.create_task(self._context.health.find_faults())
        try:
            self._instance, self._registration = await self._session.join()
            self._controller.unhealthy = await checking
        finally:
            checking.cancel()

    async def _run_loops(self) -> None:
        session = self._session
        async with asyncio.TaskGroup() as group:
            self._group = group
            services = self._build_services(self._registration)
            self._controller.start(self._registration, services, group)
            coroutines = (
                session.send_heartbeats(),
                session.follow_directives(),
                self._watch_notices(),
                self._watch_stop_deadline(),
                self._read_gpus(),
                self._prefetch(services),
            )
            tasks = [group.create_task(coroutine) for coroutine in coroutines]
            await self._controller.leave_requested.wait()
            for task in tasks:
                task.cancel()
            await self._controller.abandon_and_wait()
            await services.cache.close()

    async def _read_gpus(self) -> None:
        """Read GPU loads and errors for the heartbeats, once a minute."""
        while self._context.health.expected is not None:
            self._reports.record_gpus(await self._context.health.read_gpus())
            await asyncio.sleep(GPU_SECONDS)

    async def _prefetch(self, services: RunServices) -> None:
        """Fetch what the job reads while other machines still boot."""
        started_at = services.clock.now()
        await services.cache.prefetch(self._registration.grants)
        span = Span(name="prefetch", started_at=started_at, ended_at=services.clock.now())
        services.reports.add_spans([span])

    def _build_services(self, registration: Registered) -> RunServices:
        container = JobContainer(self._context.access, registration.grants.job)
        return RunServices(
            container=container,
            cache=InputCache(
                self._context.work,
                self._context.memory,
                container,
                self._context.config.processes_per_node,
            ),
            memory=self._context.memory,
            launcher=replace(self._context.launcher, vm_size=self._instance.vm_size),
            health=self._context.health,
            reports=self._reports,
            limits=self._context.limits,
            clock=self._context.clock,
            to_service_time=self._time.from_wall_clock,
            regrant=self._session.renew_grants,
        )

    async def _watch_notices(self) -> None:
        """Poll the metadata service for an eviction notice."""
        while self._controller.notice is None:
            notice = await self._poll_notice()
            if notice is not None:
                await self._handle_eviction(notice)
            await asyncio.sleep(self._context.limits.notice_poll)

    async def _poll_notice(self) -> EvictionNotice | None:
        now = self._context.clock.now()
        try:
            return await self._context.metadata.eviction(self._instance.name, now)
        except MetadataError as e:
            log.warning("notices.unknown reason=%s", e)
            return None

    async def _handle_eviction(self, notice: EvictionNotice) -> None:
        """Save and settle, then acknowledge the eviction early: an idle machine costs money."""
        notice_s = self._context.limits.notice
        not_before = notice.not_before or notice.seen_at + notice_s
        # A machine that is still running has some time left, even if the clocks differ.
        remaining_s = max(not_before - notice.seen_at, notice_s / 2)
        self._controller.announce_eviction(notice, remaining_s)
        await self._settle_and_report()
        async for attempt in self._context.retry_forever(MetadataError):
            with attempt:
                await self._context.metadata.acknowledge(notice.event_id)
        log.info("notice.acknowledged event=%s", notice.event_id)

    async def _leave_when_settled(self) -> None:
        await self._settle_and_report()
        self._controller.leave_requested.set()

    async def _settle_and_report(self) -> None:
        await self._controller.wait_until_settled()
        await wait_first(self._session.wait_until_reported(), seconds=REPORT_SECONDS)

    async def _watch_stop_deadline(self) -> None:
        while True:
            if self._session.stop_by.has_passed(self._context.clock.monotonic()):
                self._controller.apply(on_stop_by_passed(self._controller.node))
            await asyncio.sleep(self._context.limits.poll_interval)
