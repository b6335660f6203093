"""Microsoft.Compute as far as scale sets name it: disk encryption sets, placement groups."""

from emulator.resources.kinds import Kind, no_check

OLDEST = "2019-07-01"

KINDS = (
    Kind(type="Microsoft.Compute/diskEncryptionSets", oldest=OLDEST, check=no_check),
    Kind(type="Microsoft.Compute/proximityPlacementGroups", oldest=OLDEST, check=no_check),
)
