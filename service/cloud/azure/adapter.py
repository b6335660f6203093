"""Scale sets in Azure, through the official SDK with its retries switched off.

Backoff is the caller's: the SDK would sleep for a whole Retry-After, which may be twenty minutes.
No operation is polled either: the outcome of a create is read from the scale set itself, so that it
is known after a restart of the service too.
"""

import asyncio
from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager
from typing import Any

from azure.core import MatchConditions
from azure.core.credentials_async import AsyncTokenCredential
from azure.core.exceptions import AzureError, HttpResponseError
from azure.core.polling import AsyncLROPoller
from azure.core.rest import HttpRequest
from azure.mgmt.compute.aio import ComputeManagementClient
from azure.mgmt.compute.models import (
    VirtualMachineScaleSet,
    VirtualMachineScaleSetUpdate,
    VirtualMachineScaleSetVM,
    VirtualMachineScaleSetVMInstanceRequiredIDs,
)
from azure.mgmt.core.exceptions import ARMErrorFormat

from service.cloud.azure import serial_log
from service.cloud.azure.errors import translate_error
from service.cloud.azure.remaining import RemainingLimitsPolicy
from service.cloud.azure.template import AzureSettings, scale_set_body
from service.cloud.azure.views import failure, resource, scale_set, spot_cores
from service.cloud.provider import (
    OWNER_TAG,
    CloudError,
    Misconfigured,
    NoSerialLog,
    ScaleSetNotFound,
)
from service.domain.cloud.fleet import (
    ScaleSet,
    ScaleSetPhase,
    ScaleSetSpec,
    SpotCores,
    TaggedResource,
)

RESOURCES_VERSION = "2021-04-01"  # of the list of everything, which the compute client lacks
# What carries our tag and is listed by its own kind.
TYPES_LISTED_ELSEWHERE = (
    "microsoft.compute/virtualmachinescalesets",
    "microsoft.machinelearningservices/workspaces/computes",
)
CALL_SECONDS = 30.0  # for one verb, all its pages together
_SAS_MINUTES = 5  # for a serial log to be fetched; Azure allows 1 to 1440


