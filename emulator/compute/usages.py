"""Quotas of a region: which there are, what is used of them, and the refusal beyond.

What an instance holds it holds until it is deleted: deallocated ones count too, as on Azure.
"""

from dataclasses import dataclass
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from emulator.arm.front_door import fabric_of, page
from emulator.core.catalog import catalog, region_name
from emulator.core.errors import ArmError, quota_exceeded
from emulator.core.state import ScaleSetRow
from emulator.fabric import Fabric

REGULAR_QUOTA = 10_000  # cores per region and per family; never the one that bites
COUNTED = {
    "availabilitySets": ("Availability Sets", 2500),
    "virtualMachines": ("Virtual Machines", 25_000),
    "virtualMachineScaleSets": ("Virtual Machine Scale Sets", 2500),
}


@dataclass(frozen=True)
class Region:
    """What a quota is of: a region of a subscription."""

    subscription: str
    location: str

    @classmethod
    def of(cls, subscription: str, location: str) -> "Region":
        """Return the region that a path names, or raise ArmError."""
        name = region_name(location)
        if name not in catalog().locations:
            raise ArmError(
                400,
                "NoRegisteredProviderFound",
                f"No registered resource provider found for location '{location}'. The supported "
                f"locations are '{', '.join(sorted(catalog().locations))}'.",
            )
        return cls(subscription, name)

    @property
    def key(self) -> str:
        """Its resource id."""
        compute = "providers/Microsoft.Compute"
        return f"/subscriptions/{self.subscription}/{compute}/locations/{self.location}".lower()


async def list_all(request: Request) -> Response:
    """List the quotas of one region, with what is used of them."""
    fabric, names = fabric_of(request), request.path_params
    region = Region.of(names["subscription"], names["location"])
    quotas = {name: text for name, (text, _) in COUNTED.items()}
    quotas |= {"cores": "Total Regional vCPUs", "lowPriorityCores": "Total Regional Spot vCPUs"}
    quotas |= {size.family: _family_text(size.family) for size in catalog().sizes.values()}
    rows = [
        {
            "unit": "Count",
            "currentValue": _used(fabric, region, name),
            "limit": limit(fabric, region, name),
            "name": {"value": name, "localizedValue": text},
        }
        for name, text in quotas.items()
    ]
    return page(request, rows)


def limit(fabric: Fabric, region: Region, name: str, *, hidden: bool = False) -> int:
    """Return how much of a quota may be used; ``hidden``: of Azure ML's own."""
    start = COUNTED[name][1] if name in COUNTED else REGULAR_QUOTA
    if name == "lowPriorityCores":
        start = fabric.settings.azureml_quota if hidden else fabric.settings.spot_quota
    return start


def _used(fabric: Fabric, region: Region, name: str) -> int:
    """Return how much of a quota is used."""
    scale_sets = _scale_sets_in(fabric, region)
    match name:
        case "availabilitySets":
            return 0
        case "virtualMachineScaleSets":
            return len(scale_sets)
        case "virtualMachines":
            return sum(len(s.instances) for s in scale_sets if s.flexible)
        case "lowPriorityCores":
            return used_cores(fabric, region, spot=True)
        case "cores":
            return used_cores(fabric, region, spot=False)
        case family:
            return used_cores(fabric, region, spot=False, family=family)


def used_cores(
    fabric: Fabric, region: Region, *, spot: bool, family: str = "", hidden: bool = False
) -> int:
    """Cores that instances of one capacity type hold in a region, those being created too."""
    scale_sets = [
        s for s in _scale_sets_in(fabric, region, hidden) if family in ("", _size_of(s).family)
    ]
    return sum(_holding(s) * _size_of(s).vcpus for s in scale_sets if s.spot is spot)


def check_quota(fabric: Fabric, scale_set: ScaleSetRow, vcpus: int) -> None:
    """Raise ArmError if bringing the scale set to its capacity exceeds a quota of the region."""
    region = Region(scale_set.subscription, scale_set.location)
    additional = max(0, scale_set.capacity - len(scale_set.instances))
    regular = 0 if scale_set.spot else additional
    family, hidden = _size_of(scale_set).family, bool(scale_set.owner)
    for count, spot, name, label in (
        (additional - regular, True, "lowPriorityCores", "LowPriorityCores"),
        (regular, False, "cores", "Cores"),
        (regular, False, family, family),
    ):
        within = name if name == family else ""
        usage = used_cores(fabric, region, spot=spot, family=within, hidden=hidden)
        most, cores = limit(fabric, region, name, hidden=hidden), count * vcpus
        if cores and usage + cores > most:
            raise quota_exceeded(label, scale_set.location, limit=most, usage=usage, cores=cores)


def quota_error(fabric: Fabric, scale_set: ScaleSetRow, code: str) -> ArmError:
    """Return the refusal as if not one more core were allowed."""
    region = Region(scale_set.subscription, scale_set.location)
    usage = used_cores(fabric, region, spot=scale_set.spot, hidden=bool(scale_set.owner))
    return quota_exceeded(
        "LowPriorityCores" if scale_set.spot else "Cores",
        scale_set.location,
        limit=usage,
        usage=usage,
        cores=scale_set.capacity * _size_of(scale_set).vcpus,
        code=code or "OperationNotAllowed",
    )


def _holding(scale_set: ScaleSetRow) -> int:
    """Instances that count: all of a scale set's; of Azure ML's nodes not the preempted ones."""
    return sum(
        not scale_set.owner or i.phase != "deallocated" for i in scale_set.instances.values()
    )


def _scale_sets_in(fabric: Fabric, region: Region, hidden: bool = False) -> list[ScaleSetRow]:
    """Return the scale sets of a region; ``hidden``: those of Azure ML, which has its own quota.

    MicrosoftDocs/azure-ai-docs, machine-learning/how-to-manage-quotas.md.
    """
    name = region.subscription.lower()
    return [
        s
        for s in fabric.state.scale_sets.values()
        if s.location == region.location
        and s.subscription.lower() == name
        and bool(s.owner) is hidden
    ]


def _size_of(scale_set: ScaleSetRow) -> Any:  # noqa: ANN401 - a Size
    size = catalog().size(scale_set.vm_size)
    assert size, f"{scale_set.vm_size} was checked when {scale_set.name} was put"
    return size


def _family_text(family: str) -> str:
    short = family.removesuffix("Family").replace("_", " ")
    return f"Standard {short[len('standard') :]} Family vCPUs"
