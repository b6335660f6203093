"""Send steps to MLflow's REST API; the job's run has a tag for the job and one for its last step.

https://mlflow.org/docs/latest/api_reference/rest-api.html
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Self

import httpx

from contract.figures import JOB_TAG, STEP_TAG, workspace_address
from service.domain.states import JobState
from service.trackers.tracker import Point, TrackerError, TrackerRun
from service.trackers.workspace import EntraSignIn, page_of_run

API = "/api/2.0/mlflow"
MAX_METRICS = 1000  # per log-batch request
_RUN = re.compile(r"/runs/([^/?]+)")  # in the address of a run
_TIMEOUT = httpx.Timeout(20.0)
_ENDED = {
    JobState.SUCCEEDED: "FINISHED",
    JobState.FAILED: "FAILED",
    JobState.CANCELLED: "KILLED",
}


@dataclass(frozen=True, kw_only=True)
class Mlflow:
    """One tracking server. The address may hold a user and a password."""

    client: httpx.AsyncClient
    sign_in: EntraSignIn | None = None  # of the server of an Azure ML workspace
    interval: timedelta = timedelta(seconds=15)
    block_steps: int = 1

    @classmethod
    def at(cls, uri: str, token: str, transport: httpx.AsyncBaseTransport | None = None) -> Self:
        """Return the tracker at ``uri``; ``token``: a bearer token, "" for none."""
        url = httpx.URL(uri.rstrip("/"))
        client = httpx.AsyncClient(
            base_url=url.copy_with(username=None, password=None),  # httpx logs URLs
            auth=(url.username, url.password) if url.username else None,
            headers={"authorization": f"Bearer {token}"} if token else {},
            timeout=_TIMEOUT,
            transport=transport,
        )
        return cls(client=client)

    @classmethod
    def of_workspace(
        cls, uri: str, sign_in: EntraSignIn, transport: httpx.AsyncBaseTransport | None = None
    ) -> Self:
        """Return the tracker of the workspace at ``uri``; closes the credential of ``sign_in``."""
        url = workspace_address(uri)
        client = httpx.AsyncClient(
            base_url=url, auth=sign_in, timeout=_TIMEOUT, transport=transport
        )
        return cls(client=client, sign_in=sign_in)

    async def send(self, run: TrackerRun, points: Sequence[Point]) -> str:
        """See the protocol."""
        mlflow_run = await self._find_known_run(run) or await self._run(run)
        run_id, tags = mlflow_run["info"]["run_id"], mlflow_run["data"].get("tags", [])
        last = next((int(tag["value"]) for tag in tags if tag["key"] == STEP_TAG), 0)
        for batch in _batches([point for point in points if point.step > last]):
            await self._call("POST", "runs/log-batch", json={"run_id": run_id, **_body(batch)})
        if run.outcome:
            ended = {"run_id": run_id, "status": _ENDED[run.outcome]}
            if points:
                ended["end_time"] = _milliseconds(points[-1].at)
            await self._call("POST", "runs/update", json=ended)
        return self._address(mlflow_run["info"]["experiment_id"], run_id)

    async def check(self) -> None:
        """Raise TrackerError unless the server answers and takes the sign-in."""
        await self._call("POST", "experiments/search", json={"max_results": 1})

    async def close(self) -> None:
        """Close connections, and the credential."""
        await self.client.aclose()
        if self.sign_in:
            await self.sign_in.credential.close()

    def _address(self, experiment: str, run_id: str) -> str:
        base = self.client.base_url
        if self.sign_in:
            return page_of_run(base, run_id)
        return f"{str(base).rstrip('/')}/#/experiments/{experiment}/runs/{run_id}"

    async def _find_known_run(self, run: TrackerRun) -> dict[str, Any] | None:
        """Return the run by its id. A search may answer from an index that lags behind."""
        match = _RUN.search(run.url or "")
        if not match:
            return None
        params = {"run_id": match[1]}
        response = await self._call("GET", "runs/get", params=params, absent=True)
        return dict(response["run"]) if response else None

    async def _experiment(self, name: str) -> str:
        params = {"experiment_name": name}
        response = await self._call("GET", "experiments/get-by-name", params=params, absent=True)
        if response:
            return str(response["experiment"]["experiment_id"])
        created = await self._call("POST", "experiments/create", json={"name": name})
        return str(created["experiment_id"])

    async def _run(self, run: TrackerRun) -> dict[str, Any]:
        experiment = await self._experiment(run.options["experiment"])
        job_filter = f"tags.{JOB_TAG} = '{run.job_id}'"  # Azure ML documents no quoted names
        search = {"experiment_ids": [experiment], "filter": job_filter, "max_results": 1}
        response = await self._call("POST", "runs/search", json=search)
        if runs := response.get("runs"):
            return dict(runs[0])
        body = {
            "experiment_id": experiment,
            "run_name": run.options["run_name"] or run.job_id,
            "start_time": _milliseconds(run.started_at),
            "tags": _tags({**run.options["tags"], JOB_TAG: run.job_id}),
        }
        return dict((await self._call("POST", "runs/create", json=body))["run"])

    async def _call(
        self,
        method: str,
        path: str,
        *,
        absent: bool = False,
        **kwargs: Any,  # noqa: ANN401
    ) -> dict[str, Any]:
        """Return the answer; an error shows its status and code, and never its text."""
        try:
            answer = await self.client.request(method, f"{API}/{path}", **kwargs)
        except (httpx.HTTPError, httpx.InvalidURL, ValueError) as fault:
            raise TrackerError(f"MLflow did not answer {path}: {type(fault).__name__}") from None
        body = _read(answer)
        code = "and no JSON object" if body is None else body.get("error_code", "")
        if absent and answer.status_code == httpx.codes.NOT_FOUND and body is not None:
            return {}
        if not answer.is_success or body is None:
            raise TrackerError(
                f"MLflow answered {path} with {answer.status_code} {code!s:.60}".rstrip()
            )
        return body


def _read(answer: httpx.Response) -> dict[str, Any] | None:
    """Return the JSON object of the answer; None if it is something else."""
    try:
        body = answer.json() if answer.content else {}
    except ValueError:
        return None
    return body if isinstance(body, dict) else None


def _batches(points: Sequence[Point]) -> Iterator[list[Point]]:
    """Yield batches of whole steps with ``MAX_METRICS`` figures at most."""
    batch: list[Point] = []
    for point in points:
        if batch and sum(len(p.values) for p in batch) + len(point.values) > MAX_METRICS:
            yield batch
            batch = []
        batch.append(point)
    if batch:
        yield batch


def _body(batch: Sequence[Point]) -> dict[str, Any]:
    metrics = [
        {
            "key": name,
            "value": float(value),
            "timestamp": _milliseconds(point.at),
            "step": point.step,
        }
        for point in batch
        for name, value in point.values.items()
    ]
    return {"metrics": metrics, "tags": _tags({STEP_TAG: str(batch[-1].step)})}


def _tags(tags: dict[str, str]) -> list[dict[str, str]]:
    return [{"key": key, "value": value} for key, value in tags.items()]


def _milliseconds(at: float) -> int:
    return int(1000 * at)
