"""What is new about a job, by long polls; outlives a service that is away for a while."""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rekindle.cli import formats
from rekindle.cli.errors import Unreachable
from rekindle.cli.job_lookup import JOBS

if TYPE_CHECKING:
    from rekindle.cli.api_client import Client

Json = dict[str, Any]
POLL_SECONDS = 25.0
_PAGE = 100
_BETWEEN_LOOKS = 1.0  # where the service answers at once although nothing is new
_BETWEEN_TRIES = 2.0
TRIES = 5  # of the first look: later ones are repeated for as long as patience lasts
_PATIENCE = 1800.0  # as long as nodes train on without the service, by its default


@dataclass(frozen=True)
class News:
    """The job as it is now, and what happened since the last look, oldest first."""

    job: Json
    events: list[Json]


class Feed:
    """Follows one job until it is over."""

    def __init__(
        self,
        client: "Client",
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

    def news(self, on_away: Callable[[Unreachable], None]) -> Iterator[News]:
        """At once, then at every change; ends with the job.

        ``on_away`` hears of each try that failed. Raises Unreachable when the first look fails,
        or when the service stays away for half an hour.
        """
        yield (news := self._look())
        heard = time.monotonic()
        while not formats.is_over(news.job):
            asked = time.monotonic()
            try:
                news = self._look()
            except Unreachable as trouble:
                if time.monotonic() - heard > _PATIENCE:
                    raise
                on_away(trouble)
                time.sleep(_BETWEEN_TRIES)
                continue
            heard = time.monotonic()
            yield news
            time.sleep(max(_BETWEEN_LOOKS - (heard - asked), 0))

    def _look(self) -> News:
        """The job before its events: what happens in between is among both, or in the next look."""
        tries = TRIES if self._first else 1
        wait = self._poll_seconds if self._version is not None else 0
        query = {"wait": round(wait), "version": self._version} if wait else {}
        job = self._client.get(self._path, patience=wait, tries=tries, **query)
        events = self._events(tries)
        version = job.get("version")
        self._version = version if isinstance(version, int) else None
        self._first = False
        return News(job, events)

    def _events(self, tries: int) -> list[Json]:
        """Those after the last one seen, oldest first."""
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
