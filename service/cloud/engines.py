"""Scale sets and the clusters of an Azure ML workspace as one cloud."""

import logging
from collections.abc import Collection
from dataclasses import dataclass

from contract.choices import Engine
from service.cloud.provider import CloudError, CloudProvider, NoSerialLog, ScaleSetNotFound
from service.domain.fleet import Resource, ScaleSet, ScaleSetSpec, SpotCores, pool

log = logging.getLogger(__name__)
_AZUREML = pool("", Engine.AZUREML)


@dataclass(frozen=True, kw_only=True)
class Engines:
    """Both as one CloudProvider. ``at`` gives the part of a known pool, which saves a call."""

    scale_sets: CloudProvider
    azureml: CloudProvider

    def at(self, pool: str) -> CloudProvider:
        """The part whose machines are counted there."""
        return self.azureml if pool.endswith(_AZUREML) else self.scale_sets

    async def create(self, spec: ScaleSetSpec) -> None:
        """As CloudProvider.create."""
        await self.at(spec.offering.pool).create(spec)

    async def get(self, name: str) -> ScaleSet:
        """As CloudProvider.get."""
        try:
            return await self.scale_sets.get(name)
        except ScaleSetNotFound:
            return await self.azureml.get(name)

    async def list_owned(self) -> list[ScaleSet]:
        """As CloudProvider.list_owned; a workspace that does not answer hides no scale set."""
        sets = await self.scale_sets.list_owned()
        try:
            return [*sets, *await self.azureml.list_owned()]
        except CloudError as fault:
            log.warning("sweep.list_failed", extra={"cause": str(fault)})
            return sets

    async def list_tagged(self) -> list[Resource]:
        """As CloudProvider.list_tagged."""
        return [*await self.scale_sets.list_tagged(), *await self.azureml.list_tagged()]

    async def refill(self, name: str, instance_count: int, useless: Collection[str] = ()) -> None:
        """As CloudProvider.refill."""
        try:
            await self.scale_sets.refill(name, instance_count, useless)
        except ScaleSetNotFound:
            await self.azureml.refill(name, instance_count, useless)

    async def delete(self, name: str) -> None:
        """As CloudProvider.delete."""
        try:
            await self.scale_sets.delete(name)
        except ScaleSetNotFound:
            await self.azureml.delete(name)

    async def serial_log(self, name: str, instance_id: str) -> bytes:
        """As CloudProvider.serial_log."""
        try:
            return await self.scale_sets.serial_log(name, instance_id)
        except NoSerialLog:
            return await self.azureml.serial_log(name, instance_id)

    async def spot_cores(self, region: str) -> SpotCores:
        """As CloudProvider.spot_cores, of a region or another pool."""
        return await self.at(region).spot_cores(region)

    async def close(self) -> None:
        """Let go of both."""
        await self.scale_sets.close()
        await self.azureml.close()


def scale_sets(cloud: CloudProvider) -> CloudProvider:
    """The scale sets of ``cloud`` alone."""
    return cloud.scale_sets if isinstance(cloud, Engines) else cloud


def at(cloud: CloudProvider, pool: str) -> CloudProvider:
    """Return the part of ``cloud`` whose machines are counted there, or ``cloud`` without parts.

    Only that part is asked: whether a scale set is gone must not depend on a workspace.
    """
    return cloud.at(pool) if isinstance(cloud, Engines) else cloud
