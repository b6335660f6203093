"""Open pages without a browser: their event streams, and the requests after each event."""

import asyncio
import json
from typing import Any, Self

import httpx

JOBS = "/v1/fine_tuning/jobs"
MAX_POINTS = 2000


class Pages:
    """Simulated pages; half show the list of jobs, half show one job that trains."""

    def __init__(self, api: httpx.AsyncClient, job: str, count: int) -> None:
        self._api, self._job, self._count = api, job, count
        self._tasks: list[asyncio.Task[None]] = []
        self.received = 0  # events

    async def __aenter__(self) -> Self:
        limits = httpx.Limits(max_connections=None)
        self._http = httpx.AsyncClient(
            base_url=self._api.base_url,
            headers=self._api.headers,
            limits=limits,
            timeout=None,  # noqa: S113 - a stream has no end
            trust_env=False,
        )
        half = self._count // 2
        pages = [self._watch_list() for _ in range(half)]
        pages += [self._watch_job() for _ in range(self._count - half)]
        self._tasks = [asyncio.create_task(page) for page in pages]
        return self

    async def __aexit__(self, *_: object) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._http.aclose()

    async def _watch_list(self) -> None:
        async with self._http.stream("GET", f"{JOBS}/stream") as answer:
            async for line in answer.aiter_lines():
                self.received += line.startswith("data:")

    async def _watch_job(self) -> None:
        """Request the new metrics rows after each step, as the job page does."""
        step = 0
        async with self._http.stream("GET", f"{JOBS}/{self._job}/stream") as answer:
            async for line in answer.aiter_lines():
                if not line.startswith("data: {"):
                    continue
                self.received += 1
                message: dict[str, Any] = json.loads(line.removeprefix("data: "))
                newest = message.get("data", {}).get("progress", {}).get("step", step)
                if newest > step:
                    query = {"from_step": step + 1, "max_points": MAX_POINTS}
                    step = newest
                    await self._http.get(f"{JOBS}/{self._job}/metrics", params=query)
