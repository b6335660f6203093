"""OpenAI's Python clients, extended with Rekindle's calls.

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
from typing import Any, cast

from openai import APIError, AsyncOpenAI, OpenAI, RequestOptions
from openai._legacy_response import HttpxBinaryResponseContent
from openai.resources.fine_tuning import jobs as openai_jobs

from rekindle.cli.connection import ConnectionOptions, ServiceConnection, resolve_connection
from rekindle.cli.formats import FINAL_STATUSES
from rekindle.polling import JobPoller
from rekindle.responses import CostOverview, JobAttempt, JobAttemptList, PlacementPlan, RekindleJob

_JOBS = "/fine_tuning/jobs"
_LOG_POLL_SECONDS = 2.0  # seconds between two polls of a log
_OPTIONS = {  # options of OpenAI's calls, and their names in the client's own methods
    "extra_headers": "headers",
    "extra_query": "params",
    "extra_body": "extra_json",
    "timeout": "timeout",
}
_IDEMPOTENCY = "Idempotency-Key"
# Keeps a character that two responses share.
_new_decoder = partial(codecs.getincrementaldecoder("utf-8"), errors="replace")


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
        **options: Any,  # noqa: ANN401 - OpenAI's own
    ) -> None:
        connection = _find_service(api_key, base_url)
        super().__init__(api_key=connection.key, base_url=connection.url, **options)
        self._idempotency_header = _IDEMPOTENCY

    @cached_property
    def jobs(self) -> "JobsResource":
        """Jobs with their plans, costs, attempts and logs."""
        return JobsResource(self)


class AsyncClient(AsyncOpenAI):
    """OpenAI's asynchronous client of a Rekindle service."""

    def __init__(
        self,
        *,
        api_key: str | None = None,
        base_url: str | None = None,
        **options: Any,  # noqa: ANN401 - OpenAI's own
    ) -> None:
        connection = _find_service(api_key, base_url)
        super().__init__(api_key=connection.key, base_url=connection.url, **options)
        self._idempotency_header = _IDEMPOTENCY

    @cached_property
    def jobs(self) -> "AsyncJobsResource":
        """Jobs with their plans, costs, attempts and logs."""
        return AsyncJobsResource(self)


class JobsResource(openai_jobs.Jobs):
    """OpenAI's calls for jobs, and Rekindle's; each raises OpenAI's errors."""

    def plan(self, *, model: str, training_file: str, **members: Any) -> PlacementPlan:  # noqa: ANN401
        """Plan a job and create nothing. Members are those of the request for a job."""
        body, options = _request_body(model, training_file, members), _call_options(members)
        url = "/fine_tuning/plans"
        return self._client.post(url, body=body, options=options, cast_to=PlacementPlan)

    def create(self, *, model: str, training_file: str, **members: Any) -> RekindleJob:  # noqa: ANN401
        """Create a job; ``plan`` may name a plan of the same request."""
        body, options = _request_body(model, training_file, members), _call_options(members)
        return self._client.post(_JOBS, body=body, options=options, cast_to=RekindleJob)

    def retrieve(self, fine_tuning_job_id: str, **options: Any) -> RekindleJob:  # noqa: ANN401
        """Return the job as it is now."""
        url = f"{_JOBS}/{fine_tuning_job_id}"
        return self._client.get(url, options=_call_options(options), cast_to=RekindleJob)

    def cost(self, job_id: str) -> CostOverview:
        """Return what the job has cost and will cost."""
        return self._client.get(f"{_JOBS}/{job_id}/cost", cast_to=CostOverview)

    def attempts(self, job_id: str) -> list[JobAttempt]:
        """Return the job's attempts, oldest first."""
        return self._client.get(f"{_JOBS}/{job_id}/attempts", cast_to=JobAttemptList).data

    def wait(
        self,
        job_id: str,
        *,
        timeout: float | None = None,
        on_change: Callable[[RekindleJob], None] | None = None,
    ) -> RekindleJob:
        """Return the job once it has ended or paused; raise TimeoutError after ``timeout`` seconds.

        A paused job continues after it is resumed; see its ``phase`` and ``status_reason``.
        ``on_change`` gets the job at every change. The service may be unreachable for half an
        hour. Ctrl-C stops waiting; the job continues.
        """
        poller = JobPoller(job_id, timeout)
        job = self.retrieve(job_id)
        while not _is_settled(job):
            time.sleep(poller.seconds_to_next_poll())
            options = poller.next_poll_options(job.version)
            try:
                latest = self._client.get(f"{_JOBS}/{job_id}", options=options, cast_to=RekindleJob)
            except APIError as error:
                time.sleep(poller.seconds_to_retry(error))
                continue
            poller.record_answer()
            if on_change and latest.version != job.version:
                on_change(latest)
            job = latest
        return job

    def logs(
        self, job_id: str, *, attempt: str | None = None, rank: int = 0, follow: bool = False
    ) -> Iterator[str]:
        """Yield the output of a rank; with ``follow``, until its attempt ends."""
        offset, complete, decoder, poller = 0, False, _new_decoder(), JobPoller(job_id)
        while not complete:
            try:
                response = self._client.get(
                    f"{_JOBS}/{job_id}/logs",
                    options={"params": _log_query(attempt, rank, offset)},
                    cast_to=HttpxBinaryResponseContent,
                )
            except APIError as error:
                if not follow:
                    raise
                time.sleep(poller.seconds_to_retry(error))
                continue
            poller.record_answer()
            text = decoder.decode(response.content)
            offset, complete = _log_position(response)
            if response.content:
                yield text
            elif not follow:
                return
            elif not complete:
                time.sleep(_LOG_POLL_SECONDS)


