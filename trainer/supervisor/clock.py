"""The two clocks of a node: the wall's, which others read too, and one that only goes forward."""

import time
from collections.abc import Callable
from dataclasses import dataclass

from trainer.contract import (
    HEARTBEAT_SECONDS,
    LOG_FLUSH_SECONDS,
    LONG_POLL_SECONDS,
    STORAGE_INGRESS,
)

QUICK_ANSWER_SECONDS = 1.0


@dataclass(frozen=True)
class NodeClock:
    """Made in main; tests hand in their own."""

    now: Callable[[], float] = time.time
    monotonic: Callable[[], float] = time.monotonic


@dataclass(frozen=True, kw_only=True)
class NodeLimits:
    """How long things may take on a node, in seconds."""

    # Bytes a second while it trains; a third of what an ND A100 v4 has beside InfiniBand.
    upload_rate: float = 0.9e9
    ingress: float = STORAGE_INGRESS  # bytes a second that the account takes of all nodes together

    heartbeat: float = HEARTBEAT_SECONDS
    long_poll: float = LONG_POLL_SECONDS
    log_flush: float = LOG_FLUSH_SECONDS
    notice_poll: float = 0.5
    pulse: float = 0.25  # between two looks at the run folder
    retry: float = 10.0  # longest back-off
    delayed: float = 10.0  # of failing uploads, before the user is told
    outage: float = 300.0  # of Blob, before a generation that wants to start gives up
    save: float = 120.0  # the trainer's, from the stop flag to its end
    notice: float = 30.0  # Azure's least, when a notice names no time
    save_margin: float = 5.0  # the trainer is killed this long before the machine goes
    upload_margin: float = 3.0  # uploads are given up this long before the machine goes
    uploads: float = 600.0  # of a trainer that ended well
    uploads_after_kill: float = 45.0  # all of it within the service's patience after `stop`, 60
    peers: float = 60.0  # for the peers' part of a save, once ours is uploaded
    peers_after_kill: float = 10.0  # a supervisor that was restarted is back within that

    def ingress_share(self, nodes: int) -> float:
        """Bytes a second for each of so many nodes: beyond its limit an account answers 503."""
        return self.ingress / nodes


class ServiceTime:
    """The service's time, as far as a node can tell: whatever others read is dated by it.

    A node's own wall clock may be hours off or jump. What an answer of the service said is
    carried on by the monotonic clock instead; before the first answer the wall's must do.
    """

    def __init__(self, clock: NodeClock) -> None:
        self._clock = clock
        self._ahead: float | None = None  # of the service's time, to the monotonic clock

    def heard(self, *, sent: float, now: float) -> None:
        """The service says that it is ``now``; quick answers are exact, slow ones a last resort."""
        received = self._clock.monotonic()
        if self._ahead is None or received - sent < QUICK_ANSWER_SECONDS:
            self._ahead = now - (sent + received) / 2

    def now(self) -> float:
        """Unix seconds by the service's clock."""
        if self._ahead is None:
            return self._clock.now()
        return self._clock.monotonic() + self._ahead

    def of(self, wall: float) -> float:
        """What the service's clock said when this node's wall clock said ``wall``, not long ago."""
        return wall + self.now() - self._clock.now()


class StopDeadline:
    """The moment after which the node stops by itself unless it hears from the service.

    Only the span ``stop_by - now`` of an answer counts, from the moment its request was
    sent, on our own monotonic clock: neither side's wall clock matters.
    """

    def __init__(self) -> None:
        self._sent = float("-inf")
        self._at = float("inf")

    def heard(self, *, sent: float, now: float, stop_by: float) -> None:
        """Take over what an answer says; one to an older request changes nothing."""
        if sent >= self._sent:
            self._sent, self._at = sent, sent + (stop_by - now)

    def passed(self, monotonic: float) -> bool:
        """True once the node is on its own for longer than it may."""
        return monotonic >= self._at
