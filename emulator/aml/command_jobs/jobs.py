"""Command jobs as ARM sees them: submit, show, cancel, delete. `runs` carries them out."""

from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from emulator.aml.assets import (
    JOB,
    PROVIDER,
    find_workspace,
    lookup,
    lookup_part,
    of_type,
    part_id,
    private,
    properties,
    region,
    resource_as_json,
    user_error,
)
from emulator.aml.command_jobs import runs
from emulator.aml.command_jobs.job_forms import change, new
from emulator.arm.front_door import base_url, fabric_of, page, read_json
from emulator.core.state import ResourceRow

PATH = "jobs/{job}"


async def put(request: Request) -> Response:
    """Submit a job, or change the description of one that there is."""
    fabric, id_ = fabric_of(request), part_id(request, PATH)
    submission = (await read_json(request)).get("properties")
    if not isinstance(submission, dict):
        raise user_error(400, "A job needs properties.")
    if old := lookup(fabric, id_):
        old = change(fabric, old, submission)
        fabric.changed()
        return JSONResponse(_body(old))
    job = fabric.state.put(new(fabric, id_, submission))
    fabric.changed()
    return JSONResponse(_body(job), status_code=201)


async def get(request: Request) -> Response:
    """Show one."""
    return JSONResponse(_body(find(request)))


async def list_all(request: Request) -> Response:
    """List those of the workspace, the newest first; archived ones only if asked for."""
    rows = of_type(fabric_of(request), JOB, find_workspace(request))
    view = request.query_params.get("listViewType", "ActiveOnly").lower()
    rows = [r for r in rows if view == "all" or _archived(r) is (view == "archivedonly")]
    if tag := request.query_params.get("tag"):
        rows = [r for r in rows if tag in (properties(r).get("tags") or {})]
    rows.sort(key=lambda job: -job.created_at)
    return page(request, [_body(r) for r in rows])


async def cancel(request: Request) -> Response:
    """Begin to end a job; one that is over stays as it is."""
    fabric, job = fabric_of(request), find(request)
    runs.request_cancel(fabric, job, fabric.now())
    fabric.changed()
    return _cancelled(request, fabric.state.now(job))


async def cancel_result(request: Request) -> Response:
    """Answer the Location of a cancellation: nothing, once the job is over."""
    guid = request.path_params["operation"].rpartition(":")[2]
    rows = of_type(fabric_of(request), JOB)
    matches = [job for job in rows if private(job)["guid"] == guid]
    return _cancelled(request, matches[0]) if matches else Response(status_code=200)


def find(request: Request) -> ResourceRow:
    """Return the job that the path names, or raise ArmError."""
    if (job := lookup_part(request, PATH)) is None:
        raise user_error(404, f"Could not find job {request.path_params['job']}.")
    return job


def _archived(job: ResourceRow) -> bool:
    return bool(properties(job)["isArchived"])


def _cancelled(request: Request, job: ResourceRow) -> Response:
    if properties(job)["status"] != "CancelRequested":
        return Response(status_code=200)
    scope = f"/subscriptions/{job.id.split('/')[2]}/providers/{PROVIDER}/locations/{region(job)}"
    url = f"{base_url(request)}{scope}/mfeOperationResults/jc:{private(job)['guid']}"
    query = f"?api-version={request.query_params['api-version']}"
    return Response(status_code=202, headers={"Location": url + query, "Retry-After": "1"})


def _body(job: ResourceRow) -> dict[str, Any]:
    workspace = "/".join(job.id.split("/")[:9])
    studio = f"https://ml.azure.com/runs/{job.name}?wsid={workspace}"
    services = {"Studio": {"jobServiceType": "Studio", "endpoint": studio, "port": None}}
    return resource_as_json(job, services=services)