class AsyncJobsResource(openai_jobs.AsyncJobs):
    """The same calls as `JobsResource`, asynchronous."""

    async def plan(self, *, model: str, training_file: str, **members: Any) -> PlacementPlan:  # noqa: ANN401
        """Plan a job and create nothing. Members are those of the request for a job."""
        body, options = _request_body(model, training_file, members), _call_options(members)
        url = "/fine_tuning/plans"
        return await self._client.post(url, body=body, options=options, cast_to=PlacementPlan)

    async def create(self, *, model: str, training_file: str, **members: Any) -> RekindleJob:  # noqa: ANN401
        """Create a job; ``plan`` may name a plan of the same request."""
        body, options = _request_body(model, training_file, members), _call_options(members)
        return await self._client.post(_JOBS, body=body, options=options, cast_to=RekindleJob)

    async def retrieve(self, fine_tuning_job_id: str, **options: Any) -> RekindleJob:  # noqa: ANN401
        """Return the job as it is now."""
        url = f"{_JOBS}/{fine_tuning_job_id}"
        return await self._client.get(url, options=_call_options(options), cast_to=RekindleJob)

    async def cost(self, job_id: str) -> CostOverview:
        """Return what the job has cost and will cost."""
        return await self._client.get(f"{_JOBS}/{job_id}/cost", cast_to=CostOverview)

    async def attempts(self, job_id: str) -> list[JobAttempt]:
        """Return the job's attempts, oldest first."""
        page = await self._client.get(f"{_JOBS}/{job_id}/attempts", cast_to=JobAttemptList)
        return page.data

    async def wait(
        self,
        job_id: str,
        *,
        timeout: float | None = None,  # noqa: ASYNC109 - as the synchronous client has it
        on_change: Callable[[RekindleJob], None] | None = None,
    ) -> RekindleJob:
        """Return the job once it has ended or paused; raise TimeoutError after ``timeout`` seconds.

        A paused job continues after it is resumed; see its ``phase`` and ``status_reason``.
        ``on_change`` gets the job at every change. The service may be unreachable for half an
        hour. Cancelling the task stops waiting; the job continues.
        """
        poller = JobPoller(job_id, timeout)
        job = await self.retrieve(job_id)
        while not _is_settled(job):
            await asyncio.sleep(poller.seconds_to_next_poll())
            options = poller.next_poll_options(job.version)
            try:
                latest = await self._client.get(
                    f"{_JOBS}/{job_id}", options=options, cast_to=RekindleJob
                )
            except APIError as error:
                await asyncio.sleep(poller.seconds_to_retry(error))
                continue
            poller.record_answer()
            if on_change and latest.version != job.version:
                on_change(latest)
            job = latest
        return job

    async def logs(
        self, job_id: str, *, attempt: str | None = None, rank: int = 0, follow: bool = False
    ) -> AsyncIterator[str]:
        """Yield the output of a rank; with ``follow``, until its attempt ends."""
        offset, complete, decoder, poller = 0, False, _new_decoder(), JobPoller(job_id)
        while not complete:
            try:
                response = await self._client.get(
                    f"{_JOBS}/{job_id}/logs",
                    options={"params": _log_query(attempt, rank, offset)},
                    cast_to=HttpxBinaryResponseContent,
                )
            except APIError as error:
                if not follow:
                    raise
                await asyncio.sleep(poller.seconds_to_retry(error))
                continue
            poller.record_answer()
            text = decoder.decode(response.content)
            offset, complete = _log_position(response)
            if response.content:
                yield text
            elif not follow:
                return
            elif not complete:
                await asyncio.sleep(_LOG_POLL_SECONDS)


def _find_service(api_key: str | None, base_url: object) -> ServiceConnection:
    """Find the service; ``base_url`` is text, or the URL object of a copied client."""
    url = None if base_url is None else str(base_url)
    return resolve_connection(ConnectionOptions(url=url, key=api_key), os.environ, Path.cwd())


def _request_body(model: str, training_file: str, members: dict[str, Any]) -> dict[str, Any]:
    """Return the request for a job."""
    job_members = {name: value for name, value in members.items() if name not in _OPTIONS}
    return {"model": model, "training_file": training_file, **job_members}


def _call_options(members: dict[str, Any]) -> RequestOptions:
    """Return the options of OpenAI's call among the members of the request."""
    options = {_OPTIONS[name]: value for name, value in members.items() if name in _OPTIONS}
    return cast("RequestOptions", options)


def _is_settled(job: RekindleJob) -> bool:
    """Return whether the job has ended or paused."""
    return job.status in FINAL_STATUSES or job.phase == "paused"


def _log_query(attempt: str | None, rank: int, offset: int) -> dict[str, object]:
    query: dict[str, object] = {"rank": rank, "offset": offset}
    return query | ({"attempt": attempt} if attempt else {})


def _log_position(response: HttpxBinaryResponseContent) -> tuple[int, bool]:
    """Return the next offset of the log, and whether the log is complete."""
    headers = response.response.headers
    return int(headers["x-next-offset"]), headers["x-log-complete"] == "true"
