"""Time in the emulator: as fast as its settings say, and never back, also over restarts."""

from collections.abc import Callable
from dataclasses import dataclass

from emulator.core.rows import FrozenRow


@dataclass(frozen=True, slots=True)
class Anchor(FrozenRow):
    """The moment at which time was last set going."""

    real: float
    virtual: float
    speed: float

    def at(self, real: float) -> float:
        """Return the emulator's time; equal to the real time while it never ran faster."""
        return real + (self.virtual - self.real) + (self.speed - 1) * (real - self.real)


def resumed_time(old: Anchor | None, clock: Callable[[], float], speed: float) -> Anchor:
    """Time from now on. While the emulator was down it went on as fast as before."""
    real = clock()
    return Anchor(real, old.at(real) if old else real, speed)
