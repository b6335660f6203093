"""The seam to a cloud. Everything above it knows scale sets, nothing knows Azure."""

from collections.abc import Collection
from typing import Protocol

from service.domain.cloud.fleet import ScaleSet, ScaleSetSpec, SpotCores, TaggedResource

OWNER_TAG = "rekindle-owner"  # value: the deployment's name; the sweep touches nothing else
ATTEMPT_TAG = "rekindle-attempt"
JOB_TAG = "rekindle-job"
SERIAL_LOG_BYTES = 256 * 1024  # of a machine's serial log, the last ones


class CloudError(Exception):
    """The cloud failed unexpectedly. Safe to retry later."""

    def __init__(self, message: str, code: str = "") -> None:
        super().__init__(message)
        self.code = code


class InsufficientCapacity(CloudError):
    """No capacity or quota for this offering now; another one may work."""


class Throttled(CloudError):
    """Too many calls; back off for ``retry_after`` seconds."""

    def __init__(self, message: str, code: str = "", retry_after: float = 10.0) -> None:
        super().__init__(message, code)
        self.retry_after = retry_after


class Misconfigured(CloudError):
    """Credentials, roles or the request itself are wrong: a person must act."""


class ScaleSetNotFound(CloudError):
    """No such scale set: it is gone, or never was (or is younger than the read lag)."""


class NoSerialLog(CloudError):
    """The serial log of this machine is not kept, not written yet, or cannot be fetched."""


class CloudProvider(Protocol):
    """Scale sets in one subscription and resource group, all regions."""

    async def create(self, spec: ScaleSetSpec) -> None:
        """Begin creating; a second call with the same spec changes nothing.

        Returns once the cloud has accepted. Raises InsufficientCapacity when refused at
        once. A later failure shows as phase FAILED with its error code, and what that means, from
        ``get``; machines that have come are there and run.
        """
        ...

    async def get(self, name: str) -> ScaleSet:
        """Describe one scale set with its instances, or raise ScaleSetNotFound."""
        ...

    async def list_owned(self) -> list[ScaleSet]:
        """List every scale set with this deployment's owner tag, in any phase.

        Without instances, but with the capacity; follows every page.
        """
        ...

    async def list_tagged(self) -> list[TaggedResource]:
        """List all other resources with this deployment's owner tag; Rekindle makes none."""
        ...

    async def refill(self, name: str, instance_count: int, useless: Collection[str] = ()) -> None:
        """Begin to replace instances that were evicted, so that there are this many again."""
        ...

    async def delete(self, name: str) -> None:
        """Begin deleting, or raise ScaleSetNotFound once it is gone. Twice is harmless."""
        ...

    async def serial_log(self, name: str, instance_id: str) -> bytes:
        """Fetch what a machine printed to its serial console, the last SERIAL_LOG_BYTES of it.

        It goes with the machine. Raises NoSerialLog, also where there is no such machine.
        """
        ...

    async def spot_cores(self, region: str) -> SpotCores:
        """Return the subscription's limit and use of Spot cores in the region.

        Recent creations and deletions may not be counted yet.
        """
        ...

    async def close(self) -> None:
        """Close the connections."""
        ...
