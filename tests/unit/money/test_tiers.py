"""What may go to which tier, and what is left of a move."""

from dataclasses import replace
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.domain.storage.access_tiers import (
    GIB,
    SMALL,
    AccessTier,
    ArchivePriority,
    AwaitRehydration,
    FolderFacts,
    Presence,
    SetTier,
    TieredBlob,
    TierMoveEnd,
    TierMoveOutcome,
    coolest_tier,
    folder_presence,
    next_tier_step,
    tier_refusal,
    time_to_rehydrate,
)

SHARD = TieredBlob(name="checkpoints/a/rank-0.safetensors", size=GIB)
MANIFEST = TieredBlob(name="checkpoints/a/manifest.json", size=SMALL + 1)
SMALL_FILE = TieredBlob(name="checkpoints/a/index.json", size=SMALL - 1)
OVER = FolderFacts(
    label="the checkpoint of step 7", job_is_over=True, newer=0, milestone=False, redundancy="LRS"
)
LIVE = replace(OVER, job_is_over=False)


def test_what_another_job_reads_stays_online() -> None:
    needed = replace(OVER, needed_by=("ftjob-7",))

    assert {tier_refusal(OVER, tier) for tier in AccessTier} == {""}, "what nobody reads"

    assert [bool(tier_refusal(needed, tier)) for tier in AccessTier] == [False, False, False, True]
    assert "ftjob-7 goes on and reads the checkpoint of step 7" in tier_refusal(
        needed, AccessTier.ARCHIVE
    )


@pytest.mark.parametrize("newer", [0, 1, 2])
@pytest.mark.parametrize("tier", [AccessTier.COOL, AccessTier.COLD])
def test_the_newest_checkpoints_of_a_job_that_goes_on_stay_hot(
    newer: int, tier: AccessTier
) -> None:
    assert "a resume may need it" in tier_refusal(replace(LIVE, newer=newer), tier)


def test_a_milestone_of_a_job_that_goes_on_may_go_where_it_is_still_online() -> None:
    milestone = replace(LIVE, newer=3, milestone=True)

    assert [bool(tier_refusal(milestone, tier)) for tier in AccessTier] == [
        False,
        False,
        False,
        True,
    ]
    assert "must stay online" in tier_refusal(milestone, AccessTier.ARCHIVE)


@pytest.mark.parametrize("tier", [AccessTier.COOL, AccessTier.COLD])
def test_what_a_job_that_goes_on_will_drop_stays_hot_however_old_it_is(tier: AccessTier) -> None:
    recent = replace(LIVE, newer=9)

    assert "is no milestone: a job that goes on drops it in time" in tier_refusal(recent, tier)
    assert tier_refusal(recent, AccessTier.HOT) == ""
    assert tier_refusal(replace(recent, label="the final model", newer=None), tier) == ""


@pytest.mark.parametrize("redundancy", ["ZRS", "GZRS", "RAGZRS"])
def test_an_account_in_zones_has_no_archive(redundancy: str) -> None:
    assert redundancy in tier_refusal(replace(OVER, redundancy=redundancy), AccessTier.ARCHIVE)
    assert tier_refusal(replace(OVER, redundancy=redundancy), AccessTier.COLD) == ""


def test_manifests_and_small_files_stay_hot_while_the_rest_is_moved() -> None:
    step = next_tier_step(
        [SHARD, MANIFEST, SMALL_FILE], AccessTier.ARCHIVE, ArchivePriority.STANDARD
    )

    assert step == SetTier((SHARD.name,))


