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

    def news(self, on_away: Callable[[ServiceUnreachable], None]) -> Iterator[JobUpdate]:
        """Yield an update now and at every change until the job ends.

        ``on_away`` is called for each failed poll. Raises ServiceUnreachable if the first poll
        fails, or after half an hour without the service.
        """
        yield (news := self._look())
        heard = time.monotonic()
        while not formats.has_ended(news.job):
            asked = time.monotonic()
            try:
                news = self._look()
            except ServiceUnreachable as trouble:
                if time.monotonic() - heard > OUTAGE_SECONDS:
                    raise
                on_away(trouble)
                time.sleep(_RETRY_SECONDS)
                continue
            heard = time.monotonic()
            yield news
            time.sleep(max(PAUSE_SECONDS - (heard - asked), 0))

    def _look(self) -> JobUpdate:
        """Read the job before its events, so that no event is missed."""
        tries = TRIES if self._first else 1
        wait = self._poll_seconds if self._version is not None else 0
        query = {"wait": round(wait), "version": self._version} if wait else {}
        job = self._client.get(self._path, patience=wait, tries=tries, **query)
        events = self._events(tries)
        version = job.get("version")
        self._version = version if isinstance(version, int) else None
        self._first = False
        return JobUpdate(job, events)

    def _events(self, tries: int) -> list[Json]:
        """Return the events after the last one seen, oldest first."""
        fresh: list[Json] = []
        after: str | None = None
        while True:
            page = self._client.get(
                f"{self._path}/events", limit=_PAGE if fresh else 20, after=after, tries=tries
            )
            for event in page["data"]:
                if event["id"] == self._last_event:
                    return self._seen(fresh)
                fresh.append(event)
            if not page.get("has_more"):
                return self._seen(fresh)
            after = page["data"][-1]["id"]

    def _seen(self, fresh: list[Json]) -> list[Json]:
        if fresh:
            self._last_event = fresh[0]["id"]
        return fresh[::-1]
