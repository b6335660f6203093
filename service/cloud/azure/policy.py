"""What a governed subscription requires of every scale set: the setting REKINDLE_AZURE_POLICY.

One JSON object, because its members come from one place (the platform team's Azure policies) and
most subscriptions need none of them. `{region}` in an id stands for the offering's region: disk
encryption sets and placement groups exist in one region each.
"""

import re
from typing import Annotated, Literal, Self

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    StringConstraints,
    ValidationError,
    field_validator,
)

OUR_TAGS = "rekindle-"  # what our own tags begin with
# azure-docs, azure-resource-manager/management/tag-resources, "Limitations": at most 50 a resource,
# of which three are ours; 512 and 256 characters; none of <>%&\?/ in a name. Editions before 2022
# have 2,048 characters for all tags of a scale set as well.
_MAX_TAGS = 50 - 3
_LARGEST_OS_DISK = 2040  # GiB; Microsoft's page on ephemeral OS disks, size limit
Placement = Literal["CacheDisk", "ResourceDisk", "NvmeDisk"]
_TagName = Annotated[str, StringConstraints(pattern=r"^[^<>%&\\?/]{1,512}$")]
_TagValue = Annotated[str, StringConstraints(max_length=256)]
_Id = "^(/subscriptions/[^/]+/resourceGroups/[^/]+/providers/Microsoft.Compute/{}/[^/]+)?$"
_VERSION = re.compile(r"_v(\d+)$", re.IGNORECASE)
_NVME_SINCE = 6


class AzurePolicy(BaseModel):
    """Members that Azure policies require; members that are left out are not sent."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    tags: dict[_TagName, _TagValue] = Field(default={}, max_length=_MAX_TAGS)
    zones: dict[str, Literal["1", "2", "3"]] = {}  # region -> the zone of its machines
    encryption_at_host: bool = False
    disk_encryption_set_id: str = Field(default="", pattern=_Id.format("diskEncryptionSets"))
    proximity_placement_group_id: str = Field(
        default="", pattern=_Id.format("proximityPlacementGroups")
    )
    security_type: Literal["Standard", "TrustedLaunch"] | None = None
    os_disk_gib: int | None = Field(default=None, ge=1, le=_LARGEST_OS_DISK)
    os_disk_placement: Placement | None = None  # None: by the VM size

    @field_validator("tags")
    @classmethod
    def refuse_own_tags(cls, value: dict[str, str]) -> dict[str, str]:
        """Refuse names that could hide our own tags: Azure ignores case in them."""
        for name in value:
            if name.lower().startswith(OUR_TAGS):
                raise ValueError(f"{name!r}: names that begin with {OUR_TAGS} are Rekindle's own")
        return value

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read the setting; raise ValueError that names the member and what it may be."""
        try:
            return cls.model_validate_json(text or "{}")
        except ValidationError as error:
            errors = error.errors(include_url=False, include_input=False)
            messages = (f"{'.'.join(map(str, e['loc']))}: {e['msg']}" for e in errors)
            raise ValueError("; ".join(s.removeprefix(": ") for s in messages)) from None


def os_disk_placement(vm_size: str) -> Placement:
    """Return the local disk that holds the OS disk of a size.

    Microsoft's page on ephemeral OS disks offers NvmeDisk from v6 series onwards, which have no
    temp disk. Older sizes of ours have one, ND H100 v5 and ND H200 v5 too (1,024 GiB beside eight
    NVMe disks, on their size pages): there NvmeDisk would take an NVMe disk from the checkpoints.
    """
    version = _VERSION.search(vm_size)
    return "NvmeDisk" if version and int(version[1]) >= _NVME_SINCE else "ResourceDisk"
