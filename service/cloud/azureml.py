"""Clusters in an Azure Machine Learning workspace, through azure-ai-ml.

An attempt is a cluster of its own with one command job, which runs one supervisor on each node. The
client knows no asyncio and is large: it is imported when it is needed, and its calls run in
threads. Nothing is waited for: what became of a call is read from the workspace.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Collection
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeVar

from azure.core.credentials import TokenCredential
from azure.core.exceptions import AzureError, ResourceNotFoundError

from service.cloud import azureml_job
from service.cloud.azure_errors import translated
from service.cloud.azureml_views import cluster, cluster_name, spot_cores
from service.cloud.model_registry import RegisteredModel
from service.cloud.provider import (
    OWNER_TAG,
    CloudError,
    Misconfigured,
    NoSerialLog,
    ScaleSetNotFound,
)
from service.domain.fleet import Resource, ScaleSet, ScaleSetSpec, SpotCores

CALL_SECONDS = 60.0  # for one verb, all its requests together
T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class Workspace:
    """Where clusters go and what every one of them has in common."""

    subscription_id: str
    resource_group: str
    name: str
    owner: str  # this deployment's name, the value of OWNER_TAG
    identity_id: str = ""  # user-assigned identity of the clusters, which pulls the image
    subnet_id: str = ""  # "{region}" in it stands for the cluster's region; "": Azure's own network


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
        """The cluster, its job and its nodes."""
        return await self._do(f"get {name}", lambda: self._get(name))

    async def list_owned(self) -> list[ScaleSet]:
        """The workspace's clusters that carry our owner tag; without nodes and jobs."""
        return await self._do("list clusters", self._list)

    async def list_tagged(self) -> list[Resource]:
        """Nothing: what Azure ML makes beside clusters goes with them, or costs nothing."""
        return []

    async def refill(self, name: str, instance_count: int, useless: Collection[str] = ()) -> None:
        """Nothing: Azure ML gives a job all its nodes again, and starts it from its beginning."""

    async def delete(self, name: str) -> None:
        """Delete the cluster, which ends its job."""
        await self._do(f"delete {name}", lambda: self._delete(name))

    async def serial_log(self, name: str, instance_id: str) -> bytes:
        """Azure ML keeps none."""
        raise NoSerialLog(f"Azure ML keeps no serial log of {instance_id}: see its job {name}.")

    async def spot_cores(self, region: str) -> SpotCores:
        """The region's quota of low-priority cores of clusters."""
        place = region.partition("/")[0]
        found = await self._do(
            f"usages of {place}", lambda: list(self._client.compute.list_usage(location=place))
        )
        return spot_cores(found)

    async def register(self, model: RegisteredModel) -> None:
        """As ModelRegistry.register."""
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

    def _create(self, spec: ScaleSetSpec) -> None:
        name = cluster_name(spec.name)
        found = self._cluster(spec.name)
        if found is None:
            space = self._workspace
            subnet = space.subnet_id.replace("{region}", spec.offering.region)
            made = azureml_job.cluster(name, spec, space.owner, space.identity_id, subnet)
            self._client.compute.begin_create_or_update(made)
        elif found.provisioning_state == "Succeeded" and self._status(spec.name) is None:
            self._client.jobs.create_or_update(azureml_job.job(spec.name, name, spec))

    def _get(self, name: str) -> ScaleSet:
        found = self._cluster(name)
        if found is None:
            raise ScaleSetNotFound(f"There is no cluster {cluster_name(name)}.")
        nodes = list(self._client.compute.list_nodes(found.name))
        status = self._status(name)
        why = self._failure(name) if status == "Failed" else ""
        return cluster(found, status, nodes, self._errors(found.name), why)

    def _list(self) -> list[ScaleSet]:
        every = self._client.compute.list(compute_type="amlcompute")
        ours = (c for c in every if (c.tags or {}).get(OWNER_TAG) == self._workspace.owner)
        return [cluster(found) for found in ours]

    def _delete(self, name: str) -> None:
        found = self._cluster(name)
        if found is None:
            raise ScaleSetNotFound(f"There is no cluster {cluster_name(name)}.")
        if found.provisioning_state != "Deleting":
            self._client.compute.begin_delete(found.name)

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
            found = self._client.compute.get(cluster_name(name))
        except ResourceNotFoundError:
            self._require_workspace()
            return None
        if (found.tags or {}).get(OWNER_TAG) != self._workspace.owner:
            raise Misconfigured(
                f"Cluster {found.name} lacks the tag {OWNER_TAG}={self._workspace.owner}. Give each"
                " deployment an owner name of its own and never change it."
            )
        return found

    def _failure(self, name: str) -> str:
        """Return the error of a failed run. The client shows it to those who stream the logs."""
        told = self._client.jobs._runs_operations.get_run_details(name).error  # noqa: SLF001
        return str(told.error.message) if told else ""

    def _errors(self, name: str) -> list[Any]:
        """Return why nodes did not come. The client's own entity leaves that out."""
        resource = self._client.compute._operation.get(  # noqa: SLF001 - as above
            self._workspace.resource_group, self._workspace.name, name
        )
        return list(resource.properties.properties.errors or ())

    def _status(self, name: str) -> str | None:
        try:
            return str(self._client.jobs.get(name).status.value)
        except ResourceNotFoundError:
            return None

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

    async def _do(self, what: str, call: Callable[[], T]) -> T:
        async with self._translating(what):
            return await asyncio.to_thread(self._checked, call)

    @asynccontextmanager
    async def _translating(self, what: str) -> AsyncIterator[None]:
        try:
            async with asyncio.timeout(self._call_seconds):
                yield
        except TimeoutError as error:
            seconds = f"{self._call_seconds:.0f} s"
            raise CloudError(f"Azure ML did not answer within {seconds}: {what}") from error
        except AzureError as error:
            raise translated(error) from error
