"""What Azure's list says of tiers: also what no emulator of it says."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from azure.storage.blob import BlobProperties, RehydratePriority

from service.domain.storage.access_tiers import AccessTier, ArchivePriority
from service.storage.azure_tiers import parse_blob

MADE = datetime(2026, 1, 1, tzinfo=UTC)
CHANGED = MADE + timedelta(days=3)


def listed(**members: Any) -> BlobProperties:  # noqa: ANN401 - as many kinds as there are members
    """Return a blob with these members, as the SDK lists it."""
    found = BlobProperties()
    plain = {"name": "a", "size": 7, "creation_time": MADE, "blob_tier": "Hot"}
    for name, value in (plain | members).items():
        setattr(found, name, value)
    return found


@pytest.mark.parametrize(
    ("said", "tier"),
    [("Hot", AccessTier.HOT), ("Cold", AccessTier.COLD), ("Archive", AccessTier.ARCHIVE)],
)
def test_a_tier_is_known_by_its_name(said: str, tier: AccessTier) -> None:
    assert parse_blob(listed(blob_tier=said)).tier is tier


@pytest.mark.parametrize("said", [None, "Smart", "P10"])
def test_what_has_no_tier_of_ours_is_billed_as_hot_and_never_moved(said: str | None) -> None:
    blob = parse_blob(listed(blob_tier=said))

    assert (blob.tier, blob.movable) == (AccessTier.HOT, False)


def test_a_blob_is_in_its_tier_since_the_last_change_or_else_since_it_was_made() -> None:
    assert parse_blob(listed(blob_tier_change_time=CHANGED)).since == CHANGED
    assert parse_blob(listed()).since == MADE


@pytest.mark.parametrize(
    ("status", "target"),
    [
        ("rehydrate-pending-to-hot", AccessTier.HOT),
        ("rehydrate-pending-to-cold", AccessTier.COLD),
        ("rehydrate-pending-to-smart", AccessTier.HOT),
        ("rehydrate-pending", None),
        (None, None),
    ],
)
def test_a_blob_on_its_way_back_says_where_to(
    status: str | None, target: AccessTier | None
) -> None:
    assert parse_blob(listed(blob_tier="Archive", archive_status=status)).rehydrating is target


@pytest.mark.parametrize(
    ("said", "priority"),
    [
        ("High", ArchivePriority.HIGH),
        (RehydratePriority.STANDARD, ArchivePriority.STANDARD),
        (None, None),
    ],
)
def test_the_priority_of_a_rehydration_is_told(
    said: object, priority: ArchivePriority | None
) -> None:
    assert parse_blob(listed(rehydrate_priority=said)).priority is priority


@pytest.mark.parametrize(
    ("members", "movable"),
    [
        ({}, True),
        ({"version_id": "v2", "is_current_version": True}, True),
        ({"version_id": "v1"}, False),
        ({"snapshot": "2026"}, False),
        ({"deleted": True}, False),
    ],
)
def test_versions_snapshots_and_deleted_blobs_are_billed_and_never_moved(
    members: dict[str, object], movable: bool
) -> None:
    blob = parse_blob(listed(**members))

    assert (blob.size, blob.movable) == (7, movable)
