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

GPU_SECONDS = 60.0  # between two looks at how busy the GPUs are
TELL_SECONDS = 2.0  # to report the end to the service, before the machine is released

log = logging.getLogger(__name__)


class Supervisor:
    """Joins, talks to the service, watches for evictions and the stop-by deadline."""

    def __init__(self, context: SupervisorContext) -> None:
        self._time = ServiceTime(context.clock)
        clock = NodeClock(now=self._time.now, monotonic=context.clock.monotonic)
        self._given = replace(context, clock=clock)
        self._reports = HeartbeatReports()
        self._duty = NodeController(context.work)
        self._conversation = ServiceSession(self._given, self._duty, self._reports, self._time)
        self._group: asyncio.TaskGroup | None = None  # there is one once the node has joined

    async def run(self) -> None:
        """Supervise until the attempt is over, or the node was terminated and has settled."""
        try:
            await self._given.launcher.kill_all()  # an earlier supervisor's
            await wait_first(self._join(), self._duty.left.wait())
            if not self._duty.left.is_set():
                await self._stay()
        except AttemptOverError as e:
            log.info("node.dismissed reason=%s", e)
        finally:
            await self._given.launcher.kill_all()

    def terminate(self) -> None:
        """Handle SIGTERM: save and stop as before an eviction, then leave."""
        if self._group is None:
            self._duty.left.set()
            return
        now, seconds = self._given.clock.now(), self._given.limits.notice
        notice = EvictionNotice(event_id="sigterm", not_before=now + seconds, seen_at=now)
        self._duty.announce_eviction(notice, seconds)
        self._group.create_task(self._leave_when_settled())

    async def _join(self) -> None:
        """Join; check the machine's health before the first heartbeat."""
        checking = asyncio.create_task(self._given.health.find_faults())
        try:
            self._instance, self._seat = await self._conversation.join()
            self._duty.unhealthy = await checking
        finally:
            checking.cancel()

    async def _stay(self) -> None:
        session = self._conversation
        async with asyncio.TaskGroup() as group:
            self._group = group
            tools = self._tools(self._seat)
            self._duty.start(self._seat, tools, group)
            loops = (
                session.send_heartbeats(),
                session.follow_directives(),
                self._notices(),
                self._deadline(),
            )
            one_shot = (self._read_gpus(), self._prefetch(tools))
            tasks = [group.create_task(loop) for loop in (*loops, *one_shot)]
            await self._duty.left.wait()
            for task in tasks:
                task.cancel()
            await self._duty.abandon_and_wait()
            await tools.cache.close()

    async def _read_gpus(self) -> None:
        """Read GPU loads and errors for the heartbeats, once a minute."""
        while self._given.health.expected is not None:
            self._reports.record_gpus(await self._given.health.read_gpus())
            await asyncio.sleep(GPU_SECONDS)

    async def _prefetch(self, tools: RunServices) -> None:
        """Fetch what the job reads while other machines still boot."""
        started_at = tools.clock.now()
        await tools.cache.prefetch(self._seat.grants)
        span = Span(name="prefetch", started_at=started_at, ended_at=tools.clock.now())
        tools.reports.add_spans([span])

    def _tools(self, registration: Registered) -> RunServices:
        container = JobContainer(self._given.access, registration.grants.job)
        return RunServices(
            container=container,
            cache=InputCache(
                self._given.work,
                self._given.memory,
                container,
                self._given.config.processes_per_node,
            ),
            memory=self._given.memory,
            launcher=replace(self._given.launcher, vm_size=self._instance.vm_size),
            health=self._given.health,
            reports=self._reports,
            limits=self._given.limits,
            clock=self._given.clock,
            local=self._time.from_wall_clock,
            regrant=self._conversation.renew_grants,
        )

    async def _notices(self) -> None:
        """Poll the metadata service for an eviction notice."""
        while self._duty.notice is None:
            notice = await self._notice()
            if notice is not None:
                await self._obey(notice)
            await asyncio.sleep(self._given.limits.notice_poll)

    async def _notice(self) -> EvictionNotice | None:
        now = self._given.clock.now()
        try:
            return await self._given.metadata.eviction(self._instance.name, now)
        except MetadataError as e:
            log.warning("notices.unknown reason=%s", e)
            return None

    async def _obey(self, notice: EvictionNotice) -> None:
        """Save and settle, then acknowledge the eviction early: an idle machine costs money."""
        least = self._given.limits.notice
        begins = notice.not_before or notice.seen_at + least
        # A machine that is still running has some time left, even if the clocks differ.
        self._duty.announce_eviction(notice, max(begins - notice.seen_at, least / 2))
        await self._settled_and_told()
        async for attempt in self._given.retry_forever(MetadataError):
            with attempt:
                await self._given.metadata.acknowledge(notice.event_id)
        log.info("notice.acknowledged event=%s", notice.event_id)

    async def _leave_when_settled(self) -> None:
        await self._settled_and_told()
        self._duty.left.set()

    async def _settled_and_told(self) -> None:
        await self._duty.wait_until_settled()
        await wait_first(self._conversation.wait_until_reported(), seconds=TELL_SECONDS)

    async def _deadline(self) -> None:
        while True:
            if self._conversation.stop_by.has_passed(self._given.clock.monotonic()):
                self._duty.apply(on_stop_by_passed(self._duty.node))
            await asyncio.sleep(self._given.limits.poll_interval)
