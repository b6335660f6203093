"""Request bodies of Azure ML as azure-ai-ml 1.35.2 sends them, and their paths."""

from pathlib import Path
from typing import Any

import httpx

from tests.emulated.inside import HERE, Inside
from tests.emulated.process import GROUP

WORKSPACES = f"{HERE}/resourceGroups/{GROUP}/providers/Microsoft.MachineLearningServices/workspaces"
WORKSPACE = f"{WORKSPACES}/ws"
CLUSTER = f"{WORKSPACE}/computes/spot"
ENVIRONMENT = f"{WORKSPACE}/environments/train/versions/1"
IMAGE = "example/train:1"
JOBS = f"{WORKSPACE}/jobs"
OLD, NEW = {"api-version": "2023-08-01-preview"}, {"api-version": "2025-01-01-preview"}
REMOVAL = OLD | {"underlyingResourceAction": "Delete"}


def cluster(most: int = 2, least: int = 0, idle: str = "PT2M", **overrides: Any) -> dict[str, Any]:  # noqa: ANN401 - JSON
    """Return the body of AmlCompute(tier="low_priority")."""
    return {
        "location": "eastus",
        "properties": {
            "computeType": "AmlCompute",
            "properties": {
                "vmSize": "Standard_ND96amsr_A100_v4",
                "vmPriority": "LowPriority",
                "scaleSettings": {
                    "maxNodeCount": most,
                    "minNodeCount": least,
                    "nodeIdleTimeBeforeScaleDown": idle,
                },
                "remoteLoginPortPublicAccess": "NotSpecified",
                "enableNodePublicIp": True,
                "osType": "Linux",
            }
            | overrides,
            "disableLocalAuth": True,
        },
    }


def job(
    nodes: int = 1,
    processes: int = 1,
    command: str = "python train.py",
    **overrides: Any,  # noqa: ANN401 - JSON
) -> Any:  # noqa: ANN401 - JSON
    """Return the body of command(command=..., environment="train:1", compute="spot", ...)."""
    return {
        "properties": {
            "command": command,
            "computeId": CLUSTER,
            "properties": {},
            "isArchived": False,
            "inputs": {},
            "outputs": {},
            "environmentId": ENVIRONMENT,
            "distribution": {"processCountPerInstance": processes, "distributionType": "PyTorch"},
            "tags": {},
            "environmentVariables": {"COLOUR": "blue"},
            "resources": {"instanceCount": nodes, "properties": {}, "shmSize": "64g"},
            "jobType": "Command",
            "displayName": "a job",
            "experimentName": "trials",
        }
        | overrides
    }


async def make_workspace(inside: Inside, most: int = 2, **scale: Any) -> None:  # noqa: ANN401 - as cluster's
    """Create a workspace with an environment and a finished cluster."""
    for path, body in (
        (WORKSPACE, {"location": "eastus", "properties": {}}),
        (ENVIRONMENT, {"properties": {"image": IMAGE, "isAnonymous": False}}),
        (CLUSTER, cluster(most, **scale)),
    ):
        (await inside.arm.put(path, json=body, params=OLD)).raise_for_status()
    await inside.pass_time(4)


async def submit(inside: Inside, name: str, **overrides: Any) -> httpx.Response:  # noqa: ANN401 - as job's
    """Send a PUT of a job."""
    return await inside.arm.put(f"{JOBS}/{name}", json=job(**overrides), params=NEW)


async def status(inside: Inside, name: str) -> str:
    """Return the status of a job."""
    answer = (await inside.arm.get(f"{JOBS}/{name}", params=OLD)).json()
    return str(answer["properties"]["status"])


async def counts(inside: Inside) -> dict[str, int]:
    """Return the number of nodes in each state of the cluster, without zeros."""
    properties = (await inside.arm.get(CLUSTER, params=OLD)).json()["properties"]["properties"]
    return {k.removesuffix("NodeCount"): n for k, n in properties["nodeStateCounts"].items() if n}


async def evict(inside: Inside, instance: str = "", *, notice: bool = False) -> None:
    """Evict one node, or all of them."""
    machines = (await inside.metadata.get("/_emulator/virtualMachines")).json()["value"]
    for vm in machines:
        if instance in ("", vm["instance_id"]):
            body = {"scale_set": vm["scale_set"], "instance_id": vm["instance_id"]}
            body["notice"] = notice
            (await inside.metadata.post("/_emulator/evict", json=body)).raise_for_status()


def agent() -> Path:
    """Return the path of the program that nodes run."""
    return Path(__file__).parents[2] / "emulator" / "aml" / "agent.py"
