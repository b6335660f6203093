"""How long a training step takes, from when each was heard of."""

from collections import deque

REMEMBERED = 16


class Tempo:
    """The seconds of one step, over the last few."""

    def __init__(self) -> None:
        self._heard: deque[tuple[int, float]] = deque(maxlen=REMEMBERED)

    def heard(self, step: int, at: float) -> None:
        """The trainer has come to ``step`` by ``at`` (monotonic seconds)."""
        if not self._heard or step > self._heard[-1][0]:
            self._heard.append((step, at))

    @property
    def seconds(self) -> float | None:
        """Of one step; None as long as there were not two."""
        if len(self._heard) < 2:
            return None
        (first, began), (last, ended) = self._heard[0], self._heard[-1]
        return (ended - began) / (last - first)
