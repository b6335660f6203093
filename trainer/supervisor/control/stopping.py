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
        self._samples: deque[tuple[int, float]] = deque(maxlen=_STEPS_REMEMBERED)

    def record_step(self, step: int, at: float) -> None:
        """Record that the trainer has come to ``step`` by ``at`` (monotonic seconds)."""
        if not self._samples or step > self._samples[-1][0]:
            self._samples.append((step, at))

    @property
    def seconds(self) -> float | None:
        """Mean seconds of a step; None until two steps were seen."""
        if len(self._samples) < 2:
            return None
        (first, started_at), (last, ended_at) = self._samples[0], self._samples[-1]
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
    _finishes_step: bool = False  # the stop flag lets the step finish

    def record_step(self) -> None:
        """Time the steps; the step that was loaded from a checkpoint does not count."""
        if not self.reports.fresh:
            self._step_times.record_step(self.reports.step, self.clock.monotonic())

    def request_save(self) -> None:
        """Ask the trainer to save between two steps and to end.

        Before its first own step there is nothing to save, and it may be waiting for a peer that
        never comes: then it is killed. Once it has ended, its saves are uploaded without a limit.
        """
        if self._has_trainer_ended:
            self.requests.request(StopRequest.SAVE)
        elif self.reports.fresh:
            self.requests.request(StopRequest.KILL)
        elif (decision := self._decide()) is None:
            self._raise_stop_flag(
                after_step=has_time_for_step(self.limits.save, self._step_times.seconds)
            )
        else:
            self._apply_decision(decision)

    def set_machine_deadline(self, seconds: float) -> None:
        """Record that Azure takes the machine; make an unhurried stop urgent."""
        self.requests.set_machine_deadline(seconds)
        if not self._finishes_step or self._has_trainer_ended:
            return
        decision = self._decide()
        if decision is not None and decision.choice is not EvictionChoice.FINISH_STEP:
            self.world.folder.stop.unlink(missing_ok=True)
            self._raise_stop_flag(after_step=False)

    @property
    def _has_trainer_ended(self) -> bool:
        """Whether all ranks have left results; torchrun may take a while to notice."""
        if self.requests.trainer_exited.is_set():
            return True
        return run_phase(self.world.folder, self.world.ranks) is not NodePhase.FAILED

    def _apply_decision(self, decision: EvictionDecision) -> None:
        log.info("notice.verdict choice=%s needs=%s", decision.choice.name, decision.needed_seconds)
        self.reports.add_notice("notice", decision_message(decision), self.clock.now())
        if decision.choice is EvictionChoice.RELY:
            self.requests.request(StopRequest.KILL)
        else:
            self._raise_stop_flag(after_step=decision.choice is EvictionChoice.FINISH_STEP)

    def _raise_stop_flag(self, *, after_step: bool) -> None:
        self._finishes_step = after_step
        try:
            self.world.folder.raise_stop_flag(after_step=after_step)
        except OSError as e:
            log.warning("stop.not_raised reason=%s", e)
            self.requests.request(StopRequest.KILL)
        else:
            self.requests.request(StopRequest.SAVE)

    def _decide(self) -> EvictionDecision | None:
        """Return the decision for the time that is left; None without an eviction."""
        remaining = self.requests.seconds_left
        if remaining is None:
            return None
        outlook = EvictionOutlook(
            seconds_left=remaining - self.limits.upload_margin,
            step=self._step_times.seconds,
            micro_steps=self.micro_steps,
            size=self.memory.save_size(self.world.folder),
            pending=self.traffic.pending_bytes,
            rate=self.traffic.rate,
        )
        return decide_on_eviction(outlook)
