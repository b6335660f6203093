"""OpenAI's Python clients with Rekindle's calls beside them.

    from rekindle import Client

    client = Client()
    plan = client.jobs.plan(model="Qwen/Qwen3-8B", training_file=file.id)
    job = client.jobs.create(model="Qwen/Qwen3-8B", training_file=file.id, plan=plan.id)
    job = client.jobs.wait(job.id)

Everything of ``openai.OpenAI`` works unchanged. Requests that create something carry an idempotency
key, so a retry after a lost answer creates no second job.
"""

import asyncio
import codecs
import os
import time
from collections.abc import AsyncIterator, Callable, Iterator
from functools import cached_property, partial
from pathlib import Path
from typing import Any

from openai import AsyncOpenAI, OpenAI
from openai._legacy_response import HttpxBinaryResponseContent

from rekindle.answers import Attempt, AttemptList, Cost, Job, Plan
from rekindle.cli.connection import Asked, Connection, connect

OVER = ("succeeded", "failed", "cancelled")
_JOBS = "/fine_tuning/jobs"
_LONG_POLL = 30.0  # seconds
_LOG_PAUSE = 2.0  # seconds between two looks at a log that is followed
_IDEMPOTENCY = "Idempotency-Key"
_decoder = partial(codecs.getincrementaldecoder("utf-8"), errors="replace")  # across two answers


class Client(OpenAI):
    """OpenAI's client of a Rekindle service.

    Without arguments it finds the service as the command line does: REKINDLE_URL and
    REKINDLE_API_KEY, OPENAI_BASE_URL and OPENAI_API_KEY, or the local stack.
    """

    def __init__(
        self,
        *,
        api_key: str | None = None,
        base_url: str | None = None,
        **more: Any,  # noqa: ANN401 - OpenAI's own
    ) -> None:
        found = _found(api_key, base_url)
        super().__init__(api_key=found.key, base_url=found.url, **more)
        self._idempotency_header = _IDEMPOTENCY

    @cached_property
    def jobs(self) -> "Jobs":
        """Jobs with their plans, costs, attempts and logs."""
        return Jobs(self)


class AsyncClient(AsyncOpenAI):
    """The same for asyncio."""

    def __init__(
        self,
        *,
        api_key: str | None = None,
        base_url: str | None = None,
        **more: Any,  # noqa: ANN401 - OpenAI's own
    ) -> None:
        found = _found(api_key, base_url)
        super().__init__(api_key=found.key, base_url=found.url, **more)
        self._idempotency_header = _IDEMPOTENCY

    @cached_property
    def jobs(self) -> "AsyncJobs":
        """Jobs with their plans, costs, attempts and logs."""
        return AsyncJobs(self)


class Jobs:
    """Calls of the synchronous client. Each raises OpenAI's errors."""

    def __init__(self, client: Client) -> None:
        self._client = client

    def plan(self, *, model: str, training_file: str, **members: object) -> Plan:
        """Plan a job and create nothing. Members are those of the request for a job."""
        body = {"model": model, "training_file": training_file, **members}
        return self._client.post("/fine_tuning/plans", body=body, cast_to=Plan)

    def create(self, *, model: str, training_file: str, **members: object) -> Job:
        """Create a job; ``plan`` may name a plan of the same request."""
        body = {"model": model, "training_file": training_file, **members}
        return self._client.post(_JOBS, body=body, cast_to=Job)

    def retrieve(self, job_id: str) -> Job:
        """Return the job as it is now."""
        return self._client.get(f"{_JOBS}/{job_id}", cast_to=Job)

    def cost(self, job_id: str) -> Cost:
        """Return what the job has cost and will cost."""
        return self._client.get(f"{_JOBS}/{job_id}/cost", cast_to=Cost)

    def attempts(self, job_id: str) -> list[Attempt]:
        """Return every hold on machines, oldest first."""
        return self._client.get(f"{_JOBS}/{job_id}/attempts", cast_to=AttemptList).data

    def wait(
        self,
        job_id: str,
        *,
        timeout: float | None = None,
        on_change: Callable[[Job], None] | None = None,
    ) -> Job:
        """Return the job once it is over; raise TimeoutError after ``timeout`` seconds.

        ``on_change`` gets the job whenever something changed.
        """
        until = None if timeout is None else time.monotonic() + timeout
        job = self.retrieve(job_id)
        while job.status not in OVER:
            left = _left(job_id, until, time.monotonic())
            query = {"wait": left, "version": job.version}
            news = self._client.get(f"{_JOBS}/{job_id}", options={"params": query}, cast_to=Job)
            if on_change and news.version != job.version:
                on_change(news)
            job = news
        return job

    def logs(
        self, job_id: str, *, attempt: str | None = None, rank: int = 0, follow: bool = False
    ) -> Iterator[str]:
        """Yield what a rank printed; with ``follow`` until its attempt is over."""
        offset, complete, decoder = 0, False, _decoder()
        while not complete:
            response = self._client.get(
                f"{_JOBS}/{job_id}/logs",
                options={"params": _log_query(attempt, rank, offset)},
                cast_to=HttpxBinaryResponseContent,
            )
            text = decoder.decode(response.content)
            offset, complete = _place(response)
            if response.content:
                yield text
            elif not follow:
                return
            elif not complete:
                time.sleep(_LOG_PAUSE)


