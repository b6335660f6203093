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
from trainer.rundir import OutOfMemoryMark, write_atomically
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

    phase: NodePhase
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
    to_service_time: Callable[[float], float]  # of a time on this machine's wall clock
    regrant: Callable[[], Awaitable[None]]  # have the service give fresh grants


class GenerationRun:
    """One generation on this node. ``request_save``, ``kill``, ``abandon``: at any time."""

    _spec: RunSpec  # once HEAD is known to be this generation's

    def __init__(self, world: NodeWorld, grants: Grants, services: RunServices) -> None:
        self._world = world
        self._grants = grants
        self._services = services
        self._requests = StopRequests(services.limits, services.clock)
        self._is_freed = False  # the memory that the checkpoint to load took
        self._uploads = SaveUploads(
            world,
            services.container,
            services.reports,
            services.limits,
            services.clock,
            services.regrant,
            self._undelivered,
        )
        self._stopping = StopController(
            world=world,
            requests=self._requests,
            traffic=self._uploads,
            memory=services.memory,
            reports=services.reports,
            limits=services.limits,
            clock=services.clock,
        )
        self._retry = _outage_retry(world, services)
        attempt_id = world.generation.attempt_id
        self._logs = LogUploads(services.container, attempt_id, world.ranks, world.logs)
        self._follower = RunFileFollower(
            world.folder, services.reports, services.clock, services.to_service_time
        )

    def renew_grants(self, grants: Grants) -> None:
        """Use these grants to read inputs from now on."""
        self._grants = grants

    def set_machine_deadline(self, seconds: float) -> None:
        """Record that Azure takes the machine in ``seconds``: everything must end by then."""
        self._stopping.set_machine_deadline(seconds)

    def save(self) -> None:
        """Ask the trainer to save between two steps and to end, unless it has ended."""
        self._report_progress()
        self._stopping.request_save()

    def kill(self) -> None:
        """Kill the trainer; complete saves are still uploaded and committed."""
        self._requests.request(StopRequest.KILL)

    def abandon(self) -> None:
        """Kill the trainer; upload and commit nothing more."""
        self._requests.request(StopRequest.ABANDON)

    async def run_to_end(self) -> RunOutcome:
        """Run the generation; return once all processes are gone and uploads are settled."""
        self._span_start = self._services.clock.now()
        try:
            if not await self._run_unless(
                StopRequest.SAVE, self._retry.run_until_outage_ends(self._prepare_generation)
            ):
                return RunOutcome(phase=NodePhase.STOPPED)
            process = await self._services.launcher.start(self._world, self._spec.nccl)
            if await self._run_unless(StopRequest.SAVE, self._fetch_at_start(process)):
                return await self._train_to_end(process)
        except (NotConvertibleError, ForgedError) as e:
            await self._services.launcher.kill_all()
            return RunOutcome(phase=NodePhase.FAILED, error=str(e), non_retryable=True)
        except (BlobError, CorruptError, OSError, ValueError, StaleGeneration) as e:
            await self._services.launcher.kill_all()
            finding = e.finding if isinstance(e, BrokenCheckpointError) else None
            reason = f"not started: {error_with_remedy(e)}"
            return RunOutcome(phase=NodePhase.STOPPED, error=reason, broken=finding)
        await self._services.launcher.kill_all()
        return RunOutcome(phase=NodePhase.STOPPED)

    async def salvage_saves(self) -> RunOutcome:
        """Settle the saves that an earlier supervisor's trainer left; no process of it lives."""
        self._follower.skip_spans()
        self._report_progress()
        self._requests.request(StopRequest.SAVE)
        self._requests.record_trainer_end(ended_well=self._trainer_phase() is not NodePhase.FAILED)
        uploading = asyncio.create_task(self._uploads.run_to_end(self._requests, recall=True))
        try:
            await self._run_unless(StopRequest.ABANDON, self._await_uploads(uploading))
        except StaleGeneration as e:
            return RunOutcome(phase=NodePhase.STOPPED, error=str(e))
        finally:
            uploading.cancel()
            await asyncio.gather(uploading, return_exceptions=True)
        finished = self._trainer_phase() is NodePhase.FINISHED and not self._lacks_model
        phase = NodePhase.FINISHED if finished else NodePhase.STOPPED
        marks = out_of_memory_marks(self._world.folder, self._world.ranks)
        return RunOutcome(phase=phase, out_of_memory=bool(marks))

    async def _fetch_at_start(self, process: Process) -> None:
        """Fetch while the ranks start; stop when they have ended."""
        await wait_first(self._retry.run_until_outage_ends(self._fetch_inputs), process.wait())

    async def _prepare_generation(self) -> None:
        """Check that HEAD belongs to this generation; read the run spec."""
        container, folder = self._services.container, self._world.folder
        generation = self._world.generation
        head, _ = await read_head(container)
        if head.generation != generation.number:
            raise StaleGeneration(
                f"HEAD belongs to generation {head.generation}, not to {generation.number}"
            )
        self._spec = await fetch_run_spec(container, generation, folder)
        write_atomically(folder.generation, generation.to_json())
        self._services.memory.assign_folder(folder, generation.number)
        folder.prepare_stop_flag()

    async def _fetch_inputs(self) -> None:
        """Fetch what the ranks wait for, then tell them."""
        generation, folder, cache = self._world.generation, self._world.folder, self._services.cache
        spec, size = self._spec.on(generation.rung), generation.world_size
        self._stopping.micro_steps = micro_steps(spec.global_batch, spec.micro_batch, size)
        await cache.link_inputs(spec, self._grants, folder)
        if spec.base_model.checkpoint is not None:
            launcher = self._services.launcher
            await link_converted_base(spec, self._grants, self._world, cache, launcher)
        self._report_span("fetch_inputs")
        write_atomically(folder.ready, "")
        if generation.checkpoint is not None:
            await cache.link_checkpoint(generation.checkpoint, folder, size, self._world.ranks)
            self._report_span("fetch_checkpoint")
        await asyncio.to_thread(self._services.memory.keep_only, generation.number)

    def _report_span(self, name: str) -> None:
        """Report the time since the last span under this name."""
        now = self._services.clock.now()
        self._services.reports.add_spans(
            [Span(name=name, started_at=self._span_start, ended_at=now)]
        )
        self._span_start = now

    async def _train_to_end(self, process: Process) -> RunOutcome:
        """Run from the start of the trainer to the end of its uploads."""
        shipping = asyncio.create_task(self._ship_logs())
        sharing = asyncio.create_task(self._share_tokens())
        uploading = asyncio.create_task(self._uploads.run_to_end(self._requests))
        loading = asyncio.create_task(self._serve_checkpoint())
        try:
            await self._wait_for_exit(process, uploading, loading)
            is_settled = await self._run_unless(StopRequest.ABANDON, self._await_uploads(uploading))
            outcome = self._outcome(process) if is_settled else RunOutcome(phase=NodePhase.STOPPED)
        except StaleGeneration as e:
            await self._services.launcher.kill_all()
            outcome = RunOutcome(phase=NodePhase.STOPPED, error=str(e))
        finally:
            tasks = (shipping, sharing, uploading, loading)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        await self._flush_last_logs()
        return outcome

    async def _serve_checkpoint(self) -> None:
        """Serve the checkpoint's blocks that the ranks read, while they load it."""
        world = self._world
        checkpoint, size = world.generation.checkpoint, world.generation.world_size
        if checkpoint is not None:
            await self._services.cache.serve_tensor_blocks(
                checkpoint, world.folder, size, world.ranks, self._retry.run_until_outage_ends
            )

    async def _wait_for_exit(
        self, process: Process, uploading: asyncio.Task[None], loading: asyncio.Task[None]
    ) -> None:
        """Wait until no process of the trainer is left; kill it when it must end."""
        while process.returncode is None and not self._requests.must_be_killed:
            if uploading.done():
                uploading.result()  # raises: it never ends well before the trainer does
            if loading.done() and not loading.cancelled():
                loading.result()
            self._report_progress()
            await self._free_checkpoint(loading)
            await wait_first(
                process.wait(),
                self._requests.wait_for(StopRequest.KILL),
                seconds=self._services.limits.poll_interval,
            )
        if self._requests.strongest is StopRequest.ABANDON:
            uploading.cancel()
        await self._services.launcher.kill_all()
        await process.wait()
        self._report_progress()
        self._requests.record_trainer_end(ended_well=self._ended_well())

    async def _free_checkpoint(self, loading: asyncio.Task[None]) -> None:
        if not self._is_freed and not self._services.reports.fresh:
            self._is_freed = True
            loading.cancel()
            await self._services.cache.drop_checkpoint()

    async def _await_uploads(self, uploading: asyncio.Task[None]) -> None:
        if self._requests.strongest is StopRequest.ABANDON:
            return
        while not uploading.done() and not self._requests.is_upload_time_over:
            await asyncio.wait({uploading}, timeout=self._services.limits.poll_interval)
        if uploading.done():
            uploading.result()

    def _outcome(self, process: Process) -> RunOutcome:
        phase = self._trainer_phase()
        if phase is NodePhase.FAILED and (why := self._port_conflict()):
            return RunOutcome(phase=NodePhase.STOPPED, error=why)
        if phase is NodePhase.FAILED:
            if why := non_retryable_reason(self._world.folder, self._world.ranks):
                return RunOutcome(phase=phase, error=why, non_retryable=True)
            marks = out_of_memory_marks(self._world.folder, self._world.ranks)
            error = self._error_message(process, _out_of_memory_text(marks))
            unhealthy = unhealthy_reason(self._world.folder, self._world.ranks)
            return RunOutcome(
                phase=phase, error=error, out_of_memory=bool(marks), unhealthy=unhealthy
            )
        if phase is NodePhase.FINISHED and self._lacks_model:
            error = f"finished, but HEAD does not name the model: {self._uploads.last_error}"
            return RunOutcome(phase=NodePhase.STOPPED, error=error)
        return RunOutcome(phase=phase, error="")

    @property
    def _lacks_model(self) -> bool:
        """Whether this node must commit the model and HEAD does not name it."""
        return self._world.member.node_rank == 0 and self._uploads.model is None

    def _port_conflict(self) -> str:
        """Return why the ranks could not meet, if another program took the port."""
        launcher = self._logs.launcher_tail()
        if self._world.member.node_rank != 0 or "EADDRINUSE" not in launcher:
            return ""
        port = self._world.generation.master_port
        return f"port {port} was taken by another program before the ranks could meet there"

    def _ended_well(self) -> bool:
        """Return whether its saves deserve full time: finished, stopped or non-retryable."""
        reason = non_retryable_reason(self._world.folder, self._world.ranks)
        return self._trainer_phase() is not NodePhase.FAILED or bool(reason)

    def _trainer_phase(self) -> NodePhase:
        return run_phase(self._world.folder, self._world.ranks)

    def _error_message(self, process: Process, why: str) -> str:
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
        self._report_progress()
        return self._services.reports.undelivered(step)

    def _report_progress(self) -> None:
        try:
            self._follower.report_news()
            self._stopping.record_step()
        except (OSError, ValueError) as e:
            log.warning("trainer.not_followed reason=%s", e)

    async def _share_tokens(self) -> None:
        """Share tokens until a stop; then the network is for saves."""
        services = self._services
        if self._world.member.node_rank == 0:
            folder = self._world.folder
            sharing = share_tokens(services.container, folder, services.limits, services.regrant)
            await self._run_unless(StopRequest.SAVE, sharing)

    async def _ship_logs(self) -> None:
        while True:
            await asyncio.sleep(self._services.limits.log_flush)
            for reason in await self._logs.flush():
                log.warning("log.not_flushed reason=%s", reason)

    async def _flush_last_logs(self) -> None:
        """Upload the last log lines, within a time limit."""
        try:
            async with asyncio.timeout(LAST_FLUSH_SECONDS):
                await self._logs.flush(last=True)
        except TimeoutError:
            log.warning("log.cut_short generation=%d", self._world.generation.number)

    async def _run_unless(self, request: StopRequest, work: Coroutine[Any, Any, None]) -> bool:
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


def _outage_retry(world: NodeWorld, services: RunServices) -> OutageRetry:
    """Return the retry policy for fetches; it watches the node's copies grow."""
    work = world.folder.root.parent
    copies = (work / "inputs", work / "checkpoints", services.memory.checkpoints)
    return OutageRetry(services.limits, services.clock, services.regrant, *copies)
