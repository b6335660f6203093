"""Clocks of a node (wall and monotonic), its time limits, and deadlines."""

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
    """Wall and monotonic clock; tests pass their own."""

    now: Callable[[], float] = time.time
    monotonic: Callable[[], float] = time.monotonic


@dataclass(frozen=True, kw_only=True)
class NodeLimits:
    """Time limits on a node, in seconds."""

    # Bytes a second during training; a third of an ND A100 v4's network without InfiniBand.
    upload_rate: float = 0.9e9
    ingress: float = STORAGE_INGRESS  # bytes a second that the account takes of all nodes together

    heartbeat: float = HEARTBEAT_SECONDS
    long_poll: float = LONG_POLL_SECONDS
    log_flush: float = LOG_FLUSH_SECONDS
    notice_poll: float = 0.5
    poll_interval: float = 0.25  # between two reads of the run folder
    retry: float = 10.0  # longest back-off
    delayed: float = 10.0  # failing uploads are reported after this time
    outage: float = 300.0  # of Blob, before a generation that wants to start gives up
    save: float = 120.0  # the trainer's, from the stop flag to its end
    notice: float = 30.0  # Azure's least, when a notice names no time
    save_margin: float = 5.0  # the trainer is killed this long before the eviction
    upload_margin: float = 3.0  # uploads are cancelled this long before the eviction
    uploads: float = 600.0  # of a trainer that ended well
    uploads_after_kill: float = 45.0  # all of it within the service's patience after `stop`, 60
    peers: float = 60.0  # for the peers' part of a save, once ours is uploaded
    peers_after_kill: float = 10.0  # enough for a restarted supervisor to be back

    def ingress_share(self, nodes: int) -> float:
        """Return bytes a second for each node: beyond its limit an account answers 503."""
        return self.ingress / nodes


class ServiceTime:
    """The service's time, as far as a node can tell: all reported times use it.

    A node's wall clock may be hours off or jump. The service's time of the last quick answer is
    carried on by the monotonic clock; before the first answer the wall clock is used.
    """

    def __init__(self, clock: NodeClock) -> None:
        self._clock = clock
        self._offset: float | None = None  # of the service's time, to the monotonic clock

    def record_answer(self, *, sent: float, now: float) -> None:
        """Record that the service's time is ``now``; slow answers are used only at first."""
        received = self._clock.monotonic()
        if self._offset is None or received - sent < QUICK_ANSWER_SECONDS:
            self._offset = now - (sent + received) / 2

    def now(self) -> float:
        """Return unix seconds by the service's clock."""
        if self._offset is None:
            return self._clock.now()
        return self._clock.monotonic() + self._offset

    def from_wall_clock(self, wall: float) -> float:
        """Convert a recent time of this node's wall clock to the service's."""
        return wall + self.now() - self._clock.now()


class StopDeadline:
    """The time after which the node stops unless it hears from the service.

    Only the span ``stop_by - now`` of an answer counts, from the moment its request was sent, on
    our own monotonic clock: neither side's wall clock matters.
    """

    def __init__(self) -> None:
        self._request_sent_at = float("-inf")
        self._deadline = float("inf")

    def extend(self, *, sent: float, now: float, stop_by: float) -> None:
        """Set the deadline of an answer; answers to older requests change nothing."""
        if sent >= self._request_sent_at:
            self._request_sent_at, self._deadline = sent, sent + (stop_by - now)

    def has_passed(self, monotonic: float) -> bool:
        """Return whether the deadline has passed."""
        return monotonic >= self._deadline
