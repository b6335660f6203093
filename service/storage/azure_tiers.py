"""What Azure's list of blobs says of tiers, in our words."""

from typing import Any

from azure.storage.blob import BlobProperties

from service.domain.storage.access_tiers import AccessTier, ArchivePriority, StoredBlob

_ON_ITS_WAY = "rehydrate-pending-to-"
_TIERS: dict[str, AccessTier] = {tier.value: tier for tier in AccessTier}


def stored(found: BlobProperties) -> StoredBlob:
    """One row of the list. What has no tier of its own is billed as the account's: hot.

    A tier that we do not know (Smart, or one to come) is hot as well: it is online, and hot is
    the dearest to keep.
    """
    old = found.deleted or found.snapshot or (found.version_id and not found.is_current_version)
    name = str(found.blob_tier or "").lower()
    return StoredBlob(
        name=found.name,
        size=found.size,
        tier=_TIERS.get(name, AccessTier.HOT),
        since=found.blob_tier_change_time or found.creation_time,
        rehydrating=_target(found.archive_status),
        priority=_priority(found),
        movable=name in _TIERS and not old,
    )


def _target(status: str | None) -> AccessTier | None:
    """`rehydrate-pending-to-hot`: the list says Archive until it is there."""
    if not (status or "").startswith(_ON_ITS_WAY):
        return None
    return _TIERS.get(str(status).removeprefix(_ON_ITS_WAY).lower(), AccessTier.HOT)


def _priority(found: BlobProperties) -> ArchivePriority | None:
    said: Any = found.rehydrate_priority
    text = str(getattr(said, "value", said) or "").lower()
    return ArchivePriority(text) if text in set(ArchivePriority) else None
