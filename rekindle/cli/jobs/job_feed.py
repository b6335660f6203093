"""Updates of a job by long polls, through short outages of the service."""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rekindle.cli import formats
from rekindle.cli.errors import ServiceUnreachable
from rekindle.cli.job_lookup import JOBS

if TYPE_CHECKING:
    from rekindle.cli.api_client import ApiClient

Json = dict[str, Any]
POLL_SECONDS = 25.0
_PAGE = 100
PAUSE_SECONDS = 1.0  # between two polls, if the service answers at once without a change
_RETRY_SECONDS = 2.0
TRIES = 5  # of the first poll; later polls retry for OUTAGE_SECONDS
OUTAGE_SECONDS = 1800.0  # seconds that nodes keep training without the service, by default


@dataclass(frozen=True)
class JobUpdate:
    """The job as it is now, and its events since the last update, oldest first."""

    job: Json
    events: list[Json]


class JobFeed:
    """Follows one job until it ends."""

    def __init__(
        self,
        client: "ApiClient",
        job_id: str,
        *,
        last_event: str | None = None,
        poll_seconds: float = POLL_SECONDS,
    ) -> None:
        self._client = client
        self._path = f"{JOBS}/{job_id}"
        self._last_event = last_event
        self._poll_seconds = poll_seconds
        self._version: int | None = None
        self._first = True

    def updates(self, on_outage: Callable[[ServiceUnreachable], None]) -> Iterator[JobUpdate]:
        """Yield an update now and at every change until the job ends.

        ``on_outage`` is called for each failed poll. Raises ServiceUnreachable if the first poll
        fails, or after half an hour without the service.
        """
        yield (update := self._read_update())
        answered_at = time.monotonic()
        while not formats.has_ended(update.job):
            polled_at = time.monotonic()
            try:
                update = self._read_update()
            except ServiceUnreachable as error:
                if time.monotonic() - answered_at > OUTAGE_SECONDS:
                    raise
                on_outage(error)
                time.sleep(_RETRY_SECONDS)
                continue
            answered_at = time.monotonic()
            yield update
            time.sleep(max(PAUSE_SECONDS - (answered_at - polled_at), 0))

    def _read_update(self) -> JobUpdate:
        """Read the job before its events, so that no event is missed."""
        tries = TRIES if self._first else 1
        wait = self._poll_seconds if self._version is not None else 0
        query = {"wait": round(wait), "version": self._version} if wait else {}
        job = self._client.get(self._path, response_seconds=wait, tries=tries, **query)
        events = self._read_new_events(tries)
        version = job.get("version")
        self._version = version if isinstance(version, int) else None
        self._first = False
        return JobUpdate(job, events)

    def _read_new_events(self, tries: int) -> list[Json]:
        """Return the events after the last one seen, oldest first."""
        unseen: list[Json] = []
        after: str | None = None
        while True:
            page = self._client.get(
                f"{self._path}/events", limit=_PAGE if unseen else 20, after=after, tries=tries
            )
            for event in page["data"]:
                if event["id"] == self._last_event:
                    return self._mark_seen(unseen)
                unseen.append(event)
            if not page.get("has_more"):
                return self._mark_seen(unseen)
            after = page["data"][-1]["id"]

    def _mark_seen(self, unseen: list[Json]) -> list[Json]:
        if unseen:
            self._last_event = unseen[0]["id"]
        return unseen[::-1]
