"""Waiting for a job with long polls, through outages of the service."""

import time

from openai import APIConnectionError, APIError, APIStatusError, RequestOptions, Timeout

OUTAGE_SECONDS = 1800.0  # nodes keep training without the service for as long, by default
POLL_SECONDS = 30.0
POLL_PAUSE_SECONDS = 1.0
RETRY_SECONDS = 2.0
_MARGIN_SECONDS = 15.0  # for the response to arrive; the service uses up to 5 of them
_BUSY = (429, 502, 503, 504)


class JobPoller:
    """Deadlines of one wait, in seconds of the monotonic clock."""

    def __init__(self, job_id: str, timeout: float | None = None) -> None:
        self._job_id = job_id
        self._answered_at = time.monotonic()
        self._polled_at = float("-inf")
        self._deadline = None if timeout is None else self._answered_at + timeout

    def next_poll_options(self, version: int) -> RequestOptions:
        """Return options of the next long poll; raise TimeoutError after the caller's timeout.

        Its own timeout replaces the client's, which may be too short for a long poll; by default
        it is so long that a dead connection would go unnoticed for ten minutes.
        """
        seconds = self._within_timeout(POLL_SECONDS)
        if seconds <= 0:
            raise TimeoutError(
                f"Job {self._job_id} has not ended yet. It continues; call wait again to follow it."
            )
        self._polled_at = time.monotonic()
        timeout = Timeout(seconds + _MARGIN_SECONDS, connect=5.0)
        query = {"wait": seconds, "version": version}
        return {"params": query, "timeout": timeout, "max_retries": 0}

    def seconds_to_next_poll(self) -> float:
        """Return the seconds to the next poll, if the service answered at once without news."""
        return self._within_timeout(
            max(POLL_PAUSE_SECONDS - (time.monotonic() - self._polled_at), 0.0)
        )

    def record_answer(self) -> None:
        """Restart the outage timer: the service has answered."""
        self._answered_at = time.monotonic()

    def seconds_to_retry(self, error: APIError) -> float:
        """Return the seconds to the next try; raise ``error`` unless it is a short outage."""
        is_outage = isinstance(error, APIConnectionError) or (
            isinstance(error, APIStatusError) and error.status_code in _BUSY
        )
        if not is_outage or time.monotonic() - self._answered_at > OUTAGE_SECONDS:
            raise error
        return self._within_timeout(RETRY_SECONDS)

    def _within_timeout(self, seconds: float) -> float:
        if self._deadline is None:
            return seconds
        return max(min(seconds, self._deadline - time.monotonic()), 0.0)
