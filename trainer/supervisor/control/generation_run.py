"""Run one generation on this node: fetch, train, upload, settle, report the outcome."""

import asyncio
import logging
from asyncio.subprocess import Process
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass
from typing import Any

from trainer.contract import (
    ERROR_TAIL_BYTES,
    BrokenCheckpoint,
    Grants,
    NodePhase,
    RunSpec,
    Span,
    StaleGeneration,
    StepMetrics,
    micro_steps,
)
from trainer.process.disk_full import error_with_remedy
from trainer.rundir import OutOfMemoryMark, write_whole
from trainer.supervisor.blob.container import BlobError, JobContainer
from trainer.supervisor.blob.retry import OutageRetry
from trainer.supervisor.blob.transfer import CorruptError, ForgedError
from trainer.supervisor.clock import NodeClock, NodeLimits
from trainer.supervisor.concurrency import wait_first
from trainer.supervisor.control.launch import NodeWorld, NotConvertibleError, TrainerLauncher
from trainer.supervisor.control.results import (
    non_retryable_reason,
    out_of_memory_marks,
    read_result,
    run_phase,
    unhealthy_reason,
)
from trainer.supervisor.control.stop_requests import StopRequest, StopRequests
from trainer.supervisor.control.stopping import StopController
from trainer.supervisor.input.cache import InputCache
from trainer.supervisor.input.fetch import BrokenCheckpointError, fetch_run_spec
from trainer.supervisor.input.starting_model import link_converted_base
from trainer.supervisor.input.token_sharing import share_tokens
from trainer.supervisor.machine.health import HealthCheck
from trainer.supervisor.machine.memory_files import MemoryFolder
from trainer.supervisor.report.file_followers import RunFileFollower
from trainer.supervisor.report.heartbeat_reports import HeartbeatReports
from trainer.supervisor.report.log_upload import LogUploads
from trainer.supervisor.upload.commit import read_head
from trainer.supervisor.upload.uploads import SaveUploads

LAST_FLUSH_SECONDS = 10.0

log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class RunOutcome:
    """The outcome of a run that has ended."""

    how: NodePhase
    error: str = ""
    broken: BrokenCheckpoint | None = None  # the checkpoint that could not be loaded
    out_of_memory: bool = False  # of a rank without a result
    non_retryable: bool = False  # a person must change the job; see error
    unhealthy: str = ""  # why the machine must be replaced, by a rank's word


@dataclass(frozen=True, kw_only=True)
class RunServices:
    """What every run on this node uses."""

    container: JobContainer
    launcher: TrainerLauncher
    reports: HeartbeatReports
    limits: NodeLimits
    clock: NodeClock
    cache: InputCache
    memory: MemoryFolder
    health: HealthCheck
    local: Callable[[float], float]  # a time that another program here read off the wall clock
    regrant: Callable[[], Awaitable[None]]  # have the service give fresh grants


