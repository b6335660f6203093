"""When to save: every so often while nothing is on its way, and at a stop if anything is new."""

import logging
from collections.abc import Callable

from trainer.checkpoint import randomness
from trainer.checkpoint.randomness import Randomness
from trainer.checkpoint.saver import Saver
from trainer.contract import Cadence, RunSpec, SaveCost, Saving, interval_of, rescaled
from trainer.state import State

CHANGE = 0.25  # of the interval; less is not worth a word
log = logging.getLogger(__name__)


class Saves:
    """Remembers the last save; rank 0's clock alone says when the next one is due."""

    def __init__(
        self,
        saver: Saver,
        spec: RunSpec,
        now: Callable[[], float],
        step: int,
        told: Callable[[], Cadence | None] = lambda: None,
        tell: Callable[[Saving], None] = lambda _: None,
    ) -> None:
        self._saver, self._every, self._now = saver, spec.checkpoint_seconds, now
        self._milestone_every = spec.milestone_every_steps
        self._step, self._at = step, now()  # what is loaded counts as saved
        self._waiting = False
        self._planned = self._cadence = spec.cadence  # None: the user has chosen, whatever is told
        self._at_first = spec.checkpoint_seconds
        self._cost: SaveCost | None = None
        self._on_its_way = False
        self._told, self._tell = told, tell
        self._heard: Cadence | None = None

    def due(self, step: int) -> bool:
        """Whether it is time to save at ``step``, or a milestone was passed since the last save."""
        if self._on_its_way and not self._saver.busy:
            self._on_its_way = False
            self._learn(self._now() - self._at)
        self._heed(self._told())
        return self._passed_milestone(step) or self._now() - self._at >= self._every

    def _passed_milestone(self, step: int) -> bool:
        every = self._milestone_every
        return every > 0 and step // every > self._step // every

    def _learn(self, upload: float) -> None:
        """Choose the interval anew from what the last save cost."""
        if self._cadence is None:
            return
        cost = self._saver.cost
        self._cost = SaveCost(stall=cost.stall, upload=upload, blocks=cost.blocks)
        best = interval_of(self._cadence, self._cost)
        if abs(best - self._every) > CHANGE * self._every:
            log.info(
                "saving every %.0f s from now on: a save stops training %.3f s and takes %.1f s",
                best,
                cost.stall,
                upload,
            )
            self._every = best
        self._tell(Saving(every=self._every, cost=self._cost))

    def _heed(self, told: Cadence | None) -> None:
        """Choose it anew for what the service says of evictions and prices."""
        if told is None or self._planned is None or told == self._heard:
            return
        if self._cost is None:
            self._every = rescaled(self._at_first, self._planned, told)
        else:
            self._every = interval_of(told, self._cost)
        self._cadence = self._heard = told
        log.info(
            "saving every %.0f s from now on: %.3g evictions an hour, %.0f %% answered",
            self._every,
            told.evictions_per_hour,
            100 * told.answered,
        )
        self._tell(Saving(every=self._every, cost=self._cost))

    def periodic(self, state: State, *, congested: bool) -> None:
        """Save, or wait for a later step while earlier saves are still on their way."""
        if congested:
            if not self._waiting:
                log.warning("step %d: earlier saves are on their way, not saving", state.step)
            self._waiting = True
            return
        self._save(state, randomness.capture(), "periodic")

    def at_stop(self, state: State, boundary: Randomness) -> None:
        """Save the boundary, unless it was saved or loaded; room or not."""
        if state.step != self._step:
            self._save(state, boundary, "stop")

    def _save(self, state: State, at: Randomness, kind: str) -> None:
        self._saver.save(state, at, kind)
        self._step, self._at, self._waiting = state.step, self._now(), False
        self._on_its_way = True