class AsyncJobs:
    """The same calls of the asynchronous client."""

    def __init__(self, client: AsyncClient) -> None:
        self._client = client

    async def plan(self, *, model: str, training_file: str, **members: object) -> Plan:
        """Plan a job and create nothing. Members are those of the request for a job."""
        body = {"model": model, "training_file": training_file, **members}
        return await self._client.post("/fine_tuning/plans", body=body, cast_to=Plan)

    async def create(self, *, model: str, training_file: str, **members: object) -> Job:
        """Create a job; ``plan`` may name a plan of the same request."""
        body = {"model": model, "training_file": training_file, **members}
        return await self._client.post(_JOBS, body=body, cast_to=Job)

    async def retrieve(self, job_id: str) -> Job:
        """Return the job as it is now."""
        return await self._client.get(f"{_JOBS}/{job_id}", cast_to=Job)

    async def cost(self, job_id: str) -> Cost:
        """Return what the job has cost and will cost."""
        return await self._client.get(f"{_JOBS}/{job_id}/cost", cast_to=Cost)

    async def attempts(self, job_id: str) -> list[Attempt]:
        """Return every hold on machines, oldest first."""
        found = await self._client.get(f"{_JOBS}/{job_id}/attempts", cast_to=AttemptList)
        return found.data

    async def wait(
        self,
        job_id: str,
        *,
        timeout: float | None = None,  # noqa: ASYNC109 - as the synchronous client has it
        on_change: Callable[[Job], None] | None = None,
    ) -> Job:
        """Return the job once it is over; raise TimeoutError after ``timeout`` seconds.

        ``on_change`` gets the job whenever something changed.
        """
        until = None if timeout is None else time.monotonic() + timeout
        job = await self.retrieve(job_id)
        while job.status not in OVER:
            left = _left(job_id, until, time.monotonic())
            query = {"wait": left, "version": job.version}
            news = await self._client.get(
                f"{_JOBS}/{job_id}", options={"params": query}, cast_to=Job
            )
            if on_change and news.version != job.version:
                on_change(news)
            job = news
        return job

    async def logs(
        self, job_id: str, *, attempt: str | None = None, rank: int = 0, follow: bool = False
    ) -> AsyncIterator[str]:
        """Yield what a rank printed; with ``follow`` until its attempt is over."""
        offset, complete, decoder = 0, False, _decoder()
        while not complete:
            response = await self._client.get(
                f"{_JOBS}/{job_id}/logs",
                options={"params": _log_query(attempt, rank, offset)},
                cast_to=HttpxBinaryResponseContent,
            )
            text = decoder.decode(response.content)
            offset, complete = _place(response)
            if response.content:
                yield text
            elif not follow:
                return
            elif not complete:
                await asyncio.sleep(_LOG_PAUSE)


def _found(api_key: str | None, base_url: str | None) -> Connection:
    return connect(Asked(url=base_url, key=api_key), os.environ, Path.cwd())


def _left(job_id: str, until: float | None, now: float) -> float:
    """Seconds of the next long poll; raise TimeoutError when there are none."""
    left = _LONG_POLL if until is None else min(_LONG_POLL, until - now)
    if left <= 0:
        raise TimeoutError(f"Job {job_id} is not over yet. It goes on; wait again to follow it.")
    return left


def _log_query(attempt: str | None, rank: int, offset: int) -> dict[str, object]:
    query: dict[str, object] = {"rank": rank, "offset": offset}
    return query | ({"attempt": attempt} if attempt else {})


def _place(response: HttpxBinaryResponseContent) -> tuple[int, bool]:
    """Where to go on in the log, and whether it is complete."""
    headers = response.response.headers
    return int(headers["x-next-offset"]), headers["x-log-complete"] == "true"
