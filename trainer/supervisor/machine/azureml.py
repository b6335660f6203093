"""A node of a job in Azure Machine Learning, described by the job's environment.

Azure ML owns the container: the node's configuration is an environment variable, no disk outlives
the container, and there is no documented metadata service. After a preemption Azure ML starts the
same process again in a fresh container: to the service that is a new boot.
"""

import shutil
import socket
from collections.abc import MutableMapping
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import psutil

from trainer.contract import EvictionNotice
from trainer.supervisor.machine.metadata import MetadataError, VmInstance

CONFIG = "REKINDLE_NODE"  # the node's configuration, with its bootstrap token
# Below the job's own working directory, which lies on the node's local disk. Azure ML uploads
# outputs, logs and user_logs from there: MicrosoftDocs/azure-ai-docs, how-to-save-write-experiment.
WORK_DIR = "rekindle"
# Seconds from SIGTERM to the kill: docker's default (docs.docker.com, docker stop).
# Microsoft documents none for a cancelled job.
GRACE = 10.0
_SHM = Path("/dev/shm")  # noqa: S108 - saves lie in memory
_ENOUGH = 0.25  # share of the machine's memory; docker's default is 64 MB
_ANY_PORT = 9  # nothing is sent
# Batch names the node: MicrosoftDocs/azure-docs, batch-compute-node-environment-variables. The rest
# is the job's: MicrosoftDocs/azure-ai-docs, how-to-train-distributed-gpu.
_NODE, _RUN, _RANK, _MASTER = "AZ_BATCH_NODE_ID", "AZUREML_RUN_ID", "NODE_RANK", "MASTER_ADDR"
# torchrun sets its own ...
_PYTORCH = {
    *("MASTER_ADDR", "MASTER_PORT", "NODE_RANK"),
    *("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE"),
}
# ... and of the workspace, its tokens and the cluster's identity (AZUREML_RUN_TOKEN, MLFLOW_*,
# MSI_SECRET) no rank and no user's code is to know.
_AZURE = ("AZUREML_", "AZ_BATCH", "MLFLOW_", "MSI_", "IDENTITY_", "DEFAULT_IDENTITY_", "OBO_")


@dataclass(frozen=True, kw_only=True)
class JobNode:
    """Replacement for `Metadata` on a node of Azure ML, with the same methods."""

    config: str  # the node's configuration as JSON
    node_id: str  # as the workspace lists the cluster's nodes
    run: str  # the job's name
    rank: str
    master: str  # the address of the node of rank 0
    vm_size: str = ""  # set from the configuration

    async def instance(self) -> VmInstance:
        """Return this node's identity; raise MetadataError while the first node is unreachable."""
        if not self.node_id:
            raise MetadataError(f"{_NODE} is not set: Azure ML must say which node this is")
        try:
            address = _address_towards(self.master)
        except OSError as e:
            raise MetadataError(f"no way to {_MASTER}={self.master!r}: {e}") from e
        return VmInstance(
            vm_id=self.node_id,
            name=f"{self.run}_{self.rank}",
            address=address,
            vm_size=self.vm_size,
        )

    async def eviction(self, name: str, now: float) -> EvictionNotice | None:  # noqa: ARG002 - as Metadata.eviction
        """Return None: evictions come without notice here."""
        return None

    async def acknowledge(self, event_id: str) -> None:
        """Do nothing: there are no notices."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        """Do nothing: there is no connection."""


def take_job_environment(environment: MutableMapping[str, str]) -> JobNode | None:
    """Remove Azure ML's variables from the environment; None if this is no such job."""
    if CONFIG not in environment:
        return None
    get = environment.get
    job = JobNode(
        config=environment[CONFIG],
        node_id=get(_NODE, ""),
        run=get(_RUN, ""),
        rank=get(_RANK, get("RANK", "0")),
        master=get(_MASTER, ""),
    )
    names = [n for n in environment if n == CONFIG or n in _PYTORCH or n.startswith(_AZURE)]
    for name in names:
        del environment[name]
    return job


def find_memory_folder(shm: Path = _SHM, share: float = _ENOUGH) -> Path | None:
    """Return the folder in memory for saves; None where the job has too little of it."""
    try:
        size = shutil.disk_usage(shm).total
    except OSError:
        return None
    return shm / WORK_DIR if size >= share * psutil.virtual_memory().total else None


def _address_towards(peer: str) -> str:
    """Return the address by which this machine reaches another one."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.connect((peer, _ANY_PORT))
        return str(sock.getsockname()[0])
