"""Jobs on existing clusters that an offering names: `SIZE@REGION:azureml=CLUSTER`.

Such a cluster is never made, changed or deleted here, and its other nodes are not ours. An attempt
is only the job of its name. The job itself says on which cluster it is, so it is found and ended
whatever the settings say by then. No record of a job can be deleted, so `delete` archives it: an
archived job that is over and that no node runs counts as gone.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

from azure.core.exceptions import HttpResponseError, ResourceNotFoundError

from service.cloud.azureml.views import (
    TERMINAL_STATUSES,
    cluster_name,
    idle_nodes,
    job_on_cluster,
    misfit,
    nodes_of,
    runs_on,
    status_of,
)
from service.cloud.provider import (
    OWNER_TAG,
    InsufficientCapacity,
    Misconfigured,
    ScaleSetNotFound,
)
from service.domain.cloud.fleet import (
    Offering,
    ScaleSet,
    ScaleSetFailure,
    ScaleSetSpec,
    scale_set_name,
)
from service.domain.performance.vm_catalogue import lookup
from service.domain.states import CapacityType


@dataclass(frozen=True)
class NamedClusters:
    """The jobs of one deployment on such clusters. Its calls block."""

    client: Any  # MLClient
    owner: str
    cluster_names: Mapping[Offering, str]

    def find_fitting_cluster(self, spec: ScaleSetSpec) -> str:
        """Return the name of the offering's cluster. Raise CloudError if it cannot run the job."""
        name = self.cluster_names[spec.offering]
        if fault := misfit(self._cluster(name), name, spec):
            kind, text = fault
            is_too_small = kind is ScaleSetFailure.NO_CAPACITY
            raise (InsufficientCapacity if is_too_small else Misconfigured)(text, "ClusterMisfit")
        return name

    def get(self, name: str) -> ScaleSet:
        """Return the job as a scale set. Raise ScaleSetNotFound once it is over and archived."""
        job, cluster, nodes = self._find_job_and_nodes(name)
        status = status_of(job)
        reason = self.failure_message(name) if status == "Failed" else ""
        errors = [] if status in TERMINAL_STATUSES else self.list_node_errors(cluster.name)
        return job_on_cluster(name, job, cluster, nodes, errors, reason)

    def list_scale_sets(self, clusters: Sequence[Any]) -> Iterator[ScaleSet]:
        """Yield our jobs that have nodes of named clusters; others cost nothing."""
        names = {name.lower() for name in self.cluster_names.values()}
        for cluster in (c for c in clusters if c.name.lower() in names):
            nodes = list(self.client.compute.list_nodes(cluster.name))
            for name in runs_on(nodes):
                job = self.find_job(name) if name.startswith(scale_set_name("")) else None
                if job is not None and (job.properties.tags or {}).get(OWNER_TAG) == self.owner:
                    scale_set = job_on_cluster(name, job, cluster)
                    yield replace(scale_set, capacity=len(nodes_of(nodes, name)))

    def delete(self, name: str) -> None:
        """Cancel and archive the job. Raise ScaleSetNotFound if it is gone.

        Whether Azure archives a job that still runs is not documented: the next call does it.
        """
        job, _, _ = self._find_job_and_nodes(name)
        if (status := status_of(job)) not in (*TERMINAL_STATUSES, "CancelRequested"):
            self.client.jobs.begin_cancel(name, polling=False)
        if not job.properties.is_archived:
            with suppress(*() if status in TERMINAL_STATUSES else (HttpResponseError,)):
                self.client.jobs.archive(name)

    def idle_cores(self, region: str) -> int:
        """Return the Spot cores of nodes that no job has."""
        return sum(
            self._idle(name) * sku.vcpus
            for offering, name in self.cluster_names.items()
            if offering.region == region and offering.capacity_type is CapacityType.SPOT
            if (sku := lookup(offering.vm_size))
        )

    def find_job(self, name: str) -> Any | None:  # noqa: ANN401 - JobBase
        """Return the job, or None. The client's own entity leaves out whether it is archived."""
        try:
            return self.client.jobs._get_job(name)  # noqa: SLF001
        except ResourceNotFoundError:
            return None

    def failure_message(self, name: str) -> str:
        """Return the error of a failed run. The client shows it to those who stream the logs."""
        error = self.client.jobs._runs_operations.get_run_details(name).error  # noqa: SLF001
        return str(error.error.message) if error else ""

    def list_node_errors(self, name: str) -> Sequence[Any]:
        """Return why nodes of a cluster did not come. The client's own entity leaves that out."""
        compute = self.client.compute
        resource = compute._operation.get(  # noqa: SLF001 - as above
            self.client.resource_group_name, self.client.workspace_name, name
        )
        return list(resource.properties.properties.errors or ())

    def _find_job_and_nodes(self, name: str) -> tuple[Any, Any, Sequence[object]]:
        """Return the job, its cluster and the nodes that run it, or raise ScaleSetNotFound."""
        job = self.find_job(name)
        if job is None or not is_on_named(job, name):
            raise ScaleSetNotFound(f"There is no cluster {cluster_name(name)}, and no job {name}.")
        if (job.properties.tags or {}).get(OWNER_TAG) != self.owner:
            raise Misconfigured(
                f"Job {name} lacks the tag {OWNER_TAG}={self.owner}. Give each deployment an owner"
                " name of its own and never change it."
            )
        cluster = self._cluster(_compute(job))
        if cluster is None:
            raise ScaleSetNotFound(f"The cluster {_compute(job)} of job {name} was deleted.")
        nodes = nodes_of(self.client.compute.list_nodes(cluster.name), name)
        if status_of(job) in TERMINAL_STATUSES and job.properties.is_archived and not nodes:
            raise ScaleSetNotFound(f"Job {name} is over, and no node runs it.")
        return job, cluster, nodes

    def _cluster(self, name: str) -> Any | None:  # noqa: ANN401 - AmlCompute
        try:
            return self.client.compute.get(name)
        except ResourceNotFoundError:
            return None

    def _idle(self, name: str) -> int:
        try:
            return idle_nodes(self.client.compute.list_nodes(name))
        except ResourceNotFoundError:
            return 0


def is_on_named(job: Any, name: str) -> bool:  # noqa: ANN401 - JobBase
    """Return whether the job runs on a cluster that was not made for it."""
    return _compute(job).lower() != cluster_name(name).lower()


def _compute(job: Any) -> str:  # noqa: ANN401 - JobBase
    return str(job.properties.compute_id or "").rpartition("/")[2]
