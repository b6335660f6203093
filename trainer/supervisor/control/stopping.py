"""Stop a trainer with a save: after its step, at once, or without a save.

The decision uses measurements of the run. An eviction notice sets the time; any other stop leaves
enough for a short step. The ranks of all nodes agree on the most urgent request, so one machine
that must go soon decides for all.
"""

import logging
from collections import deque
from dataclasses import dataclass, field
from typing import Protocol

from trainer.contract import NodePhase
from trainer.supervisor.clock import NodeClock, NodeLimits
from trainer.supervisor.control.launch import NodeWorld
from trainer.supervisor.control.results import run_phase
from trainer.supervisor.control.stop_requests import StopRequest, StopRequests
from trainer.supervisor.machine.memory_files import MemoryFolder
from trainer.supervisor.report.heartbeat_reports import HeartbeatReports
from trainer.supervisor.upload.eviction_plan import (
    EvictionChoice,
    EvictionDecision,
    EvictionOutlook,
    decide_on_eviction,
    decision_message,
    has_time_for_step,
)

_STEPS_REMEMBERED = 16
log = logging.getLogger(__name__)


class StepTimer:
    """Mean duration of the last few training steps, by when each was reported."""

    def __init__(self) -> None:
        self._heard: deque[tuple[int, float]] = deque(maxlen=_STEPS_REMEMBERED)

    def record_step(self, step: int, at: float) -> None:
        """Record that the trainer has come to ``step`` by ``at`` (monotonic seconds)."""
        if not self._heard or step > self._heard[-1][0]:
            self._heard.append((step, at))

    @property
    def seconds(self) -> float | None:
        """Mean seconds of a step; None until two steps were seen."""
        if len(self._heard) < 2:
            return None
        (first, started_at), (last, ended_at) = self._heard[0], self._heard[-1]
        return (ended_at - started_at) / (last - first)


class UploadTraffic(Protocol):
    """Progress of the uploads to Blob."""

    @property
    def pending_bytes(self) -> int:
        """Bytes that still have to be uploaded."""

    @property
    def rate(self) -> float | None:
        """Bytes a second; None: not measured yet."""


@dataclass(kw_only=True)
class StopController:
    """Stops one run on this node."""

    world: NodeWorld
    requests: StopRequests
    traffic: UploadTraffic
    memory: MemoryFolder
    reports: HeartbeatReports
    limits: NodeLimits
    clock: NodeClock
    micro_steps: int = 1  # in a step: a stop is checked before each
    _step_times: StepTimer = field(default_factory=StepTimer)
    _gently: bool = False  # the stop flag lets the step finish

    def record_step(self) -> None:
        """Time the steps; the step that was loaded from a checkpoint does not count."""
        if not self.reports.fresh:
            self._step_times.record_step(self.reports.step, self.clock.monotonic())

    def request_save(self) -> None:
        """Ask the trainer to save between two steps and to end.

        Before its first own step there is nothing to save, and it may be waiting for a peer that
        never comes: then it is killed. Once it has ended, its saves are uploaded without a limit.
        """
        if self._ended:
            self.requests.request(StopRequest.SAVE)
        elif self.reports.fresh:
            self.requests.request(StopRequest.KILL)
        elif (verdict := self._verdict()) is None:
            self._raise(after_step=has_time_for_step(self.limits.save, self._step_times.seconds))
        else:
            self._obey(verdict)

    def set_machine_deadline(self, seconds: float) -> None:
        """Record that Azure takes the machine; make an unhurried stop urgent."""
        self.requests.set_machine_deadline(seconds)
        if not self._gently or self._ended:
            return
        verdict = self._verdict()
        if verdict is not None and verdict.choice is not EvictionChoice.FINISH_STEP:
            self.world.folder.stop.unlink(missing_ok=True)
            self._raise(after_step=False)

    @property
    def _ended(self) -> bool:
        """Whether all ranks have left results; torchrun may take a while to notice."""
        if self.requests.trainer_gone.is_set():
            return True
        return run_phase(self.world.folder, self.world.ranks) is not NodePhase.FAILED

    def _obey(self, verdict: EvictionDecision) -> None:
        log.info("notice.verdict choice=%s needs=%s", verdict.choice.name, verdict.needs)
        self.reports.add_notice("notice", decision_message(verdict), self.clock.now())
        if verdict.choice is EvictionChoice.RELY:
            self.requests.request(StopRequest.KILL)
        else:
            self._raise(after_step=verdict.choice is EvictionChoice.FINISH_STEP)

    def _raise(self, *, after_step: bool) -> None:
        self._gently = after_step
        try:
            self.world.folder.raise_stop_flag(after_step=after_step)
        except OSError as e:
            log.warning("stop.not_raised reason=%s", e)
            self.requests.request(StopRequest.KILL)
        else:
            self.requests.request(StopRequest.SAVE)

    def _verdict(self) -> EvictionDecision | None:
        """Return the decision for the time that is left; None without an eviction."""
        remaining = self.requests.seconds_left
        if remaining is None:
            return None
        outlook = EvictionOutlook(
            left=remaining - self.limits.upload_margin,
            step=self._step_times.seconds,
            micro_steps=self.micro_steps,
            size=self.memory.save_size(self.world.folder),
            pending=self.traffic.pending_bytes,
            rate=self.traffic.rate,
        )
        return decide_on_eviction(outlook)
