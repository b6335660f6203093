"""Fake of the MLflow calls that the service makes; a test compares it with a real server."""

import json
import re
from dataclasses import dataclass, field
from typing import Any

import httpx

from service.trackers.mlflow import API


@dataclass
class MlflowServer(httpx.AsyncBaseTransport):
    """Fake MLflow server that keeps every logged value, so that duplicates show."""

    experiments: dict[str, str] = field(default_factory=dict)  # id by name
    runs: dict[str, dict[str, Any]] = field(default_factory=dict)
    logged: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    requests: list[httpx.Request] = field(default_factory=list)
    status: int = 200  # status of all answers
    indexed: int | None = None  # number of runs that a search finds; None: all

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Answer one request."""
        self.requests.append(request)
        if self.status != 200:
            return httpx.Response(self.status, json={"error_code": "INTERNAL_ERROR"})
        name = request.url.path.partition(f"{API}/")[2].replace("/", "_").replace("-", "_")
        body = json.loads(await request.aread() or "{}") | dict(request.url.params)
        answer = getattr(self, f"_{name}")(body)
        return httpx.Response(200 if answer is not None else 404, json=answer or {})

    def _experiments_get_by_name(self, body: dict[str, Any]) -> dict[str, Any] | None:
        experiment_id = self.experiments.get(body["experiment_name"])
        return {"experiment": {"experiment_id": experiment_id}} if experiment_id else None

    def _experiments_search(self, body: dict[str, Any]) -> dict[str, Any]:
        experiments = [
            {"name": name, "experiment_id": id_} for name, id_ in self.experiments.items()
        ]
        return {"experiments": experiments[: body["max_results"]]}

    def _experiments_create(self, body: dict[str, Any]) -> dict[str, Any]:
        self.experiments[body["name"]] = experiment_id = str(len(self.experiments) + 1)
        return {"experiment_id": experiment_id}

    def _runs_search(self, body: dict[str, Any]) -> dict[str, Any]:
        match = re.fullmatch(r"tags\.(.+) = '(.+)'", body["filter"])
        assert match, body
        tag = {"key": match[1], "value": match[2]}
        indexed = list(self.runs.values())[: self.indexed]
        matches = [r for r in indexed if tag in r["data"]["tags"]]
        return {"runs": matches[: body["max_results"]]}

    def _runs_get(self, body: dict[str, Any]) -> dict[str, Any] | None:
        run = self.runs.get(body["run_id"])
        return {"run": run} if run else None

    def _runs_create(self, body: dict[str, Any]) -> dict[str, Any]:
        run_id = f"run{len(self.runs)}"
        info = {"run_id": run_id, "status": "RUNNING"} | {
            name: body[name] for name in ("run_name", "experiment_id")
        }
        self.runs[run_id] = {"info": info, "data": {"tags": body["tags"]}}
        return {"run": self.runs[run_id]}

    def _runs_log_batch(self, body: dict[str, Any]) -> dict[str, Any]:
        assert len(body["metrics"]) <= 1000
        self.logged.setdefault(body["run_id"], []).extend(body["metrics"])
        tags = {t["key"]: t for t in self.runs[body["run_id"]]["data"]["tags"] + body["tags"]}
        self.runs[body["run_id"]]["data"]["tags"] = list(tags.values())
        return {}

    def _runs_update(self, body: dict[str, Any]) -> dict[str, Any]:
        self.runs[body["run_id"]]["info"]["status"] = body["status"]
        return {}
