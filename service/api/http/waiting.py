"""ETag, If-None-Match, ?wait= and Prefer: wait, by an object's version."""

import asyncio
import re
from dataclasses import dataclass
from typing import Annotated

from fastapi import Header, Query

from service.api.deps import Parts
from service.db.core import notify
from service.db.jobs import job_versions as versions
from service.domain.errors import InvalidRequest

MAX_WAIT_SECONDS = 60.0
_MARGIN_SECONDS = 5.0  # for the answer to arrive before the client's own time-out
_RECHECK_SECONDS = 5.0  # notices may be lost; the version is also read this often
_WAIT = re.compile(r"(?:^|[,;\s])wait\s*=\s*\"?(\d+)", re.IGNORECASE)


@dataclass(frozen=True, kw_only=True)
class KnownVersions:
    """The versions that the caller has already, and how long it waits for a newer one."""

    versions: frozenset[int]
    waits: bool  # then the status is always 200: OpenAI's client takes a 304 for an error
    seconds: float

    def contains(self, version: int) -> bool:
        """Return whether the caller has this version already."""
        return version in self.versions


async def read_known_versions(
    wait: Annotated[
        float | None, Query(ge=0, description="Seconds to wait for news, at most 60.")
    ] = None,
    version: Annotated[int | None, Query(description="The version that you have.")] = None,
    prefer: Annotated[str | None, Header(description="wait=N, as `?wait=`.")] = None,
    if_none_match: Annotated[str | None, Header(description="An ETag that you have.")] = None,
    x_stainless_read_timeout: Annotated[str | None, Header(include_in_schema=False)] = None,
) -> KnownVersions:
    """Read the known versions and the waiting time from a request."""
    preferred = _WAIT.search(prefer or "")
    seconds = wait if wait is not None else float(preferred.group(1)) if preferred else 0.0
    known_versions = set(parse_etags(if_none_match))
    if version is not None:
        known_versions.add(version)
    return KnownVersions(
        versions=frozenset(known_versions),
        waits=wait is not None or preferred is not None,
        seconds=min(seconds, MAX_WAIT_SECONDS, _client_timeout(x_stainless_read_timeout)),
    )


async def wait_for_change(
    parts: Parts, job_id: str, project_id: str, known_versions: KnownVersions
) -> None:
    """Return once the job has another version than ``known_versions``, is gone, or time is up."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + known_versions.seconds
    with parts.drain.polling(versions.topic(job_id)) as changed:
        while (remaining_s := deadline - loop.time()) > 0 and not parts.drain.has_begun:
            async with parts.reading.connect() as conn:
                version = await versions.current(conn, job_id, project_id)
            if version is None or not known_versions.contains(version):
                return
            await notify.wait(changed, min(remaining_s, _RECHECK_SECONDS))


def etag(version: int) -> str:
    """Return the ETag of this version: weak, because costs grow without a new version."""
    return f'W/"{version}"'


def parse_etags(if_none_match: str | None) -> list[int]:
    """Return the versions in ETags of this service; others are ignored."""
    return [int(v) for v in re.findall(r'"(\d{1,18})"', if_none_match or "")]


def _client_timeout(read_timeout: str | None) -> float:
    """Return how many seconds OpenAI's client waits for an answer, by its own header."""
    try:
        return max(float(read_timeout or "inf") - _MARGIN_SECONDS, 0.0)
    except ValueError:
        raise InvalidRequest(
            f"x-stainless-read-timeout is {read_timeout!r}, but it is a number of seconds."
        ) from None
