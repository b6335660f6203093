"""What Azure ML accepts of a command job, and what it makes of it."""

import re
import uuid
from pathlib import Path
from typing import Any

from emulator.aml.assets import COMPUTE, JOB, amend, lookup, properties, region, user_error
from emulator.aml.command_jobs import job_orders
from emulator.aml.compute_forms import duration
from emulator.aml.versions import image_of
from emulator.core.state import ResourceRow
from emulator.core.timestamps import timestamp
from emulator.fabric import Fabric

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,254}")
CHANGEABLE = ("description", "displayName", "tags", "isArchived")
OBJECTS = (
    *("inputs", "outputs", "environmentVariables", "distribution", "resources", "limits"),
    *("tags", "properties"),
)
VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]*")
FIXED = ("command", "computeId", "environmentId")
DISTRIBUTIONS = ("PyTorch", "Mpi")


def change(fabric: Fabric, job: ResourceRow, submission: dict[str, Any]) -> ResourceRow:
    """Take over a new description; all else is fixed."""
    for name in FIXED:
        if name in submission and submission[name] != properties(job).get(name):
            raise user_error(
                400,
                "A job with this name already exists. If you are trying to create a new job, use "
                "a different name. If you are trying to update an existing job, the existing "
                f"job's {name} cannot be changed. Only description, displayName, tags, and "
                "isArchived can be updated.",
            )
    return amend(fabric, job, {name: submission[name] for name in CHANGEABLE if name in submission})


def new(fabric: Fabric, id_: str, submission: dict[str, Any]) -> ResourceRow:
    """Return a submitted job, or raise ArmError."""
    name = id_.rpartition("/")[2]
    if not NAME.fullmatch(name):
        raise user_error(400, f"Invalid job name '{name}': letters, digits, '_' and '-' only.")
    if submission.get("jobType") != "Command" or not str(submission.get("command") or "").strip():
        raise user_error(400, "The emulator runs jobs of the type Command, with a command.")
    _check_shape(submission)
    if submission.get("codeId"):
        raise user_error(400, "The emulator keeps no code: submit the job without a code folder.")
    workspace = "/".join(id_.split("/")[:9]).lower() + "/"  # its users may use no other
    compute = _compute(fabric, workspace, submission)
    environment = str(submission.get("environmentId") or "")
    guid, document = str(uuid.uuid4()), _as_json(submission, name)
    return ResourceRow(
        id=id_,
        type=JOB,
        location="",
        body={
            "properties": document,
            "private": {
                "guid": guid,
                "region": region(compute),
                "compute": compute.key,
                "image": image_of(fabric, workspace, environment),
                "command": _command(job_orders.folder(fabric, guid), document),
                "seconds": _limit(submission),
                "attempt": 1,
                "nodes": [],
                "ending": "",
                "exit_code": 0,
                "after_preemption": "Queued",  # or how `preemption` has it end then
                "silent_until": 0.0,
                "error": None,
                "started_at": None,
                "ended_at": None,
            },
            "systemData": {
                "createdAt": timestamp(fabric.now()),
                "createdBy": "emulator",
                "createdByType": "Application",
            },
        },
        created_at=fabric.now(),
    )


def _compute(fabric: Fabric, workspace: str, submission: dict[str, Any]) -> ResourceRow:
    id_ = str(submission.get("computeId") or "")
    compute = lookup(fabric, id_)
    if compute is None or compute.type != COMPUTE or not compute.key.startswith(workspace):
        raise user_error(400, f"AzureMLCompute cluster {id_.rpartition('/')[2]} does not exist")
    scale = properties(compute)["properties"]["scaleSettings"]
    count = _resources(submission)["instanceCount"]
    if not isinstance(count, int) or count < 1:
        raise user_error(400, "resources.instanceCount must be 1 or more.")
    if count > int(scale["maxNodeCount"]):
        raise user_error(
            400,
            f"The specified job requires {count} nodes, but the compute {compute.name} can have "
            f"{scale['maxNodeCount']} at most.",
        )
    return compute


def _resources(submission: dict[str, Any]) -> dict[str, Any]:
    resources = submission.get("resources") or {}
    return {"instanceCount": 1} | {k: v for k, v in resources.items() if v is not None}


def _limit(submission: dict[str, Any]) -> float | None:
    text = (submission.get("limits") or {}).get("timeout")
    return duration(text) if text else None


def _as_json(submission: dict[str, Any], name: str) -> dict[str, Any]:
    """Return the job as it is shown from its first moment on."""
    if submission.get("distribution") is not None:
        _check_distribution(submission["distribution"])
    defaults = {
        "displayName": name,
        "experimentName": "Default",
        "isArchived": False,
        "tags": {},
        "properties": {},
    }
    return (
        defaults
        | {k: v for k, v in submission.items() if v is not None}
        | {"resources": _resources(submission), "status": "Starting"}
    )


def _check_shape(submission: dict[str, Any]) -> None:
    """Refuse what has another form, and what no process could be started with."""
    for member in OBJECTS:
        if not isinstance(submission.get(member) or {}, dict):
            raise user_error(400, f"The {member} of a job must be an object.")
    variables = submission.get("environmentVariables") or {}
    if bad := next((name for name in variables if not VARIABLE.fullmatch(name)), None):
        raise user_error(400, f"Invalid name of an environment variable: '{bad}'.")
    if any("\0" in str(text) for text in (submission["command"], *variables.values())):
        raise user_error(400, "The command and the environment variables may have no NUL.")


def _check_distribution(distribution: dict[str, Any]) -> None:
    if distribution.get("distributionType") not in DISTRIBUTIONS:
        raise user_error(400, f"The emulator distributes as {' or '.join(DISTRIBUTIONS)} only.")
    count = distribution.get("processCountPerInstance", 1)
    if not isinstance(count, int) or count < 1:
        raise user_error(400, "distribution.processCountPerInstance must be 1 or more.")


def _command(folder: Path, job: dict[str, Any]) -> str:
    """Return the command with literal inputs, and outputs as folders that outlive the nodes."""
    text = str(job["command"])
    for name, row in (job.get("inputs") or {}).items():
        if not isinstance(row, dict) or row.get("jobInputType") != "literal":
            raise user_error(400, f"The emulator mounts no data: make the input {name} a literal.")
        text = text.replace(f"${{{{inputs.{name}}}}}", str(row.get("value")))
    for name in job.get("outputs") or {}:
        if not NAME.fullmatch(name):
            raise user_error(400, f"Invalid output name '{name}'.")
        output = folder / "outputs" / name
        output.mkdir(parents=True, exist_ok=True)
        text = text.replace(f"${{{{outputs.{name}}}}}", str(output))
    return text
