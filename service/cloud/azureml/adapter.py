"""Clusters in an Azure Machine Learning workspace, through azure-ai-ml.

An attempt is one command job, which runs one supervisor on each node of a cluster of its own. Where
its offering names a cluster, it is a job on that one: `named.py`. The client knows no
asyncio and is large: it is imported when it is needed, and its calls run in threads. No call waits:
its outcome is read from the workspace.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Collection, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, TypeVar

from azure.core.credentials import TokenCredential
from azure.core.exceptions import AzureError, ResourceNotFoundError

from service.cloud.azure.errors import translate_error
from service.cloud.azureml import job as azureml_job
from service.cloud.azureml.model_registry import RegisteredModel
from service.cloud.azureml.named import NamedClusters, is_on_named
from service.cloud.azureml.views import cluster, cluster_name, spot_cores, status_of
from service.cloud.provider import (
    OWNER_TAG,
    CloudError,
    Misconfigured,
    NoSerialLog,
)
from service.domain.cloud.fleet import Offering, ScaleSet, ScaleSetSpec, SpotCores, TaggedResource

CALL_SECONDS = 60.0  # for one verb, all its requests together
T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class Workspace:
    """Where clusters go, and what all of them have in common."""

    subscription_id: str
    resource_group: str
    name: str
    owner: str  # this deployment's name, the value of OWNER_TAG
    identity_id: str = ""  # user-assigned identity of the clusters, which pulls the image
    subnet_id: str = ""  # "{region}" in it stands for the cluster's region; "": Azure's own network
    clusters: Mapping[Offering, str] = field(default_factory=dict)  # existing ones to run on


class AzureMlCloud:
    """One workspace. Takes over ``credential`` and closes it."""

    def __init__(
        self,
        workspace: Workspace,
        credential: TokenCredential,
        *,
        base_url: str = "",  # of a private endpoint, e.g. the emulator's
        ca_path: str = "",  # trust this CA alone
        call_seconds: float = CALL_SECONDS,
    ) -> None:
        self._workspace = workspace
        self._credential = credential
        self._base_url = base_url
        self._ca_path = ca_path
        self._call_seconds = call_seconds

    async def create(self, spec: ScaleSetSpec) -> None:
        """Make the cluster, and once Azure has made it the job; each only where it is not there."""
        await self._do(f"create {spec.name}", lambda: self._create(spec))

    async def get(self, name: str) -> ScaleSet:
        """Return the cluster with its job and its nodes."""
        return await self._do(f"get {name}", lambda: self._get(name))

    async def list_owned(self) -> list[ScaleSet]:
        """List clusters with our owner tag, without nodes; and our jobs on named clusters."""
        return await self._do("list clusters", self._list)

    async def list_tagged(self) -> list[TaggedResource]:
        """Return nothing: what Azure ML makes beside clusters goes with them, or costs nothing."""
        return []

    async def refill(self, name: str, instance_count: int, useless: Collection[str] = ()) -> None:
        """Do nothing: Azure ML gives a job its nodes again, and starts it from its beginning."""

    async def delete(self, name: str) -> None:
        """Delete the cluster, which ends its job. On a named cluster: cancel the job."""
        await self._do(f"delete {name}", lambda: self._delete(name))

    async def serial_log(self, name: str, instance_id: str) -> bytes:
        """Raise NoSerialLog: Azure ML keeps none."""
        raise NoSerialLog(f"Azure ML keeps no serial log of {instance_id}: see its job {name}.")

    async def spot_cores(self, region: str) -> SpotCores:
        """Return the region's quota of low-priority cores of clusters."""
        location = region.partition("/")[0]
        return await self._do(f"usages of {location}", lambda: self._spot_cores(location))

    async def register(self, model: RegisteredModel) -> None:
        """Implement ModelRegistry.register."""
        await self._do(f"register model {model.name}", lambda: self._register(model))

    async def close(self) -> None:
        """Close the credential."""
        if close := getattr(self._credential, "close", None):
            await asyncio.to_thread(close)

    @cached_property
    def _client(self) -> Any:  # noqa: ANN401 - MLClient, which is imported here
        return azureml_job.client(
            self._credential,
            (
                self._workspace.subscription_id,
                self._workspace.resource_group,
                self._workspace.name,
            ),
            self._base_url,
            self._ca_path,
        )

    @cached_property
    def _named_clusters(self) -> NamedClusters:
        return NamedClusters(self._client, self._workspace.owner, self._workspace.clusters)

    def _create(self, spec: ScaleSetSpec) -> None:
        compute = self._cluster(spec.name)
        if compute is None:
            self._begin(spec)
            return
        is_ready = compute.provisioning_state == "Succeeded"
        if is_ready and self._named_clusters.find_job(spec.name) is None:
            self._submit(spec, compute.name)

    def _begin(self, spec: ScaleSetSpec) -> None:
        """Submit the job to the named cluster, or make a cluster.

        The settings may have changed since the last call: a job on a named cluster stays there.
        """
        job = self._named_clusters.find_job(spec.name)
        if job is not None and is_on_named(job, spec.name):
            return
        if job is None and spec.offering in self._workspace.clusters:
            self._submit(spec, self._named_clusters.find_fitting_cluster(spec))
            return
        space = self._workspace
        subnet = space.subnet_id.replace("{region}", spec.offering.region)
        name = cluster_name(spec.name)
        compute = azureml_job.cluster(name, spec, space.owner, space.identity_id, subnet)
        azureml_job.begin_create(self._client, compute)

    def _submit(self, spec: ScaleSetSpec, compute: str) -> None:
        job = azureml_job.job(spec.name, compute, spec, self._workspace.owner)
        self._client.jobs.create_or_update(job)

    def _get(self, name: str) -> ScaleSet:
        compute = self._cluster(name)
        if compute is None:
            return self._named_clusters.get(name)
        nodes = list(self._client.compute.list_nodes(compute.name))
        job = self._named_clusters.find_job(name)
        status = status_of(job) if job else None
        reason = self._named_clusters.failure_message(name) if status == "Failed" else ""
        return cluster(
            compute, status, nodes, self._named_clusters.list_node_errors(compute.name), reason
        )

    def _list(self) -> list[ScaleSet]:
        counts = azureml_job.clusters(self._client)
        owned = [c for c, _ in counts if (c.tags or {}).get(OWNER_TAG) == self._workspace.owner]
        nodes = {compute.name: count for compute, count in counts}
        sets = [replace(cluster(c), capacity=nodes[c.name]) for c in owned]
        return [*sets, *self._named_clusters.list_scale_sets([compute for compute, _ in counts])]

    def _delete(self, name: str) -> None:
        compute = self._cluster(name)
        if compute is None:
            self._named_clusters.delete(name)
        elif compute.provisioning_state != "Deleting":
            azureml_job.begin_delete(self._client, compute.name)

    def _spot_cores(self, location: str) -> SpotCores:
        """Return the quota; idle nodes of named clusters count as free: a job can have them."""
        cores = spot_cores(list(self._client.compute.list_usage(location=location)))
        return replace(cores, used=max(cores.used - self._named_clusters.idle_cores(location), 0))

    def _register(self, model: RegisteredModel) -> None:
        try:
            self._client.models.create_or_update(azureml_job.model(model))
        except AzureError:
            if not self._is_registered(model):
                raise

    def _is_registered(self, model: RegisteredModel) -> bool:
        try:
            self._client.models.get(model.name, version=model.version)
        except ResourceNotFoundError:
            self._require_workspace()
            return False
        return True

    def _cluster(self, name: str) -> Any | None:  # noqa: ANN401 - AmlCompute
        """Return the cluster, or None.

        Raise Misconfigured if there is no workspace, or if another deployment owns the cluster.
        """
        try:
            compute = self._client.compute.get(cluster_name(name))
        except ResourceNotFoundError:
            self._require_workspace()
            return None
        if (compute.tags or {}).get(OWNER_TAG) != self._workspace.owner:
            raise Misconfigured(
                f"Cluster {compute.name} lacks the tag {OWNER_TAG}={self._workspace.owner}. Give"
                " each deployment an owner name of its own and never change it."
            )
        return compute

    def _require_workspace(self) -> None:
        """Raise Misconfigured if a 404 came from a missing workspace.

        A 404 then tells nothing about clusters, which may run in a workspace of another name. Codes
        do not tell the two apart: ARM answers both with ResourceNotFound, and a missing workspace
        also with ParentResourceNotFound or ResourceGroupNotFound.
        """
        space = self._workspace
        try:
            self._client.workspaces.get(space.name)
        except ResourceNotFoundError as error:
            raise Misconfigured(
                f"Azure finds no ML workspace {space.name} in resource group"
                f" {space.resource_group}. Correct REKINDLE_AZUREML_WORKSPACE and"
                " REKINDLE_AZUREML_RESOURCE_GROUP, or create an empty workspace of this name if it"
                " was deleted: clusters count as running until it answers.",
                "WorkspaceNotFound",
            ) from error

    def _checked(self, call: Callable[[], T]) -> T:
        try:
            return call()
        except ResourceNotFoundError:
            self._require_workspace()
            raise

    async def _do(self, operation: str, call: Callable[[], T]) -> T:
        async with self._translating(operation):
            return await asyncio.to_thread(self._checked, call)

    @asynccontextmanager
    async def _translating(self, operation: str) -> AsyncIterator[None]:
        try:
            async with asyncio.timeout(self._call_seconds):
                yield
        except TimeoutError as error:
            seconds = f"{self._call_seconds:.0f} s"
            raise CloudError(f"Azure ML did not answer within {seconds}: {operation}") from error
        except AzureError as error:
            raise translate_error(error) from error
