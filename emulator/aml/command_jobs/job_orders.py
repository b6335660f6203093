"""What is said to the nodes of a job, through files in their VMs' folders.

All of it is harmless when repeated: the agent begins an order once.
"""

import json
import zlib
from pathlib import Path
from typing import Any

from emulator.aml.assets import private, properties
from emulator.aml.nodes import ClusterNode
from emulator.core.private_files import write_private
from emulator.core.state import InstanceRow, ResourceRow
from emulator.fabric import Fabric

FIRST_PORT, PORTS = 21_000, 9_000  # Azure uses 6105; here every job needs another


def write(fabric: Fabric, job: ResourceRow, nodes: list[ClusterNode]) -> None:
    """Order the job's processes from its nodes; what is ordered already stays."""
    if fabric.settings.hollow:
        return
    count = _processes(job)
    world = 1 if count is None else count * len(nodes)
    for rank, node in enumerate(nodes if count is not None else nodes[:1]):
        first = rank * (count or 0)
        file = _file(fabric, job, node.instance, "json")
        if file.exists():
            continue
        order = {
            "image": private(job)["image"],
            "command": private(job)["command"],
            "processes": [
                {
                    "log": str(_log(fabric, job, first + local, world)),
                    "environment": _environment(job, nodes, rank, local)
                    | {"AZUREML_CR_EXECUTION_WORKING_DIR_PATH": str(file.with_suffix(""))},
                }
                for local in range(count or 1)
            ],
        }
        file.parent.mkdir(parents=True, exist_ok=True)
        write_private(file, json.dumps(order).encode())  # what users give jobs is in it


def has_begun(fabric: Fabric, job: ResourceRow, nodes: list[ClusterNode]) -> bool:
    """Return whether every node that was ordered to do something does it, or did."""
    orders = [_file(fabric, job, node.instance, "json") for node in nodes]
    marks = [o.with_suffix(".begun") for o in orders if o.exists()]
    return all(mark.exists() for mark in marks)


def end(fabric: Fabric, job: ResourceRow, nodes: list[ClusterNode], how: str) -> None:
    """Have the job's processes end: ask them ("cancel"), or give them no time ("kill")."""
    for node in nodes:
        file = _file(fabric, job, node.instance, how)
        if file.with_suffix(".json").exists():
            file.touch()


def exit_codes(fabric: Fabric, job: ResourceRow, nodes: list[ClusterNode]) -> list[int | None]:
    """Return the exit code of every node that has orders; None while it carries them out."""
    codes: list[int | None] = []
    for node in nodes:
        done = _file(fabric, job, node.instance, "done")
        if done.with_suffix(".json").exists():
            codes.append(int(done.read_text()) if done.exists() else None)
    return codes


def refused_pull(fabric: Fabric, job: ResourceRow, nodes: list[ClusterNode]) -> str:
    """Return what the registry said if an image could not be pulled; else ""."""
    files = [_file(fabric, job, n.instance, "unpulled") for n in nodes]
    return next((f.read_text().strip() for f in files if f.exists()), "")


def folder(fabric: Fabric, guid: str) -> Path:
    """Return the folder of the logs and outputs of the job with this guid."""
    return fabric.settings.folder / "aml" / guid


def _file(fabric: Fabric, job: ResourceRow, node: InstanceRow, suffix: str) -> Path:
    name = f"{private(job)['guid']}-{private(job)['attempt']}.{suffix}"
    return fabric.folder(node) / "azureml" / name


def _log(fabric: Fabric, job: ResourceRow, rank: int, world: int) -> Path:
    logs = folder(fabric, private(job)["guid"]) / "user_logs"
    logs.mkdir(parents=True, exist_ok=True)
    if _processes(job) is None:
        return logs / "std_log.txt"
    return logs / f"std_log_process_{rank:0{len(str(world - 1))}}.txt"


def _processes(job: ResourceRow) -> int | None:
    """Return the processes per node; None for one process on the first node only."""
    distribution = properties(job).get("distribution")
    return int(distribution.get("processCountPerInstance") or 1) if distribution else None


def _environment(
    job: ResourceRow, nodes: list[ClusterNode], node_rank: int, local: int
) -> dict[str, str]:
    _, _, subscription, _, group, _, _, _, workspace, *_ = job.id.split("/")
    document = properties(job)
    addresses = [node.instance.address for node in nodes]
    # MicrosoftDocs/azure-docs, batch/batch-compute-node-environment-variables.md; microsoft/hi-ml.
    variables = {
        "AZ_BATCH_NODE_LIST": ";".join(addresses),
        "AZ_BATCH_HOST_LIST": ",".join(addresses),
        "AZ_BATCH_MASTER_NODE": f"{addresses[0]}:{_port(job)}",
        "AZ_BATCH_IS_CURRENT_NODE_MASTER": str(node_rank == 0).lower(),
        "AZ_BATCH_NODE_IS_DEDICATED": str(not nodes[0].spot).lower(),
        "AZUREML_CR_NODE_RANK": str(node_rank),
        "AZ_BATCH_NODE_ID": nodes[node_rank].id,
        "AZUREML_RUN_ID": job.name,
        "AZUREML_EXPERIMENT_NAME": document["experimentName"],
        "AZUREML_ARM_SUBSCRIPTION": subscription,
        "AZUREML_ARM_RESOURCEGROUP": group,
        "AZUREML_ARM_WORKSPACE_NAME": workspace,
        "AZUREML_NODE_COUNT": str(len(nodes)),
    }
    user = {k: str(v) for k, v in (document.get("environmentVariables") or {}).items()}
    count = _processes(job)
    return variables | user | (_ranks(job, nodes, node_rank, local, count) if count else {})


def _ranks(
    job: ResourceRow, nodes: list[ClusterNode], node_rank: int, local: int, count: int
) -> dict[str, str]:
    """Return the variables that torch.distributed and mpi4py read."""
    ranks: dict[str, Any] = {
        "MASTER_ADDR": nodes[0].instance.address,
        "MASTER_PORT": _port(job),
        "NODE_RANK": node_rank,
        "RANK": node_rank * count + local,
        "LOCAL_RANK": local,
        "WORLD_SIZE": count * len(nodes),
        "LOCAL_WORLD_SIZE": count,
    }
    if properties(job)["distribution"]["distributionType"] == "Mpi":
        ranks |= {
            "OMPI_COMM_WORLD_RANK": ranks["RANK"],
            "OMPI_COMM_WORLD_LOCAL_RANK": local,
            "OMPI_COMM_WORLD_SIZE": ranks["WORLD_SIZE"],
            "OMPI_COMM_WORLD_LOCAL_SIZE": count,
        }
    return {name: str(value) for name, value in ranks.items()}


def _port(job: ResourceRow) -> int:
    mark = f"{private(job)['guid']}-{private(job)['attempt']}"
    return FIRST_PORT + zlib.crc32(mark.encode()) % PORTS
