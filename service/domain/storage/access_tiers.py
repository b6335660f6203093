"""Access tiers of what a job has stored: which may be taken, what is left to do, what is online.

A folder (a checkpoint, or the final model) is what is moved. Its manifest and its small files stay
hot: Azure bills less than 128 KiB in the cooler tiers as 128 KiB, and a manifest must be readable
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


class Tier(StrEnum):
    """Azure's access tiers, the dearest to keep and cheapest to read first."""

    HOT = "hot"
    COOL = "cool"
    COLD = "cold"
    ARCHIVE = "archive"  # offline: it can be listed, and brought back


class Priority(StrEnum):
    """How soon something comes back from the archive."""

    STANDARD = "standard"
    HIGH = "high"


class Presence(StrEnum):
    """Whether a folder can be read."""

    ONLINE = "online"
    ARCHIVED = "archived"
    REHYDRATING = "rehydrating"
    GONE = "gone"  # somebody or a lifecycle rule has deleted it


class Outcome(StrEnum):
    """How a move to another tier ended."""

    DONE = "done"
    GONE = "gone"  # what was to be moved has been deleted
    REPLACED = "replaced"  # by a wish for another tier


ARCHIVING = frozenset({"LRS", "GRS", "RAGRS"})  # redundancies that have an archive
STAYS = {  # that long at least is paid for
    Tier.HOT: timedelta(0),
    Tier.COOL: timedelta(days=30),
    Tier.COLD: timedelta(days=90),
    Tier.ARCHIVE: timedelta(days=180),
}
_STANDARD = timedelta(hours=15)
_HIGH = timedelta(hours=1)  # below 10 GiB; beyond, 10 GiB an hour
_HIGH_BYTES_PER_HOUR = 10 * GIB


@dataclass(frozen=True, kw_only=True)
class Account:
    """The storage account that jobs' containers are in; an unknown region: prices of a table."""

    region: str = ""
    redundancy: str = "LRS"


@dataclass(frozen=True, kw_only=True)
class StoredBlob:
    """One blob, version or snapshot, as it is billed."""

    name: str
    size: int
    tier: Tier = Tier.HOT
    since: datetime | None = None  # in this tier
    rehydrating: Tier | None = None  # on its way from the archive to there
    priority: Priority | None = None  # of that
    movable: bool = True  # an append blob has no tier; a version or a snapshot is not current


@dataclass(frozen=True, kw_only=True)
class Standing:
    """What the rules must know of a folder and of its job."""

    what: str  # as a message names it
    job_is_over: bool
    newer: int | None  # checkpoints of the job that are newer than this one; None: the model
    milestone: bool  # kept for as long as the job is
    redundancy: str
    needed_by: tuple[str, ...] = ()  # jobs that are not over and read it


@dataclass(frozen=True)
class Order:
    """Set the tier of these blobs."""

    names: tuple[str, ...]


@dataclass(frozen=True)
class Wait:
    """Azure is bringing them back."""

    left: int


@dataclass(frozen=True)
class End:
    """Nothing is left to do."""

    outcome: Outcome


def refusal(standing: Standing, tier: Tier) -> str:
    """Why the folder may not go there, and what may be done instead; empty when it may."""
    if tier is Tier.ARCHIVE and standing.redundancy not in ARCHIVING:
        return (
            f"The storage account is {standing.redundancy}, and Azure has an archive in LRS, GRS "
            "and RA-GRS accounts only. Take cool or cold."
        )
    if tier is Tier.ARCHIVE and standing.needed_by:
        return (
            f"{standing.needed_by[0]} goes on and reads {standing.what}, so it must stay online. "
            "Take cool or cold, or wait until that job is over."
        )
    if standing.job_is_over or tier is Tier.HOT:
        return ""
    if tier is Tier.ARCHIVE:
        return f"The job goes on, and {standing.what} must stay online. Take cool or cold."
    return "" if standing.newer is None else _must_stay_hot(standing, standing.newer)


def presence(blobs: Iterable[StoredBlob]) -> Presence:
    """Whether all of it can be read."""
    found = Presence.GONE
    for blob in blobs:
        if blob.rehydrating is not None:
            return Presence.REHYDRATING
        if blob.tier is Tier.ARCHIVE:
            found = Presence.ARCHIVED
        elif found is Presence.GONE:
            found = Presence.ONLINE
    return found


def coolest(blobs: Iterable[StoredBlob]) -> Tier:
    """The tier that the folder as a whole is in; hot when nothing was ever moved."""
    order = list(Tier)
    return max((blob.tier for blob in blobs), key=order.index, default=Tier.HOT)


def moving(blobs: Iterable[StoredBlob], tier: Tier) -> list[StoredBlob]:
    """Those that are not where they should be: small ones too, if they should be hot."""
    return [
        blob
        for blob in blobs
        if blob.movable and blob.tier is not tier and (tier is Tier.HOT or not stays_hot(blob))
    ]


def stays_hot(blob: StoredBlob) -> bool:
    """Whether it is never moved to a cooler tier."""
    return blob.size < SMALL or blob.name.rpartition("/")[2] == MANIFEST


def next_step(blobs: Sequence[StoredBlob], tier: Tier, priority: Priority) -> Order | Wait | End:
    """What is left of a move, from what is stored now. The same facts give the same step."""
    if not blobs:
        return End(Outcome.GONE)
    left = moving(blobs, tier)
    asked = [b for b in left if b.rehydrating is None or _sooner(b, priority)]
    if asked:
        return Order(tuple(blob.name for blob in asked))
    return Wait(len(left)) if left else End(Outcome.DONE)


def time_to_rehydrate(size: int, priority: Priority) -> timedelta:
    """How long Azure takes at most, as it says."""
    if priority is Priority.STANDARD:
        return _STANDARD
    return max(_HIGH, timedelta(hours=size / _HIGH_BYTES_PER_HOUR))


def _must_stay_hot(standing: Standing, newer: int) -> str:
    """Why a checkpoint of a job that goes on may not be cooled; empty when it may."""
    name = f"{standing.what[:1].upper()}{standing.what[1:]}"
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


def _sooner(blob: StoredBlob, priority: Priority) -> bool:
    """A rehydration can be hurried, and never be slowed down."""
    return priority is Priority.HIGH and blob.priority is Priority.STANDARD
