"""Decide when calls to a failing region pause, and when it is probed again. Pure."""

from dataclasses import dataclass, replace
from datetime import datetime, timedelta

FAILURES = 5  # in a row, then the circuit opens
PROBE = timedelta(seconds=40)  # time of the one replica that probes; more than a call takes
_SHORTEST, _LONGEST = timedelta(seconds=5), timedelta(minutes=5)
FAR = 2 * _LONGEST  # an end that is further ahead was written by a replica whose clock is wrong


@dataclass(frozen=True, kw_only=True)
class Circuit:
    """The failures of a region since its last answer."""

    failures: int = 0  # in a row
    shut_until: datetime | None = None  # None: closed; else only a probe may call there

    def is_shut(self, now: datetime) -> bool:
        """Return whether no call is made there now."""
        return self.shut_until is not None and now < self.shut_until <= now + FAR


def after_failure(circuit: Circuit, now: datetime, jitter: float) -> Circuit:
    """Return the circuit after one more failure.

    The pause doubles with each failure, from 5 s to 5 minutes. ``jitter``, in [0, 1), scales it by
    0.5 to 1.5, so that regions are not tried all at once.
    """
    failures = circuit.failures + 1
    if failures < FAILURES:
        return replace(circuit, failures=failures)
    pause = min(_SHORTEST * 2 ** min(failures - FAILURES, 10), _LONGEST)
    return Circuit(failures=failures, shut_until=now + pause * (0.5 + jitter))
