"""Waiting for a job with long polls, through outages of the service."""

import time

from openai import APIConnectionError, APIError, APIStatusError, RequestOptions, Timeout

AWAY_SECONDS = 1800.0  # nodes keep training without the service for as long, by default
POLL_SECONDS = 30.0
BETWEEN_LOOKS = 1.0
BETWEEN_TRIES = 2.0
_MARGIN_SECONDS = 15.0  # for the response to arrive; the service uses up to 5 of them
_BUSY = (429, 502, 503, 504)


class JobPoller:
    """Deadlines of one wait, in seconds of the monotonic clock."""

    def __init__(self, job_id: str, timeout: float | None = None) -> None:
        self._job_id = job_id
        self._answered_at = time.monotonic()
        self._asked = float("-inf")
        self._until = None if timeout is None else self._answered_at + timeout

    def poll(self, version: int) -> RequestOptions:
        """Return options of the next long poll; raise TimeoutError after the caller's timeout.

        Its own timeout replaces the client's, which may be too short for a long poll; by default
        it is so long that a dead connection would go unnoticed for ten minutes.
        """
        left = self._shortened(POLL_SECONDS)
        if left <= 0:
            raise TimeoutError(
                f"Job {self._job_id} has not ended yet. It continues; call wait again to follow it."
            )
        self._asked = time.monotonic()
        timeout = Timeout(left + _MARGIN_SECONDS, connect=5.0)
        query = {"wait": left, "version": version}
        return {"params": query, "timeout": timeout, "max_retries": 0}

    def pause(self) -> float:
        """Return the seconds to the next poll, if the service answered at once without news."""
        return self._shortened(max(BETWEEN_LOOKS - (time.monotonic() - self._asked), 0.0))

    def reset(self) -> None:
        """Restart the outage timer: the service has answered."""
        self._answered_at = time.monotonic()

    def pause_after(self, error: APIError) -> float:
        """Return the seconds to the next try; raise ``error`` unless it is a short outage."""
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
