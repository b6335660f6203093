"""Where Azure Machine Learning answers, and what it does in every step."""

from emulator.aml import clusters, computes, removal, versions, workspaces
from emulator.aml.assets import PROVIDER, WORKSPACE
from emulator.aml.command_jobs import history, jobs, preemption, runs
from emulator.arm import operations
from emulator.fabric import Fabric
from emulator.parts import GROUP, SUBSCRIPTION, AzurePart

LOCATION = f"{SUBSCRIPTION}/providers/{PROVIDER}/locations/{{location}}"
ONE = f"{GROUP}/providers/{WORKSPACE}/{{workspace}}"
COMPUTE = ONE + "/computes/{compute}"
JOB = ONE + "/jobs/{job}"
VERSIONED = (ONE + "/environments", ONE + "/models")
HISTORY = "/history/v1.0" + ONE
RUN = HISTORY + "/runs/{job}"


def tend(fabric: Fabric, now: float) -> bool:
    """Carry jobs and clusters one step forward; what moved is looked at again at once."""
    moved = [
        removal.advance_deletions(fabric, now),  # first: what is going gets nothing new
        runs.advance(fabric, now),
        clusters.tend(fabric, now),
    ]
    if any(moved):
        fabric.changed()
    return any(moved)


PART = AzurePart(
    arm=[
        ("GET", f"{SUBSCRIPTION}/providers/{WORKSPACE}", workspaces.list_all),
        ("GET", f"{GROUP}/providers/{WORKSPACE}", workspaces.list_all),
        ("GET", ONE, workspaces.get),
        ("PUT", ONE, workspaces.put),
        ("PATCH", ONE, workspaces.patch),
        ("DELETE", ONE, workspaces.delete),
        ("GET", ONE + "/computes", computes.list_all),
        ("GET", COMPUTE, computes.get),
        ("PUT", COMPUTE, computes.put),
        ("PATCH", COMPUTE, computes.patch),
        ("DELETE", COMPUTE, computes.delete),
        ("POST", COMPUTE + "/listNodes", computes.list_nodes),
        ("GET", ONE + "/jobs", jobs.list_all),
        ("GET", JOB, jobs.get),
        ("PUT", JOB, jobs.put),
        ("POST", JOB + "/cancel", jobs.cancel),
        *[("GET", kind, versions.list_all) for kind in VERSIONED],
        *[("GET", kind + "/{name}", versions.get_container) for kind in VERSIONED],
        *[("GET", kind + "/{name}/versions", versions.list_versions) for kind in VERSIONED],
        *[("GET", kind + "/{name}/versions/{version}", versions.get) for kind in VERSIONED],
        *[("PUT", kind + "/{name}/versions/{version}", versions.put) for kind in VERSIONED],
        *[("DELETE", kind + "/{name}/versions/{version}", versions.delete) for kind in VERSIONED],
        ("GET", LOCATION + "/computeOperationsStatus/{operation}", operations.poll),
        ("GET", LOCATION + "/computeOperationsResults/{operation}", computes.result),
        ("GET", LOCATION + "/workspaceOperationsStatus/{operation}", operations.poll),
        ("GET", LOCATION + "/workspaceOperationsResults/{operation}", computes.result),
        ("GET", LOCATION + "/mfeOperationResults/{operation}", jobs.cancel_result),
        ("GET", LOCATION + "/vmSizes", computes.sizes),
        ("GET", LOCATION + "/usages", computes.usages),
        ("GET", "/discovery", workspaces.discovery),
        ("GET", RUN, history.run),
        ("PATCH", HISTORY + "/experiments/{experiment}/runs/{job}", history.change),
        ("GET", RUN + "/details", history.details),
        ("GET", "/azureml-logs/{guid}/user_logs/{file}", history.log),
    ],
    admin=[
        ("POST", "/_emulator/azureml/preempt", preemption.preempt),
        ("POST", "/_emulator/azureml/silence", preemption.silence),
    ],
    chores=[tend],
)
