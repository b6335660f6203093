"""The two clocks of a node: the wall's, which others read too, and one that only goes forward."""

import time
from collections.abc import Callable
from dataclasses import dataclass

from trainer.contract import HEARTBEAT_SECONDS, LOG_FLUSH_SECONDS, LONG_POLL_SECONDS


@dataclass(frozen=True)
class Clock:
    """Made in main; tests hand in their own."""

    now: Callable[[], float] = time.time
    monotonic: Callable[[], float] = time.monotonic


@dataclass(frozen=True, kw_only=True)
class Limits:
    """How long things may take on a node, in seconds."""

    heartbeat: float = HEARTBEAT_SECONDS
    long_poll: float = LONG_POLL_SECONDS
    log_flush: float = LOG_FLUSH_SECONDS
    notice_poll: float = 1.0
    pulse: float = 0.25  # between two looks at the run folder
    retry: float = 10.0  # longest back-off
    outage: float = 300.0  # of Blob, before a generation that wants to start gives up
    save: float = 120.0  # the trainer's, from the stop flag to its end
    notice: float = 30.0  # Azure's least, when a notice names no time
    save_margin: float = 5.0  # the trainer is killed this long before the machine goes
    upload_margin: float = 3.0  # uploads are given up this long before the machine goes
    uploads: float = 600.0  # of a trainer that ended well
    uploads_after_kill: float = 60.0
    peers: float = 60.0  # for the peers' part of a save, once ours is uploaded
    peers_after_kill: float = 1.0


class StopBy:
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
