"""How the Python client waits for a job: long polls, and a service that is away for a while."""

import time

from openai import APIConnectionError, APIError, APIStatusError, RequestOptions, Timeout

AWAY_SECONDS = 1800.0  # as long as nodes train on without the service, by its default
POLL_SECONDS = 30.0
BETWEEN_LOOKS = 1.0
BETWEEN_TRIES = 2.0
_MARGIN_SECONDS = 15.0  # for an answer to arrive; the service keeps 5 of them to itself
_BUSY = (429, 502, 503, 504)


class Patience:
    """Times of one wait, in seconds of the monotonic clock."""

    def __init__(self, job_id: str, timeout: float | None = None) -> None:
        self._job_id = job_id
        self._answered_at = time.monotonic()
        self._asked = float("-inf")
        self._until = None if timeout is None else self._answered_at + timeout

    def poll(self, version: int) -> RequestOptions:
        """Options of the next long poll; raise TimeoutError when the time is up.

        Its own time-out replaces the client's, which may be too short for a long poll, and by
        default is so long that a dead connection would go unnoticed for ten minutes.
        """
        left = self._shortened(POLL_SECONDS)
        if left <= 0:
            raise TimeoutError(
                f"Job {self._job_id} is not over yet. It goes on; wait again to follow it."
            )
        self._asked = time.monotonic()
        timeout = Timeout(left + _MARGIN_SECONDS, connect=5.0)
        query = {"wait": left, "version": version}
        return {"params": query, "timeout": timeout, "max_retries": 0}

    def pause(self) -> float:
        """Seconds until the next look: the service may answer at once although nothing is new."""
        return self._shortened(max(BETWEEN_LOOKS - (time.monotonic() - self._asked), 0.0))

    def reset(self) -> None:
        """Count the outage from now: the service has answered."""
        self._answered_at = time.monotonic()

    def pause_after(self, error: APIError) -> float:
        """Seconds until the next try; raise ``error`` unless the service is only away."""
        away = isinstance(error, APIConnectionError) or (
            isinstance(error, APIStatusError) and error.status_code in _BUSY
        )
        if not away or time.monotonic() - self._answered_at > AWAY_SECONDS:
            raise error
        return self._shortened(BETWEEN_TRIES)

    def _shortened(self, seconds: float) -> float:
        if self._until is None:
            return seconds
        return max(min(seconds, self._until - time.monotonic()), 0.0)
