"""Upload and commit the trainer's saves, during training and after its end.

A request is retried a few times (`BlobAccess.call_with_retries`). If it still fails, the save stays
in the node's memory, and the next pass uploads it: with backoff while the trainer runs.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence

from trainer.contract import Committed, StepMetrics
from trainer.rundir import RankSave
from trainer.supervisor.blob.container import AccessRefusedError, BlobError, JobContainer
from trainer.supervisor.blob.transfer import CorruptError, UploadRateLimiter
from trainer.supervisor.clock import NodeClock, NodeLimits
from trainer.supervisor.concurrency import wait_first
from trainer.supervisor.control.launch import NodeWorld
from trainer.supervisor.control.stop_requests import StopRequest, StopRequests
from trainer.supervisor.report.heartbeat_reports import HeartbeatReports
from trainer.supervisor.upload.commit import Committer
from trainer.supervisor.upload.eviction_plan import uncapped_rate, unsent_bytes
from trainer.supervisor.upload.outbox import Outbox

log = logging.getLogger(__name__)


class SaveUploads:
    """The saves of one generation on this node; node rank 0 commits them."""

    def __init__(
        self,
        world: NodeWorld,
        container: JobContainer,
        reports: HeartbeatReports,
        limits: NodeLimits,
        clock: NodeClock,
        regrant: Callable[[], Awaitable[None]],
        undelivered: Callable[[int], Sequence[StepMetrics]],
    ) -> None:
        self._ingress_share = limits.ingress_share(len(world.generation.members))
        self.rate_limit = min(limits.upload_rate, self._ingress_share)  # bytes a second
        self._rate_limiter = UploadRateLimiter(self.rate_limit, clock.monotonic)
        self._outbox = Outbox(container, world.folder, world.ranks, self._rate_limiter)
        self._committer = Committer(
            container, world.generation, clock, undelivered, reports.valid_loss
        )
        self._is_committer = world.member.node_rank == 0
        self._reports = reports
        self._limits = limits
        self._clock = clock
        self._regrant = regrant
        self._failures = 0  # in a row
        self._failing_since = 0.0
        self._recall = False  # expect what an earlier supervisor had sent
        self._non_retryable = False  # waiting does not mend what went wrong in this pass
        self._last_upload_bytes, self._last_upload_seconds = 0, 0.0
        self._sending_since: float | None = None
        self._deleting: asyncio.Task[None] | None = None
        self.last_error = ""  # the last thing that went wrong
        self.model: Committed | None = None

    @property
    def pending_bytes(self) -> int:
        """Bytes of complete saves that are not in Blob yet, estimated by the last rate."""
        saves = [
            sum(f.size for r in records for f in r.files)
            for records in self._outbox.complete_saves()
        ]
        return unsent_bytes(saves, self._estimate_sent_bytes())

    @property
    def rate(self) -> float | None:
        """Bytes a second of network and account without the cap; None: unknown."""
        rate = uncapped_rate(self._measured_rate, self.rate_limit)
        return rate if rate is None else min(rate, self._ingress_share)

    @property
    def _measured_rate(self) -> float | None:
        return (
            self._last_upload_bytes / self._last_upload_seconds
            if self._last_upload_seconds
            else None
        )

    def _estimate_sent_bytes(self) -> float:
        """Estimate the bytes of the save under way that are in Blob by now."""
        if self._sending_since is None or self._measured_rate is None:
            return 0.0
        return self._measured_rate * (self._clock.monotonic() - self._sending_since)

    async def run_to_end(self, requests: StopRequests, *, recall: bool = False) -> None:
        """Upload and commit until the trainer is gone and nothing is left, or time is up.

        ``recall``: an earlier supervisor may have sent saves without committing them. Raises
        StaleGeneration when nothing more can be committed.
        """
        lifting = asyncio.create_task(self._lift_cap_at_stop(requests))
        try:
            await self._run_passes(requests, recall=recall)
        finally:
            tasks = [lifting, *([self._deleting] if self._deleting else [])]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _lift_cap_at_stop(self, requests: StopRequests) -> None:
        """Lift the rate limit after a stop request or the trainer's end."""
        await wait_first(requests.wait_for(StopRequest.SAVE), requests.trainer_exited.wait())
        self._rate_limiter.lift_cap()

    async def _run_passes(self, requests: StopRequests, *, recall: bool) -> None:
        waiting_since: float | None = None
        self._recall = recall and self._is_committer
        while True:
            trainer_exited = requests.trainer_exited.is_set()  # before the check of the outbox
            self._non_retryable = False
            failures = self._failures
            sent = await self._send_saves()
            if trainer_exited and sent and waiting_since is None:
                waiting_since = self._clock.monotonic()
            # Read before the commit, so that one pass follows the end of the time limit.
            time_over = trainer_exited and _is_time_over(requests, waiting_since)
            done = await self._commit() and sent
            if self._failures == failures:
                self._record_success()
            if trainer_exited and (done or time_over or self._non_retryable):
                return
            if not trainer_exited:
                self._delete_dropped_checkpoints(requests)
            await self._wait_for_next_pass(requests)

    def _delete_dropped_checkpoints(self, requests: StopRequests) -> None:
        """Delete dropped checkpoints beside the uploads, until a stop is requested.

        There may be hundreds of blobs; the service's sweep deletes the rest.
        """
        if self._deleting is not None and self._deleting.done():
            self._deleting.result()
            self._deleting = None
        idle = self._deleting is None and requests.strongest is StopRequest.NONE
        if idle and self._committer.dropped:
            deleting = wait_first(
                requests.wait_for(StopRequest.SAVE), self._committer.delete_dropped()
            )
            self._deleting = asyncio.create_task(deleting)

    async def _send_saves(self) -> bool:
        """Upload the complete saves of the outbox; return whether nothing is left."""
        try:
            while save := await self._send_next():
                if self._is_committer:
                    self._committer.expect_commit(save)
                # The next upload may not be in time.
                if self._is_committer and self._outbox.complete_saves():
                    await self._commit()
        except (BlobError, CorruptError, OSError) as e:  # a corrupt save is out of the way now
            await self._record_failure(e)
            return False
        except ValueError as e:
            await self._record_failure(e)
            self._non_retryable = True
            return False
        return True

    async def _send_next(self) -> RankSave | None:
        before, start = self._outbox.sent, self._clock.monotonic()
        self._sending_since = start
        try:
            save = await self._outbox.send_next()
        finally:
            self._sending_since = None
        if save is not None:
            self._last_upload_bytes = self._outbox.sent - before
            self._last_upload_seconds = self._clock.monotonic() - start
        return save

    async def _commit(self) -> bool:
        """Commit what is complete in Blob; return whether nothing is left to commit."""
        try:
            if self._recall:
                self.model = await self._committer.expect_earlier_saves()
                self._recall = False
            entries = await self._committer.commit_complete()
        except BlobError as e:
            await self._record_failure(e)
            return False
        except ValueError as e:
            await self._record_failure(e)
            self._non_retryable = True
            return False
        self._reports.add_committed(entries)
        self.model = next((e for e in entries if e.kind == "final"), self.model)
        return self._committer.is_idle

    async def _wait_for_next_pass(self, requests: StopRequests) -> None:
        if requests.trainer_exited.is_set():
            await asyncio.sleep(self._limits.poll_interval)
        else:
            back_off = min(
                self._limits.poll_interval * 2 ** min(self._failures, 10), self._limits.retry
            )
            await wait_first(requests.trainer_exited.wait(), seconds=back_off)

    def _record_success(self) -> None:
        """Record success; peers' parts may still be missing."""
        self._failures = 0
        self._reports.end_trouble("uploads", self._clock.now())

    async def _record_failure(self, error: Exception) -> None:
        now = self._clock.now()
        self._failing_since = self._failing_since if self._failures else now
        self._failures += 1
        self.last_error = str(error)
        log.warning("upload.failed reason=%s", error)
        if now - self._failing_since >= self._limits.delayed:
            message = (
                "Checkpoints cannot be uploaded at the moment; training goes on, and the newest "
                f"waits on the node: {error}"
            )
            self._reports.begin_trouble("uploads", message, self._failing_since)
        if isinstance(error, AccessRefusedError):
            await self._regrant()


def _is_time_over(requests: StopRequests, waiting_since: float | None) -> bool:
    if waiting_since is None:
        return requests.is_upload_time_over
    return requests.is_peer_time_over(waiting_since)
