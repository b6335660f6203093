"""Convert the tiers in Azure's list of blobs into the domain's."""

from typing import Any

from azure.storage.blob import BlobProperties

from service.domain.storage.access_tiers import AccessTier, ArchivePriority, TieredBlob

_PENDING_PREFIX = "rehydrate-pending-to-"
_TIERS: dict[str, AccessTier] = {tier.value: tier for tier in AccessTier}


def parse_blob(properties: BlobProperties) -> TieredBlob:
    """Return a row of the list with its tier; a blob without one has the account's, hot.

    An unknown tier (Smart, or a future one) counts as hot: it is online, and hot is the dearest.
    """
    old = (
        properties.deleted
        or properties.snapshot
        or (properties.version_id and not properties.is_current_version)
    )
    name = str(properties.blob_tier or "").lower()
    return TieredBlob(
        name=properties.name,
        size=properties.size,
        tier=_TIERS.get(name, AccessTier.HOT),
        since=properties.blob_tier_change_time or properties.creation_time,
        rehydrating=_target(properties.archive_status),
        priority=_priority(properties),
        movable=name in _TIERS and not old,
    )


def _target(status: str | None) -> AccessTier | None:
    """Return the target tier of a rehydration, from a status like `rehydrate-pending-to-hot`."""
    if not (status or "").startswith(_PENDING_PREFIX):
        return None
    return _TIERS.get(str(status).removeprefix(_PENDING_PREFIX).lower(), AccessTier.HOT)


def _priority(properties: BlobProperties) -> ArchivePriority | None:
    value: Any = properties.rehydrate_priority
    text = str(getattr(value, "value", value) or "").lower()
    return ArchivePriority(text) if text in set(ArchivePriority) else None
