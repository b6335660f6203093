"""Decide about Azure access tiers of stored folders: allowed moves, next step, presence.

A folder (a checkpoint, or the final model) moves as a whole. Its manifest and its small files stay
hot: Azure bills less than 128 KiB in the cooler tiers as 128 KiB, and the manifest must be readable
while everything else is archived.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum

from trainer.contract import MANIFEST

SMALL = 128 * 1024  # bytes; below this nothing is moved to a cooler tier
NEWEST_HOT = 3  # checkpoints of a job that goes on: what a resume may need
GIB = 2**30


class AccessTier(StrEnum):
    """Azure's access tiers, from the most expensive to store to the cheapest."""

    HOT = "hot"
    COOL = "cool"
    COLD = "cold"
    ARCHIVE = "archive"  # offline: it can be listed, and brought back


class ArchivePriority(StrEnum):
    """The priority of a rehydration from the archive tier."""

    STANDARD = "standard"
    HIGH = "high"


class Presence(StrEnum):
    """Whether a folder can be read."""

    ONLINE = "online"
    ARCHIVED = "archived"
    REHYDRATING = "rehydrating"
    GONE = "gone"  # deleted by a user or a lifecycle rule


class TierMoveOutcome(StrEnum):
    """How a move to another tier ended."""

    DONE = "done"
    GONE = "gone"  # what was to be moved has been deleted
    REPLACED = "replaced"  # by a request for another tier


ARCHIVE_REDUNDANCIES = frozenset({"LRS", "GRS", "RAGRS"})  # redundancies that have an archive
MIN_RETENTION = {  # that long at least is paid for
    AccessTier.HOT: timedelta(0),
    AccessTier.COOL: timedelta(days=30),
    AccessTier.COLD: timedelta(days=90),
    AccessTier.ARCHIVE: timedelta(days=180),
}
_STANDARD = timedelta(hours=15)
_HIGH = timedelta(hours=1)  # below 10 GiB; beyond, 10 GiB an hour
_HIGH_BYTES_PER_HOUR = 10 * GIB


@dataclass(frozen=True, kw_only=True)
class StorageAccount:
    """The storage account of the jobs' containers; unknown region: table prices."""

    region: str = ""
    redundancy: str = "LRS"


@dataclass(frozen=True, kw_only=True)
class TieredBlob:
    """One blob, version or snapshot, as Azure bills it."""

    name: str
    size: int
    tier: AccessTier = AccessTier.HOT
    since: datetime | None = None  # in this tier
    rehydrating: AccessTier | None = None  # on its way from the archive to there
    priority: ArchivePriority | None = None  # of that
    movable: bool = True  # an append blob has no tier; a version or a snapshot is not current


@dataclass(frozen=True, kw_only=True)
class FolderFacts:
    """What the rules need to know of a folder and its job."""

    label: str  # as a message names it
    job_is_over: bool
    newer: int | None  # checkpoints of the job that are newer than this one; None: the model
    milestone: bool  # kept for as long as the job is
    redundancy: str
    needed_by: tuple[str, ...] = ()  # jobs that are not over and read it


@dataclass(frozen=True)
class SetTier:
    """Set the tier of these blobs."""

    names: tuple[str, ...]


@dataclass(frozen=True)
class AwaitRehydration:
    """Wait: Azure is rehydrating the blobs."""

    remaining: int


@dataclass(frozen=True)
class TierMoveEnd:
    """The move has ended."""

    outcome: TierMoveOutcome


def tier_refusal(standing: FolderFacts, tier: AccessTier) -> str:
    """Return why the folder may not move to the tier, and what to do; empty if it may."""
    if tier is AccessTier.ARCHIVE and standing.redundancy not in ARCHIVE_REDUNDANCIES:
        return (
            f"The storage account is {standing.redundancy}, and Azure has an archive in LRS, GRS "
            "and RA-GRS accounts only. Take cool or cold."
        )
    if tier is AccessTier.ARCHIVE and standing.needed_by:
        return (
            f"{standing.needed_by[0]} goes on and reads {standing.label}, so it must stay online. "
            "Take cool or cold, or wait until that job is over."
        )
    if standing.job_is_over or tier is AccessTier.HOT:
        return ""
    if tier is AccessTier.ARCHIVE:
        return f"The job goes on, and {standing.label} must stay online. Take cool or cold."
    return "" if standing.newer is None else _why_hot(standing, standing.newer)


def folder_presence(blobs: Iterable[TieredBlob]) -> Presence:
    """Return whether all of the folder can be read."""
    presence = Presence.GONE
    for blob in blobs:
        if blob.rehydrating is not None:
            return Presence.REHYDRATING
        if blob.tier is AccessTier.ARCHIVE:
            presence = Presence.ARCHIVED
        elif presence is Presence.GONE:
            presence = Presence.ONLINE
    return presence


def coolest_tier(blobs: Iterable[TieredBlob]) -> AccessTier:
    """Return the coolest tier of the blobs; hot if nothing was moved."""
    order = list(AccessTier)
    return max((blob.tier for blob in blobs), key=order.index, default=AccessTier.HOT)


def blobs_to_move(blobs: Iterable[TieredBlob], tier: AccessTier) -> list[TieredBlob]:
    """Return the blobs that are not in the tier yet; small ones move only to hot."""
    return [
        blob
        for blob in blobs
        if blob.movable
        and blob.tier is not tier
        and (tier is AccessTier.HOT or not should_stay_hot(blob))
    ]


def should_stay_hot(blob: TieredBlob) -> bool:
    """Return whether the blob is never moved to a cooler tier."""
    return blob.size < SMALL or blob.name.rpartition("/")[2] == MANIFEST


def next_tier_step(
    blobs: Sequence[TieredBlob], tier: AccessTier, priority: ArchivePriority
) -> SetTier | AwaitRehydration | TierMoveEnd:
    """Return the next step of a move, from what is stored now."""
    if not blobs:
        return TierMoveEnd(TierMoveOutcome.GONE)
    remaining = blobs_to_move(blobs, tier)
    requestable = [b for b in remaining if b.rehydrating is None or _is_sooner(b, priority)]
    if requestable:
        return SetTier(tuple(blob.name for blob in requestable))
    return AwaitRehydration(len(remaining)) if remaining else TierMoveEnd(TierMoveOutcome.DONE)


def time_to_rehydrate(size: int, priority: ArchivePriority) -> timedelta:
    """Return the longest time that Azure states for a rehydration of ``size`` bytes."""
    if priority is ArchivePriority.STANDARD:
        return _STANDARD
    return max(_HIGH, timedelta(hours=size / _HIGH_BYTES_PER_HOUR))


def _why_hot(standing: FolderFacts, newer: int) -> str:
    """Return why a checkpoint of an unfinished job must stay hot; empty if it may be cooled."""
    name = f"{standing.label[:1].upper()}{standing.label[1:]}"
    if newer < NEWEST_HOT:
        return (
            f"{name} is one of the newest {NEWEST_HOT} of a job that goes on: a resume may need "
            "it, so it stays hot. Move an older milestone, or wait until the job is over."
        )
    if not standing.milestone:
        return (
            f"{name} is no milestone: a job that goes on drops it in time, and Azure bills what is "
            "deleted early from a cooler tier. Move a milestone, or wait until the job is over."
        )
    return ""


def _is_sooner(blob: TieredBlob, priority: ArchivePriority) -> bool:
    """Return whether the priority raises that of a pending rehydration; lowering is impossible."""
    return priority is ArchivePriority.HIGH and blob.priority is ArchivePriority.STANDARD
