"""When to save: periodically while no save is in progress, and at a stop."""

import logging
from collections.abc import Callable

from trainer.checkpoint import rng_state
from trainer.checkpoint.rng_state import RngState
from trainer.checkpoint.saver import Saver
from trainer.contract import RunSpec, SaveCost
from trainer.state import TrainingState

log = logging.getLogger(__name__)


class SaveSchedule:
    """Decides when to save, and reports what the last save cost.

    Only rank 0's clock decides when a save is due.
    """

    def __init__(
        self,
        saver: Saver,
        spec: RunSpec,
        now: Callable[[], float],
        step: int,
        report_cost: Callable[[SaveCost], None] = lambda _: None,
    ) -> None:
        self._saver, self._every, self._now = saver, spec.checkpoint_seconds, now
        self._milestone_every = spec.milestone_every_steps
        self._saved_step, self._saved_at = step, now()  # the loaded state counts as saved
        self._is_waiting = self._is_uploading = False
        self._report_cost = report_cost

    def is_due(self, step: int) -> bool:
        """Whether it is time to save at ``step``, or a milestone was passed since the last save."""
        if self._is_uploading and not self._saver.busy:
            self._is_uploading = False
            cost, upload = self._saver.cost, self._now() - self._saved_at
            self._report_cost(SaveCost(stall=cost.stall, upload=upload, blocks=cost.blocks))
        return self._passed_milestone(step) or self._now() - self._saved_at >= self._every

    def _passed_milestone(self, step: int) -> bool:
        every = self._milestone_every
        return every > 0 and step // every > self._saved_step // every

    def save_periodically(self, state: TrainingState, *, congested: bool) -> None:
        """Save, or wait for a later step while earlier saves are uploading."""
        if congested:
            if not self._is_waiting:
                log.warning("step %d: earlier saves are on their way, not saving", state.step)
            self._is_waiting = True
            return
        self._save(state, rng_state.capture_rng(), "periodic")

    def save_at_stop(self, state: TrainingState, boundary: RngState) -> None:
        """Save the state at the step boundary, unless it was saved or loaded."""
        if state.step != self._saved_step:
            self._save(state, boundary, "stop")

    def _save(self, state: TrainingState, at: RngState, kind: str) -> None:
        self._saver.save(state, at, kind)
        self._saved_step, self._saved_at, self._is_waiting = state.step, self._now(), False
        self._is_uploading = True
