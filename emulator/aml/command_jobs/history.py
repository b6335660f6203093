"""The run history of jobs, as far as `ml_client.jobs.stream` reads it: details and logs."""

from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response

from emulator.aml.assets import JOB, amend, of_type, private, properties
from emulator.aml.command_jobs import job_orders, jobs
from emulator.arm.front_door import base_url, fabric_of, read_json
from emulator.core.errors import ArmError
from emulator.core.state import ResourceRow
from emulator.core.timestamps import timestamp


async def run(request: Request) -> Response:
    """Show the run behind a job."""
    return _as_response(jobs.find(request))


async def change(request: Request) -> Response:
    """Describe a run anew, or archive it: so clients change a job that they have fetched."""
    fabric, job = fabric_of(request), jobs.find(request)
    body = await read_json(request)
    names = ("displayName", "description", "tags")
    changes = {name: body[name] for name in names if body.get(name) is not None}
    if isinstance(body.get("hidden"), bool):
        changes["isArchived"] = body["hidden"]
    job = amend(fabric, job, changes)
    fabric.changed()
    return _as_response(job)


async def details(request: Request) -> Response:
    """Show the state of a run: its times, its error, and the addresses of its logs."""
    fabric, job = fabric_of(request), jobs.find(request)
    logs = job_orders.folder(fabric, private(job)["guid"]) / "user_logs"
    start = f"{base_url(request)}/azureml-logs/{private(job)['guid']}/user_logs"
    names = sorted(file.name for file in logs.iterdir()) if logs.exists() else []
    return JSONResponse(
        {
            "runId": job.name,
            "target": str(private(job)["compute"]).rpartition("/")[2],
            "status": properties(job)["status"],
            "startTimeUtc": _time(job, "started_at"),
            "endTimeUtc": _time(job, "ended_at"),
            "error": {"error": private(job)["error"]} if private(job)["error"] else None,
            "warnings": _warnings(job),
            "logFiles": {f"user_logs/{name}": f"{start}/{name}" for name in names},
            "properties": properties(job)["properties"],
            "inputDatasets": [],
            "outputDatasets": [],
        }
    )


async def log(request: Request) -> Response:
    """Return a log file. Who knows the address may read it, as with a shared access signature."""
    fabric, names = fabric_of(request), request.path_params
    rows = [job for job in of_type(fabric, JOB) if private(job)["guid"] == names["guid"]]
    folder = job_orders.folder(fabric, names["guid"]) / "user_logs" if rows else None
    if folder is None or names["file"] not in {f.name for f in folder.glob("*")}:
        raise ArmError(404, "BlobNotFound", "The specified blob does not exist.")
    return PlainTextResponse((folder / names["file"]).read_text(errors="replace"))


def _as_response(job: ResourceRow) -> Response:
    return JSONResponse(
        {
            "runId": job.name,
            "rootRunId": job.name,
            "status": properties(job)["status"],
            "createdUtc": timestamp(job.created_at),
            "displayName": properties(job)["displayName"],
            "tags": properties(job)["tags"],
            "properties": properties(job)["properties"],
        }
    )


def _time(job: ResourceRow, member: str) -> str | None:
    at = private(job)[member]
    return None if at is None else timestamp(at)


def _warnings(job: ResourceRow) -> list[dict[str, str]]:
    restarts = private(job)["attempt"] - 1
    if not restarts:
        return []
    message = f"Nodes of this job got pre-empted; it was restarted {restarts} times."
    return [{"source": "AzureMLCompute", "message": message}]
