"""The nodes of clusters: instances of one scale set per cluster, in a hidden group.

So an Azure ML node is a VM like any other: quota, capacity, evictions and meters know it.
"""

from dataclasses import dataclass

from emulator.aml.assets import JOB, of_type, private, properties
from emulator.core.state import InstanceRow, ResourceRow, ScaleSetRow, scale_set_id
from emulator.fabric import Fabric

NODE_STATES = ("idle", "running", "preparing", "unusable", "leaving", "preempted")
GROUP = "azureml-nodes-"  # how the groups of hidden sets begin


@dataclass(frozen=True)
class ClusterNode:
    """One node of a cluster."""

    scale_set: ScaleSetRow
    instance: InstanceRow
    state: str  # one of NODE_STATES
    run: str | None  # the job that holds it

    @property
    def id(self) -> str:
        """Return its name to the workspace and to itself."""
        kind = "p" if self.spot else "d"
        return f"tvmps_{self.instance.vm_id.replace('-', '')}_{kind}"

    @property
    def spot(self) -> bool:
        """Return whether it can be evicted."""
        return self.scale_set.spot

    @property
    def is_present(self) -> bool:
        """Return whether it is or becomes a machine: a preempted one is only a name."""
        return self.state not in ("leaving", "unusable") and self.instance.phase != "deallocated"


def nodes(fabric: Fabric, compute: ResourceRow) -> list[ClusterNode]:
    """Return every node of the cluster, the oldest first."""
    if (scale_set := set_of(fabric, compute)) is None:
        return []
    holders = _job_by_instance(fabric, compute)
    deletions = fabric.operations(scale_set.key, "delete_instances")
    leaving = {name for deletion in deletions for name in deletion.instance_ids}
    cluster_nodes = []
    for name, instance in scale_set.instances.items():
        state = "leaving" if name in leaving else _state(fabric, instance, holders)
        cluster_nodes.append(ClusterNode(scale_set, instance, state, holders.get(name)))
    return cluster_nodes


def free_nodes(fabric: Fabric, compute: ResourceRow) -> list[ClusterNode]:
    """Return the nodes that a job can have."""
    return [n for n in nodes(fabric, compute) if n.state == "idle"]


def target_node_count(fabric: Fabric, compute: ResourceRow) -> int:
    """Return how many nodes the cluster wants, for its jobs and its minimum."""
    if compute.provisioning_state == "Deleting":
        return 0
    scale = properties(compute)["properties"]["scaleSettings"]
    count = sum(needed_node_count(job) for job in jobs(fabric, compute))
    return max(int(scale["minNodeCount"]), min(count, int(scale["maxNodeCount"])))


def allocation_state(fabric: Fabric, compute: ResourceRow) -> str:
    """Return Steady, or Resizing while nodes come and go."""
    moving = any(n.state in ("preparing", "leaving") for n in nodes(fabric, compute))
    short = sum(n.is_present for n in nodes(fabric, compute)) < target_node_count(fabric, compute)
    return "Resizing" if moving or short else "Steady"


def hidden_set_location(compute: ResourceRow) -> tuple[str, str]:
    """Return group and name of the hidden set; they differ for a later compute of this name."""
    mark = str(private(compute)["guid"])[:8]
    return f"{GROUP}{mark}", f"{compute.name}-{mark}"


def set_of(fabric: Fabric, compute: ResourceRow) -> ScaleSetRow | None:
    """Return the hidden set behind a cluster, once there is one."""
    key = scale_set_id(compute.subscription, *hidden_set_location(compute)).lower()
    return fabric.state.scale_sets.get(key)


def jobs(fabric: Fabric, compute: ResourceRow) -> list[ResourceRow]:
    """Return the jobs of a cluster that want or hold nodes."""
    return [
        job
        for job in of_type(fabric, JOB)
        if private(job)["compute"] == compute.key
        and (private(job)["nodes"] or properties(job)["status"] == "Queued")
    ]


def needed_node_count(job: ResourceRow) -> int:
    """Return how many nodes a job is to have; one that is being cancelled wants no others."""
    if properties(job)["status"] == "CancelRequested":
        return len(private(job)["nodes"])
    return int(properties(job)["resources"]["instanceCount"])


def _state(fabric: Fabric, instance: InstanceRow, holders: dict[str, str]) -> str:
    if instance.doom:
        return "leaving"
    if instance.eviction or instance.phase == "deallocated":
        return "preempted"
    if instance.phase == "creating" or not instance.booted:
        return "preparing"
    if not fabric.running(instance):
        return "unusable"
    return "running" if instance.instance_id in holders else "idle"


def _job_by_instance(fabric: Fabric, compute: ResourceRow) -> dict[str, str]:
    """Return the job that holds each instance."""
    rows = jobs(fabric, compute)
    return {name: job.name for job in rows for name in private(job)["nodes"]}