class GenerationRun:
    """One generation on this node. ``request_save``, ``kill``, ``abandon``: at any time."""

    _spec: RunSpec  # once HEAD is known to be this generation's

    def __init__(self, world: NodeWorld, grants: Grants, tools: RunServices) -> None:
        self._world = world
        self._grants = grants
        self._tools = tools
        self._requests = StopRequests(tools.limits, tools.clock)
        self._freed = False  # the memory that the checkpoint to load took
        self._uploads = SaveUploads(
            world,
            tools.container,
            tools.reports,
            tools.limits,
            tools.clock,
            tools.regrant,
            self._undelivered,
        )
        self._stopping = StopController(
            world=world,
            requests=self._requests,
            traffic=self._uploads,
            memory=tools.memory,
            reports=tools.reports,
            limits=tools.limits,
            clock=tools.clock,
        )
        self._retry = _outage_retry(world, tools)
        self._logs = LogUploads(
            tools.container, world.generation.attempt_id, world.ranks, world.logs
        )
        self._follower = RunFileFollower(world.folder, tools.reports, tools.clock, tools.local)

    def renew_grants(self, grants: Grants) -> None:
        """Use these grants to read inputs from now on."""
        self._grants = grants

    def set_machine_deadline(self, seconds: float) -> None:
        """Record that Azure takes the machine in ``seconds``: everything must end by then."""
        self._stopping.set_machine_deadline(seconds)

    def save(self) -> None:
        """Ask the trainer to save between two steps and to end, unless it has ended."""
        self._follow()
        self._stopping.request_save()

    def kill(self) -> None:
        """Kill the trainer; complete saves are still uploaded and committed."""
        self._requests.request(StopRequest.KILL)

    def abandon(self) -> None:
        """Kill the trainer; upload and commit nothing more."""
        self._requests.request(StopRequest.ABANDON)

    async def run_to_end(self) -> RunOutcome:
        """Run the generation; return once all processes are gone and uploads are settled."""
        self._began = self._tools.clock.now()
        try:
            if not await self._unless(
                StopRequest.SAVE, self._retry.run_until_outage_ends(self._claim)
            ):
                return RunOutcome(how=NodePhase.STOPPED)
            process = await self._tools.launcher.start(self._world, self._spec.nccl)
            if await self._unless(StopRequest.SAVE, self._supply(process)):
                return await self._trained(process)
        except (NotConvertibleError, ForgedError) as e:
            await self._tools.launcher.kill_all()
            return RunOutcome(how=NodePhase.FAILED, error=str(e), non_retryable=True)
        except (BlobError, CorruptError, OSError, ValueError, StaleGeneration) as e:
            await self._tools.launcher.kill_all()
            finding = e.finding if isinstance(e, BrokenCheckpointError) else None
            return RunOutcome(
                how=NodePhase.STOPPED, error=f"not started: {error_with_remedy(e)}", broken=finding
            )
        await self._tools.launcher.kill_all()
        return RunOutcome(how=NodePhase.STOPPED)

    async def salvage_saves(self) -> RunOutcome:
        """Settle the saves that an earlier supervisor's trainer left; no process of it lives."""
        self._follower.skip_spans()
        self._follow()
        self._requests.request(StopRequest.SAVE)
        self._requests.trainer_ended(ended_well=self._how() is not NodePhase.FAILED)
        uploading = asyncio.create_task(self._uploads.run_to_end(self._requests, recall=True))
        try:
            await self._unless(StopRequest.ABANDON, self._settle(uploading))
        except StaleGeneration as e:
            return RunOutcome(how=NodePhase.STOPPED, error=str(e))
        finally:
            uploading.cancel()
            await asyncio.gather(uploading, return_exceptions=True)
        finished = self._how() is NodePhase.FINISHED and not self._lacks_model
        phase = NodePhase.FINISHED if finished else NodePhase.STOPPED
        marks = out_of_memory_marks(self._world.folder, self._world.ranks)
        return RunOutcome(how=phase, out_of_memory=bool(marks))

    async def _supply(self, process: Process) -> None:
        """Fetch while the ranks start; stop when they have ended."""
        await wait_first(self._retry.run_until_outage_ends(self._fetch), process.wait())

    async def _claim(self) -> None:
        """Check that HEAD belongs to this generation; read the run spec."""
        container, folder = self._tools.container, self._world.folder
        generation = self._world.generation
        head, _ = await read_head(container)
        if head.generation != generation.number:
            raise StaleGeneration(
                f"HEAD belongs to generation {head.generation}, not to {generation.number}"
            )
        self._spec = await fetch_run_spec(container, generation, folder)
        write_whole(folder.generation, generation.to_json())
        self._tools.memory.assign_folder(folder, generation.number)
        folder.prepare_stop_flag()

    async def _fetch(self) -> None:
        """Fetch what the ranks wait for, then tell them."""
        generation, folder, cache = self._world.generation, self._world.folder, self._tools.cache
        spec, size = self._spec.on(generation.rung), generation.world_size
        self._stopping.micro_steps = micro_steps(spec.global_batch, spec.micro_batch, size)
        await cache.link_inputs(spec, self._grants, folder)
        if spec.base_model.checkpoint is not None:
            await link_converted_base(spec, self._grants, self._world, cache, self._tools.launcher)
        self._report_span("fetch_inputs")
        write_whole(folder.ready, "")
        if generation.checkpoint is not None:
            await cache.link_checkpoint(generation.checkpoint, folder, size, self._world.ranks)
            self._report_span("fetch_checkpoint")
        await asyncio.to_thread(self._tools.memory.keep_only, generation.number)

    def _report_span(self, name: str) -> None:
        """Report the time since the last span under this name."""
        now = self._tools.clock.now()
        self._tools.reports.add_spans([Span(name=name, started_at=self._began, ended_at=now)])
        self._began = now

    async def _trained(self, process: Process) -> RunOutcome:
        """Run from the start of the trainer to the end of its uploads."""
        shipping = asyncio.create_task(self._ship_logs())
        sharing = asyncio.create_task(self._share())
        uploading = asyncio.create_task(self._uploads.run_to_end(self._requests))
        loading = asyncio.create_task(self._load())
        try:
            await self._until_gone(process, uploading, loading)
            is_settled = await self._unless(StopRequest.ABANDON, self._settle(uploading))
            ending = self._ending(process) if is_settled else RunOutcome(how=NodePhase.STOPPED)
        except StaleGeneration as e:
            await self._tools.launcher.kill_all()
            ending = RunOutcome(how=NodePhase.STOPPED, error=str(e))
        finally:
            tasks = (shipping, sharing, uploading, loading)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        await self._say_goodbye()
        return ending

    async def _load(self) -> None:
        """Serve the checkpoint's blocks that the ranks read, while they load it."""
        world = self._world
        checkpoint, size = world.generation.checkpoint, world.generation.world_size
        if checkpoint is not None:
            await self._tools.cache.serve_tensor_blocks(
                checkpoint, world.folder, size, world.ranks, self._retry.run_until_outage_ends
            )

    async def _until_gone(
        self, process: Process, uploading: asyncio.Task[None], loading: asyncio.Task[None]
    ) -> None:
        """Wait until no process of the trainer is left; kill it when it must end."""
        while process.returncode is None and not self._requests.must_be_killed:
            if uploading.done():
                uploading.result()  # raises: it never ends well before the trainer does
            if loading.done() and not loading.cancelled():
                loading.result()
            self._follow()
            await self._free_what_is_loaded(loading)
            await wait_first(
                process.wait(),
                self._requests.wait_for(StopRequest.KILL),
                seconds=self._tools.limits.poll_interval,
            )
        if self._requests.strongest is StopRequest.ABANDON:
            uploading.cancel()
        await self._tools.launcher.kill_all()
        await process.wait()
        self._follow()
        self._requests.trainer_ended(ended_well=self._ended_by_itself())

    async def _free_what_is_loaded(self, loading: asyncio.Task[None]) -> None:
        if not self._freed and not self._tools.reports.fresh:
            self._freed = True
            loading.cancel()
            await self._tools.cache.drop_checkpoint()

    async def _settle(self, uploading: asyncio.Task[None]) -> None:
        if self._requests.strongest is StopRequest.ABANDON:
            return
        while not uploading.done() and not self._requests.is_upload_time_over:
            await asyncio.wait({uploading}, timeout=self._tools.limits.poll_interval)
        if uploading.done():
            uploading.result()

    def _ending(self, process: Process) -> RunOutcome:
        phase = self._how()
        if phase is NodePhase.FAILED and (why := self._never_met()):
            return RunOutcome(how=NodePhase.STOPPED, error=why)
        if phase is NodePhase.FAILED:
            if why := non_retryable_reason(self._world.folder, self._world.ranks):
                return RunOutcome(how=phase, error=why, non_retryable=True)
            marks = out_of_memory_marks(self._world.folder, self._world.ranks)
            error = self._last_words(process, _out_of_memory_text(marks))
            unhealthy = unhealthy_reason(self._world.folder, self._world.ranks)
            return RunOutcome(
                how=phase, error=error, out_of_memory=bool(marks), unhealthy=unhealthy
            )
        if phase is NodePhase.FINISHED and self._lacks_model:
            error = f"finished, but HEAD does not name the model: {self._uploads.trouble}"
            return RunOutcome(how=NodePhase.STOPPED, error=error)
        return RunOutcome(how=phase, error="")

    @property
    def _lacks_model(self) -> bool:
        """Whether this node must commit the model and HEAD does not name it."""
        return self._world.member.node_rank == 0 and self._uploads.model is None

    def _never_met(self) -> str:
        """Return why the ranks could not meet, if another program took the port."""
        launcher = self._logs.launcher_tail()
        if self._world.member.node_rank != 0 or "EADDRINUSE" not in launcher:
            return ""
        port = self._world.generation.master_port
        return f"port {port} was taken by another program before the ranks could meet there"

    def _ended_by_itself(self) -> bool:
        """Return whether its saves deserve full time: finished, stopped or non-retryable."""
        reason = non_retryable_reason(self._world.folder, self._world.ranks)
        return self._how() is not NodePhase.FAILED or bool(reason)

    def _how(self) -> NodePhase:
        return run_phase(self._world.folder, self._world.ranks)

    def _last_words(self, process: Process, why: str) -> str:
        folder, ranks = self._world.folder, self._world.ranks
        silent = [rank for rank in ranks if read_result(folder, rank) is None]
        cause = "killed" if self._requests.must_be_killed else f"launcher exit {process.returncode}"
        ended = f"{why}ranks {silent} ended without a result ({cause})"
        message = f"{ended}\n{self._logs.tail(silent)}"
        return (
            message
            if len(message) <= ERROR_TAIL_BYTES
            else message[:200] + message[-ERROR_TAIL_BYTES + 200 :]
        )

    def _undelivered(self, step: int) -> tuple[StepMetrics, ...]:
        self._follow()
        return self._tools.reports.undelivered(step)

    def _follow(self) -> None:
        try:
            self._follower.report_news()
            self._stopping.record_step()
        except (OSError, ValueError) as e:
            log.warning("trainer.not_followed reason=%s", e)

    async def _share(self) -> None:
        """Share tokens until a stop; then the network is for saves."""
        tools = self._tools
        if self._world.member.node_rank == 0:
            sharing = share_tokens(tools.container, self._world.folder, tools.limits, tools.regrant)
            await self._unless(StopRequest.SAVE, sharing)

    async def _ship_logs(self) -> None:
        while True:
            await asyncio.sleep(self._tools.limits.log_flush)
            for reason in await self._logs.flush():
                log.warning("log.not_flushed reason=%s", reason)

    async def _say_goodbye(self) -> None:
        """Upload the last log lines, within a time limit."""
        try:
            async with asyncio.timeout(LAST_FLUSH_SECONDS):
                await self._logs.flush(last=True)
        except TimeoutError:
            log.warning("log.cut_short generation=%d", self._world.generation.number)

    async def _unless(self, request: StopRequest, work: Coroutine[Any, Any, None]) -> bool:
        """Run the work, or cancel it on this request; return whether it completed."""
        task = asyncio.ensure_future(work)
        try:
            await wait_first(self._requests.wait_for(request), asyncio.wait({task}))
            if self._requests.strongest >= request and not task.done():
                return False
            task.result()
            return True
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


def _out_of_memory_text(marks: dict[int, OutOfMemoryMark]) -> str:
    """Return where memory ran out first, in a line; "" if it did not."""
    for rank, mark in marks.items():
        first_line = mark.message.splitlines()[0]
        return f"memory ran out on rank {rank} with micro-batch {mark.micro_batch}: {first_line}\n"
    return ""


def _outage_retry(world: NodeWorld, tools: RunServices) -> OutageRetry:
    """Return the retry policy for fetches; it watches the node's copies grow."""
    work = world.folder.root.parent
    copies = (work / "inputs", work / "checkpoints", tools.memory.checkpoints)
    return OutageRetry(tools.limits, tools.clock, tools.regrant, *copies)
