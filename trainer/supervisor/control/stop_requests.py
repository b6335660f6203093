"""Requests to end a run, and the time limits that follow from them."""

import asyncio
from enum import IntEnum

from trainer.supervisor.clock import NodeClock, NodeLimits


class StopRequest(IntEnum):
    """A stronger request replaces a weaker one; it cannot be taken back."""

    NONE = 0
    SAVE = 1  # save between two steps, end, settle
    KILL = 2  # end now; complete saves are still uploaded and committed
    ABANDON = 3  # end now; nothing more is uploaded or committed


class StopRequests:
    """The strongest request to one run, when it came, and its deadlines (monotonic)."""

    def __init__(self, limits: NodeLimits, clock: NodeClock) -> None:
        self._limits = limits
        self._clock = clock
        self._request_events = {request: asyncio.Event() for request in StopRequest}
        self._requested_at = 0.0
        self._trainer_ended_at = 0.0
        self._machine_deadline = float("inf")
        self.strongest = StopRequest.NONE
        self.trainer_exited = asyncio.Event()
        self._ended_well = False

    def request(self, request: StopRequest) -> None:
        """Request a stop; one weaker than an earlier one changes nothing."""
        if request > self.strongest:
            self.strongest = request
            self._requested_at = self._clock.monotonic()
        for weaker in StopRequest:
            if weaker <= request:
                self._request_events[weaker].set()

    def set_machine_deadline(self, seconds: float) -> None:
        """Record that Azure takes the machine in ``seconds``."""
        self._machine_deadline = min(self._machine_deadline, self._clock.monotonic() + seconds)

    @property
    def seconds_left(self) -> float | None:
        """Seconds until Azure takes the machine; None when it does not."""
        remaining = self._machine_deadline - self._clock.monotonic()
        return remaining if remaining < float("inf") else None

    def record_trainer_end(self, *, ended_well: bool) -> None:
        """Record that no process of the trainer is left."""
        self._trainer_ended_at = self._clock.monotonic()
        self._ended_well = ended_well
        self.trainer_exited.set()

    async def wait_for(self, request: StopRequest) -> None:
        """Return once this request, or a stronger one, was made."""
        await self._request_events[request].wait()

    @property
    def must_be_killed(self) -> bool:
        """Whether the trainer must not run any longer."""
        if self.strongest is not StopRequest.SAVE:
            return self.strongest > StopRequest.SAVE
        last = min(
            self._requested_at + self._limits.save,
            self._machine_deadline - self._limits.save_margin,
        )
        return self._clock.monotonic() >= last

    @property
    def is_upload_time_over(self) -> bool:
        """Whether the uploads after the trainer's end have had their time."""
        if self._has_full_time:
            return self._is_past(self._trainer_ended_at + self._limits.uploads)
        return self._is_past(
            self._limit_start(self._trainer_ended_at) + self._limits.uploads_after_kill
        )

    def is_peer_time_over(self, since: float) -> bool:
        """Return whether peers, awaited since ``since``, have had their time."""
        if not self._has_full_time:
            return self._is_past(self._limit_start(since) + self._limits.peers_after_kill)
        if self._machine_deadline < float("inf"):
            return self._is_past(self._machine_deadline)
        return self._is_past(since + self._limits.peers)

    @property
    def _has_full_time(self) -> bool:
        return self._ended_well and self.strongest < StopRequest.KILL

    def _limit_start(self, since: float) -> float:
        """Return the start of the time limit; a late kill restarts it."""
        return max(since, self._requested_at)

    def _is_past(self, moment: float) -> bool:
        last = min(moment, self._machine_deadline - self._limits.upload_margin)
        return self._clock.monotonic() >= last
