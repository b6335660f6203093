"""How a run is asked to end, and how patient that leaves it."""

import asyncio
from enum import IntEnum

from trainer.supervisor.clock import NodeClock, NodeLimits


class StopRequest(IntEnum):
    """A stronger wish replaces a weaker one; there is no way back."""

    NONE = 0
    SAVE = 1  # save between two steps, end, settle
    KILL = 2  # end now; what lies whole is still uploaded and committed
    ABANDON = 3  # end now; nothing more is uploaded or committed


class StopRequests:
    """What one run was asked, when, and until when it may take its time (monotonic)."""

    def __init__(self, limits: NodeLimits, clock: NodeClock) -> None:
        self._limits = limits
        self._clock = clock
        self._heard = {wish: asyncio.Event() for wish in StopRequest}
        self._asked_at = 0.0
        self._gone_at = 0.0
        self._machine_goes_at = float("inf")
        self.strongest = StopRequest.NONE
        self.trainer_gone = asyncio.Event()
        self._ended_well = False

    def ask(self, wish: StopRequest) -> None:
        """Ask for it; a weaker wish than an earlier one changes nothing."""
        if wish > self.strongest:
            self.strongest = wish
            self._asked_at = self._clock.monotonic()
        for weaker in StopRequest:
            if weaker <= wish:
                self._heard[weaker].set()

    def machine_goes(self, seconds: float) -> None:
        """Azure takes the machine in that many seconds."""
        self._machine_goes_at = min(self._machine_goes_at, self._clock.monotonic() + seconds)

    @property
    def left(self) -> float | None:
        """Seconds until Azure takes the machine; None when it does not."""
        left = self._machine_goes_at - self._clock.monotonic()
        return left if left < float("inf") else None

    def gone(self, *, ended_well: bool) -> None:
        """No process of the trainer is left."""
        self._gone_at = self._clock.monotonic()
        self._ended_well = ended_well
        self.trainer_gone.set()

    async def heard(self, wish: StopRequest) -> None:
        """Return once this, or a stronger one, is wished."""
        await self._heard[wish].wait()

    @property
    def to_be_killed(self) -> bool:
        """True when the trainer must not run any longer."""
        if self.strongest is not StopRequest.SAVE:
            return self.strongest > StopRequest.SAVE
        last = min(
            self._asked_at + self._limits.save, self._machine_goes_at - self._limits.save_margin
        )
        return self._clock.monotonic() >= last

    @property
    def uploads_over(self) -> bool:
        """True when the uploads of a trainer that is gone have had their time."""
        if self._patient:
            return self._past(self._gone_at + self._limits.uploads)
        return self._past(self._given_up_since(self._gone_at) + self._limits.uploads_after_kill)

    def peers_over(self, since: float) -> bool:
        """True when the peers, waited for since then, have had their time."""
        if not self._patient:
            return self._past(self._given_up_since(since) + self._limits.peers_after_kill)
        if self._machine_goes_at < float("inf"):
            return self._past(self._machine_goes_at)
        return self._past(since + self._limits.peers)

    @property
    def _patient(self) -> bool:
        return self._ended_well and self.strongest < StopRequest.KILL

    def _given_up_since(self, since: float) -> float:
        """A kill that is asked for late, with the trainer long gone, leaves the same time."""
        return max(since, self._asked_at)

    def _past(self, moment: float) -> bool:
        last = min(moment, self._machine_goes_at - self._limits.upload_margin)
        return self._clock.monotonic() >= last
