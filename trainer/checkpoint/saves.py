"""When to save: every so often while the outbox has room, and at a stop if anything is new."""

import logging
from collections.abc import Callable

from trainer.checkpoint import randomness
from trainer.checkpoint.randomness import Randomness
from trainer.checkpoint.saver import Saver
from trainer.state import State

log = logging.getLogger(__name__)


class Saves:
    """Remembers the last save; rank 0's clock alone says when the next one is due."""

    def __init__(
        self, saver: Saver, every_seconds: float, now: Callable[[], float], step: int
    ) -> None:
        self._saver, self._every, self._now = saver, every_seconds, now
        self._step, self._at = step, now()  # what is loaded counts as saved
        self._waiting = False

    def due(self) -> bool:
        """Whether it is time for a periodic save."""
        return self._now() - self._at >= self._every

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
