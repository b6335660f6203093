"""When to save: every so often while nothing is on its way, and at a stop if anything is new."""

import logging
from collections.abc import Callable

from trainer.checkpoint import randomness
from trainer.checkpoint.randomness import Randomness
from trainer.checkpoint.saver import Saver
from trainer.contract import Cadence, best_interval
from trainer.state import State

CHANGE = 0.25  # of the interval; less is not worth a word
log = logging.getLogger(__name__)


class Saves:
    """Remembers the last save; rank 0's clock alone says when the next one is due."""

    def __init__(
        self,
        saver: Saver,
        every_seconds: float,
        now: Callable[[], float],
        step: int,
        cadence: Cadence | None = None,
    ) -> None:
        self._saver, self._every, self._now = saver, every_seconds, now
        self._step, self._at = step, now()  # what is loaded counts as saved
        self._waiting = False
        self._cadence = cadence
        self._on_its_way = False

    def due(self) -> bool:
        """Whether it is time for a periodic save."""
        if self._on_its_way and not self._saver.busy:
            self._on_its_way = False
            self._learn(self._now() - self._at)
        return self._now() - self._at >= self._every

    def _learn(self, upload: float) -> None:
        """Choose the interval anew from what the last save cost."""
        if self._cadence is None:
            return
        cost = self._saver.cost
        best = best_interval(self._cadence, stall=cost.stall, upload=upload, blocks=cost.blocks)
        if abs(best - self._every) > CHANGE * self._every:
            log.info(
                "saving every %.0f s from now on: a save stops training %.3f s and takes %.1f s",
                best,
                cost.stall,
                upload,
            )
            self._every = best

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
