"""Scale sets and the clusters of an Azure ML workspace as one cloud."""

import logging
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from contract.choices import Engine
from service.cloud.provider import CloudError, CloudProvider, NoSerialLog, ScaleSetNotFound
from service.domain.cloud.fleet import ScaleSet, ScaleSetSpec, SpotCores, TaggedResource, pool_name

log = logging.getLogger(__name__)
_AZUREML = pool_name("", Engine.AZUREML)


class WithoutClusters(list[ScaleSet]):
    """The scale sets of a list that lacks the clusters of the workspace, and why it does."""

    def __init__(self, sets: Iterable[ScaleSet], reason: str) -> None:
        super().__init__(sets)
        self.reason = reason


@dataclass(frozen=True, kw_only=True)
class Engines:
    """Join both into one CloudProvider. ``cloud_of_pool`` returns one part, which saves a call."""

    scale_sets: CloudProvider
    azureml: CloudProvider

    def cloud_of_pool(self, pool: str) -> CloudProvider:
        """Return the part whose machines are counted there."""
        return self.azureml if pool.endswith(_AZUREML) else self.scale_sets

    async def create(self, spec: ScaleSetSpec) -> None:
        """Implement CloudProvider.create."""
        await self.cloud_of_pool(spec.offering.pool).create(spec)

    async def get(self, name: str) -> ScaleSet:
        """Implement CloudProvider.get."""
        try:
            return await self.scale_sets.get(name)
        except ScaleSetNotFound:
            return await self.azureml.get(name)

    async def list_owned(self) -> list[ScaleSet]:
        """Implement CloudProvider.list_owned; return WithoutClusters if the workspace is silent."""
        sets = await self.scale_sets.list_owned()
        try:
            return [*sets, *await self.azureml.list_owned()]
        except CloudError as fault:
            log.warning("sweep.list_failed", extra={"cause": str(fault)})
            return WithoutClusters(sets, str(fault))

    async def list_tagged(self) -> list[TaggedResource]:
        """Implement CloudProvider.list_tagged."""
        return [*await self.scale_sets.list_tagged(), *await self.azureml.list_tagged()]

    async def refill(self, name: str, instance_count: int, useless: Collection[str] = ()) -> None:
        """Implement CloudProvider.refill."""
        try:
            await self.scale_sets.refill(name, instance_count, useless)
        except ScaleSetNotFound:
            await self.azureml.refill(name, instance_count, useless)

    async def delete(self, name: str) -> None:
        """Implement CloudProvider.delete."""
        try:
            await self.scale_sets.delete(name)
        except ScaleSetNotFound:
            await self.azureml.delete(name)

    async def serial_log(self, name: str, instance_id: str) -> bytes:
        """Implement CloudProvider.serial_log."""
        try:
            return await self.scale_sets.serial_log(name, instance_id)
        except NoSerialLog:
            return await self.azureml.serial_log(name, instance_id)

    async def spot_cores(self, region: str) -> SpotCores:
        """Implement CloudProvider.spot_cores, for a region or another pool."""
        return await self.cloud_of_pool(region).spot_cores(region)

    async def close(self) -> None:
        """Close both."""
        await self.scale_sets.close()
        await self.azureml.close()


def scale_sets(cloud: CloudProvider) -> CloudProvider:
    """Return the scale sets of ``cloud`` alone."""
    return cloud.scale_sets if isinstance(cloud, Engines) else cloud


def unlisted_reason(scale_sets: Sequence[ScaleSet]) -> str:
    """Return why this list lacks the clusters of the workspace; "" where it is whole."""
    return scale_sets.reason if isinstance(scale_sets, WithoutClusters) else ""


def cloud_of_pool(cloud: CloudProvider, pool: str) -> CloudProvider:
    """Return the part of ``cloud`` whose machines are counted there, or ``cloud`` without parts.

    Only that part is asked: whether a scale set is gone must not depend on a workspace.
    """
    return cloud.cloud_of_pool(pool) if isinstance(cloud, Engines) else cloud