def test_a_rehydration_is_waited_for_and_can_be_hurried_once() -> None:
    coming = replace(
        SHARD,
        tier=AccessTier.ARCHIVE,
        rehydrating=AccessTier.HOT,
        priority=ArchivePriority.STANDARD,
    )
    hurried = replace(coming, priority=ArchivePriority.HIGH)

    assert next_tier_step([coming], AccessTier.HOT, ArchivePriority.STANDARD) == AwaitRehydration(1)
    assert next_tier_step([coming], AccessTier.HOT, ArchivePriority.HIGH) == SetTier((SHARD.name,))
    assert next_tier_step([hurried], AccessTier.HOT, ArchivePriority.HIGH) == AwaitRehydration(1)
    assert next_tier_step([hurried], AccessTier.HOT, ArchivePriority.STANDARD) == AwaitRehydration(
        1
    )


def test_one_archived_file_keeps_the_whole_from_being_read() -> None:
    archived = replace(SHARD, tier=AccessTier.ARCHIVE)
    coming = replace(archived, rehydrating=AccessTier.HOT)

    step = next_tier_step([], AccessTier.COOL, ArchivePriority.STANDARD)

    assert step == TierMoveEnd(TierMoveOutcome.GONE)
    assert folder_presence([]) is Presence.GONE
    assert folder_presence([MANIFEST, SHARD]) is Presence.ONLINE
    assert folder_presence([MANIFEST, archived]) is Presence.ARCHIVED
    assert folder_presence([archived, MANIFEST]) is Presence.ARCHIVED
    assert folder_presence([archived, coming]) is Presence.REHYDRATING
    assert (coolest_tier([MANIFEST, archived]), coolest_tier([])) == (
        AccessTier.ARCHIVE,
        AccessTier.HOT,
    )


@pytest.mark.parametrize(
    ("gib", "priority", "hours"),
    [
        (900, ArchivePriority.STANDARD, 15),
        (10, ArchivePriority.HIGH, 1),
        (25, ArchivePriority.HIGH, 2.5),
    ],
)
def test_the_archive_gives_back_within_the_time_that_azure_names(
    gib: int, priority: ArchivePriority, hours: float
) -> None:
    assert time_to_rehydrate(gib * GIB, priority) == timedelta(hours=hours)


TIERS, PRIORITIES = st.sampled_from(list(AccessTier)), st.sampled_from(list(ArchivePriority))
BLOBS = st.lists(
    st.builds(
        TieredBlob,
        name=st.sampled_from(["f/a", "f/b", "f/c", "f/manifest.json"]),
        size=st.integers(0, 4 * SMALL),
        tier=TIERS,
        movable=st.booleans(),
    ),
    min_size=1,
    max_size=4,
    unique_by=lambda blob: blob.name,
)


@given(BLOBS, TIERS, PRIORITIES, st.data())
def test_a_move_ends_however_often_it_is_broken_off(
    blobs: list[TieredBlob], tier: AccessTier, priority: ArchivePriority, data: st.DataObject
) -> None:
    """Azure that takes some of the orders, loses others, and gives the archive back in its time."""
    was = {blob.name: blob.tier for blob in blobs}
    for _ in range(40):
        match next_tier_step(blobs, tier, priority):
            case SetTier(names):
                accepted = data.draw(st.sampled_from([names, names[:1], names[-1:]]))
                blobs = [_ordered(b, tier, priority) if b.name in accepted else b for b in blobs]
            case AwaitRehydration():
                blobs = [
                    replace(b, tier=b.rehydrating, rehydrating=None) if b.rehydrating else b
                    for b in blobs
                ]
            case TierMoveEnd(outcome):
                break
    else:
        raise AssertionError("the move did not end")

    assert outcome is TierMoveOutcome.DONE
    for blob in blobs:
        stays = tier is not AccessTier.HOT and (
            blob.size < SMALL or blob.name.endswith("manifest.json")
        )
        assert blob.tier is (was[blob.name] if stays or not blob.movable else tier)


def _ordered(blob: TieredBlob, tier: AccessTier, priority: ArchivePriority) -> TieredBlob:
    if blob.tier is AccessTier.ARCHIVE:
        return replace(blob, rehydrating=tier, priority=priority)
    return replace(blob, tier=tier)