class AzureCloud:
    """One subscription and resource group. Takes over ``credential`` and closes it."""

    def __init__(
        self,
        settings: AzureSettings,
        credential: AsyncTokenCredential,
        *,
        base_url: str = "https://management.azure.com",
        ca_path: str = "",  # trust this CA alone, e.g. an emulator's
        call_seconds: float = CALL_SECONDS,
    ) -> None:
        self._settings = settings
        self._credential = credential
        self._call_seconds = call_seconds
        self._ca_path = ca_path
        self._client = ComputeManagementClient(
            credential,
            settings.subscription_id,
            base_url=base_url,
            credential_scopes=[f"{base_url}/.default"],
            connection_verify=ca_path or True,
            retry_total=0,
            per_retry_policies=[RemainingLimitsPolicy()],
        )
        self._sets = self._client.virtual_machine_scale_sets
        self._machines = self._client.virtual_machine_scale_set_vms

    async def create(self, spec: ScaleSetSpec) -> None:
        """Create the set only if there is none: a repeated PUT would refill an evicted one."""
        body = VirtualMachineScaleSet(scale_set_body(spec, self._settings))
        async with self._call(f"create {spec.name}"):
            try:
                await self._sets.begin_create_or_update(
                    self._settings.resource_group,
                    spec.name,
                    body,
                    etag="*",
                    match_condition=MatchConditions.IfMissing,
                    polling=False,
                )
            except HttpResponseError as error:
                if error.status_code != 412:
                    raise

    async def get(self, name: str) -> ScaleSet:
        """Return the set with its instances, and the cause of its failure if it failed."""
        group = self._settings.resource_group
        async with self._call(f"get {name}"):
            vmss = await self._sets.get(group, name)
            self._check_owner(name, vmss)
            pages = self._machines.list(group, name, expand="instanceView")
            machines: list[VirtualMachineScaleSetVM] = [machine async for machine in pages]
            current = scale_set(vmss, machines)
            if current.phase is not ScaleSetPhase.FAILED:
                return current
            view = await self._sets.get_instance_view(group, name)
            return failure(current, view, machines)

    async def refill(self, name: str, instance_count: int, useless: Collection[str] = ()) -> None:
        """Restore the capacity that an eviction lowered, or delete instances that do not run."""
        group = self._settings.resource_group
        async with self._call(f"refill {name}"):
            vmss = await self._sets.get(group, name)
            self._check_owner(name, vmss)
            pages = self._machines.list(group, name, expand="instanceView")
            current = scale_set(vmss, [machine async for machine in pages])
            if current.phase in (ScaleSetPhase.CREATING, ScaleSetPhase.DELETING):
                return
            unusable = [i for i in current.instances if not i.running or i.vm_id in useless]
            if unusable:
                instance_ids = VirtualMachineScaleSetVMInstanceRequiredIDs(
                    instance_ids=[i.instance_id for i in unusable]
                )
                await self._sets.begin_delete_instances(
                    group, name, instance_ids, force_deletion=True, polling=False
                )
            elif len(current.instances) < instance_count:
                sku = vmss.sku
                assert sku is not None, "Azure shows it with every scale set"
                sku.capacity = instance_count
                await self._sets.begin_update(
                    group, name, VirtualMachineScaleSetUpdate(sku=sku), polling=False
                )

    async def list_owned(self) -> list[ScaleSet]:
        """Return the scale sets of the resource group with our owner tag."""
        async with self._call("list scale sets"):
            pages = self._sets.list(self._settings.resource_group)
            return [scale_set(vmss, ()) async for vmss in pages if self._owns(vmss)]

    async def list_tagged(self) -> list[TaggedResource]:
        """Return the other resources with our owner tag, without scale sets and clusters."""
        tag_filter = f"tagName eq '{OWNER_TAG}' and tagValue eq '{self._settings.owner}'"
        path = (
            f"/subscriptions/{self._settings.subscription_id}"
            f"/resourceGroups/{self._settings.resource_group}/resources"
        )
        request = HttpRequest(
            "GET", path, params={"$filter": tag_filter, "api-version": RESOURCES_VERSION}
        )
        rows: list[dict[str, Any]] = []
        async with self._call("list what carries our tag"):
            while True:
                answer = await self._client.send_request(request)
                if answer.status_code >= 400:
                    raise HttpResponseError(response=answer, error_format=ARMErrorFormat)
                page = answer.json()
                rows += page["value"]
                if not page.get("nextLink"):
                    break
                request = HttpRequest("GET", page["nextLink"])
        return [resource(row) for row in rows if row["type"].lower() not in TYPES_LISTED_ELSEWHERE]

    async def delete(self, name: str) -> None:
        """Delete by force: nothing on the disks is worth a clean shutdown."""
        async with self._call(f"delete {name}"):
            poller: AsyncLROPoller[Any] = await self._sets.begin_delete(
                self._settings.resource_group,
                name,
                force_deletion=True,
                polling=False,
                cls=_status_code,
            )
            status = await poller.result()
        if status == 204:  # ARM's answer where there was nothing to delete
            raise ScaleSetNotFound(f"There is no scale set {name}.")

    async def serial_log(self, name: str, instance_id: str) -> bytes:
        """Request a URL with a SAS, and fetch the blob behind it."""
        async with self._call(f"serial log of {name}_{instance_id}"):
            try:
                diagnostics = await self._machines.retrieve_boot_diagnostics_data(
                    self._settings.resource_group,
                    name,
                    instance_id,
                    sas_uri_expiration_time_in_minutes=_SAS_MINUTES,
                )
            except HttpResponseError as error:
                if error.status_code not in (404, 409):
                    raise
                raise NoSerialLog(str(translate_error(error))) from error
            return await serial_log.fetch_end(
                diagnostics.serial_console_log_blob_uri, self._ca_path
            )

    async def spot_cores(self, region: str) -> SpotCores:
        """Return the Spot cores from the region's usages, all pages of them."""
        async with self._call(f"usages of {region}"):
            return spot_cores([usage async for usage in self._client.usage.list(region)])

    async def close(self) -> None:
        """Close the connections and the credential."""
        await self._client.close()
        await self._credential.close()

    @asynccontextmanager
    async def _call(self, operation: str) -> AsyncIterator[None]:
        try:
            async with asyncio.timeout(self._call_seconds):
                yield
        except TimeoutError as error:
            raise CloudError(
                f"Azure did not answer within {self._call_seconds:.0f} s: {operation}"
            ) from error
        except AzureError as error:
            raise translate_error(error) from error

    def _owns(self, vmss: VirtualMachineScaleSet) -> bool:
        return (vmss.tags or {}).get(OWNER_TAG) == self._settings.owner

    def _check_owner(self, name: str, vmss: VirtualMachineScaleSet) -> None:
        """Raise Misconfigured for a set of another owner; NotFound would mean that it is gone."""
        if not self._owns(vmss):
            raise Misconfigured(
                f"Scale set {name} lacks the tag {OWNER_TAG}={self._settings.owner}. Give each"
                " deployment an owner name of its own and never change it."
            )


def _status_code(response: Any, _body: object, _headers: object) -> int:  # noqa: ANN401 - as the SDK has it
    return int(response.http_response.status_code)
