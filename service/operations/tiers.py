"""Moving a checkpoint or the final model to another tier: look, quote, write the wish.

What lies where is asked of Blob each time, for lifecycle rules and people move blobs as well.
"""

import logging
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from service.db import events, jobs, tiers
from service.db.jobs import JobRow
from service.db.tiers import TierMove
from service.domain import storage_cost
from service.domain import tiers as rules
from service.domain.errors import Archived, CheckpointNotFound, Conflict, ModelNotFound
from service.domain.ids import new_id
from service.domain.states import JOB_TERMINAL
from service.domain.storage_cost import Quote, StoragePrices
from service.domain.tiers import Account, Presence, Priority, Standing, StoredBlob, Tier
from service.operations.jobs import get as get_job
from service.pricing import storage_prices
from service.pricing.source import PriceSource, PricesUnavailable
from service.storage.store import BlobStore, StorageError

log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class Outside:
    """What is asked when folders are looked at."""

    store: BlobStore
    prices: PriceSource
    account: Account

    async def listed(self) -> StoragePrices | None:
        """The prices of now; None where the list cannot be read."""
        try:
            return await self.prices.storage(self.account)
        except PricesUnavailable as fault:
            log.warning("storage.prices_unavailable", extra={"cause": str(fault)})
            return None


@dataclass(frozen=True, kw_only=True)
class Folder:
    """A committed checkpoint or the final model, as the database knows it."""

    job_id: str
    path: str
    checkpoint_id: str | None
    step: int | None
    newer: int | None
    job_is_over: bool

    @property
    def name(self) -> str:
        """As a sentence has it."""
        return "the final model" if self.step is None else f"the checkpoint of step {self.step}"

    @property
    def route(self) -> str:
        """Where its tier is asked for."""
        which = f"checkpoints/{self.checkpoint_id}" if self.checkpoint_id else "model"
        return f"/v1/fine_tuning/jobs/{self.job_id}/{which}/tier"

    @property
    def command(self) -> str:
        """The same for people."""
        which = f" --checkpoint {self.checkpoint_id}" if self.checkpoint_id else ""
        return f"rekindle tier {self.job_id} hot{which}"


@dataclass(frozen=True, kw_only=True)
class Look:
    """A folder, what lies in it, and what it is on its way to."""

    folder: Folder
    blobs: list[StoredBlob]
    prices: StoragePrices
    under_way: TierMove | None

    @property
    def presence(self) -> Presence:
        """Whether it can be read."""
        return rules.presence(self.blobs)


async def folders(conn: AsyncConnection, job: JobRow) -> list[Folder]:
    """All that can be moved: committed checkpoints, newest first, and the final model."""
    over = job.state in JOB_TERMINAL
    found = [
        Folder(
            job_id=job.id,
            path=place.path,
            checkpoint_id=place.id,
            step=place.step,
            newer=place.newer,
            job_is_over=over,
        )
        for place in await tiers.places(conn, job.id)
    ]
    if job.result is None:
        return found
    path = str(job.result["path"])
    model = Folder(
        job_id=job.id, path=path, checkpoint_id=None, step=None, newer=None, job_is_over=over
    )
    return [*found, model]


async def look(
    engine: AsyncEngine,
    outside: Outside,
    project_id: str,
    job_id: str,
    checkpoint_id: str | None,
) -> Look:
    """The folder as it is now, or raise CheckpointNotFound or ModelNotFound."""
    async with engine.connect() as conn:
        job = await get_job(conn, project_id, job_id)
        found = [f for f in await folders(conn, job) if f.checkpoint_id == checkpoint_id]
        if not found:
            raise _not_found(job, checkpoint_id)
        under_way = await tiers.open_for(conn, job_id, found[0].path)
    return Look(
        folder=found[0],
        blobs=await outside.store.list_stored(job_id, f"{found[0].path}/"),
        prices=await outside.listed() or storage_prices.TABLE,
        under_way=under_way,
    )


def quote(seen: Look, redundancy: str, tier: Tier, priority: Priority, now: datetime) -> Quote:
    """What it costs to move the folder there, or raise Conflict when it may not go there."""
    folder = seen.folder
    standing = Standing(
        what=folder.name,
        job_is_over=folder.job_is_over,
        newer=folder.newer,
        redundancy=redundancy,
    )
    if why := rules.refusal(standing, tier):
        raise Conflict(why, param="tier")
    if seen.presence is Presence.REHYDRATING and _elsewhere(seen, tier):
        raise Archived(_on_its_way(seen) + " Azure takes no other order until then.")
    return storage_cost.quote(seen.blobs, tier, priority, seen.prices, now)


async def move(
    conn: AsyncConnection, seen: Look, tier: Tier, priority: Priority, made: Quote, now: datetime
) -> TierMove | None:
    """Write the wish; the same one again is answered as it is. None: nothing is left to move."""
    folder = seen.folder
    await jobs.take_turn(conn, f"tier:{folder.job_id}:{folder.path}")
    before = await tiers.open_for(conn, folder.job_id, folder.path)
    expected_at = _expected(seen.blobs, tier, priority, now)
    if before is not None and before.tier is tier:
        if priority is Priority.HIGH and before.priority is not priority and expected_at:
            await tiers.hurry(conn, before, made.charge, expected_at, now)
        return await tiers.open_for(conn, folder.job_id, folder.path)
    if before is not None:
        await tiers.replace(conn, before, now)
    if not made.blobs:
        return None
    wish = TierMove(
        id=new_id("tier", now),
        job_id=folder.job_id,
        checkpoint_id=folder.checkpoint_id,
        path=folder.path,
        tier=tier,
        priority=priority,
        charge=made.charge,
        asked_at=now,
        expected_at=expected_at,
        ended_at=None,
        outcome=None,
        step=folder.step,
    )
    await tiers.ask(conn, wish)
    data = {"move": wish.id, "tier": tier, "charge": str(made.charge.normalize())}
    await events.add(conn, folder.job_id, now, "storage.tier_asked", _sentence(wish), data=data)
    return wish


async def may_resume(engine: AsyncEngine, outside: Outside, project_id: str, job_id: str) -> None:
    """Raise Archived when a paused job's newest checkpoint is no longer to be read.

    Where Blob cannot be asked, the wish is taken: the next attempt waits for Blob by itself.
    """
    async with engine.connect() as conn:
        job = await get_job(conn, project_id, job_id)
        newest = [folder for folder in await folders(conn, job) if folder.newer == 0]
    if job.pause_requested_at is None or job.state in JOB_TERMINAL:
        return
    with suppress(StorageError):
        for folder in newest:
            seen = await look(engine, outside, project_id, job_id, folder.checkpoint_id)
            must_be_online(seen)


def must_be_online(seen: Look) -> None:
    """Raise Archived, with every way back, unless the folder can be read."""
    if seen.presence is Presence.ONLINE:
        return
    if seen.presence is Presence.REHYDRATING:
        raise Archived(_on_its_way(seen) + " Try again then.")
    name, folder = seen.folder.name, seen.folder
    standard, high = ways_back(seen)
    raise Archived(
        f"{name[:1].upper()}{name[1:]} is archived. Bring it back first: {folder.command}, or "
        f'POST {folder.route} {{"tier": "hot"}}. That takes up to {hours(standard)} and costs '
        f'${cents(standard)}; with "priority": "high" (--priority high) about {hours(high)} and '
        f"${cents(high)}."
    )


def ways_back(seen: Look) -> tuple[storage_cost.Rehydration, storage_cost.Rehydration]:
    """What bringing it back costs and takes, with standard and with high priority."""
    standard, high = (storage_cost.rehydrating(seen.blobs, p, seen.prices) for p in Priority)
    return standard, high


def hours(way: storage_cost.Rehydration) -> str:
    """As a sentence has it."""
    return f"{way.takes.total_seconds() / 3600:.1f}".removesuffix(".0") + " h"


def cents(way: storage_cost.Rehydration) -> str:
    """To a hundredth of a cent."""
    return f"{way.cost:.4f}"


def _elsewhere(seen: Look, tier: Tier) -> bool:
    return any(b.rehydrating not in (None, tier) for b in seen.blobs)


def _expected(
    blobs: list[StoredBlob], tier: Tier, priority: Priority, now: datetime
) -> datetime | None:
    archived = sum(b.size for b in blobs if b.tier is Tier.ARCHIVE)
    if not archived or tier is Tier.ARCHIVE:
        return None
    return now + rules.time_to_rehydrate(archived, priority)


def _on_its_way(seen: Look) -> str:
    name = seen.folder.name
    expected_at = seen.under_way.expected_at if seen.under_way else None
    when = f", at {expected_at:%Y-%m-%d %H:%M} UTC at the latest" if expected_at else ""
    how = next((b.priority for b in seen.blobs if b.priority), Priority.STANDARD)
    return (
        f"{name[:1].upper()}{name[1:]} is on its way back from the archive ({how} priority{when})."
    )


def _sentence(wish: TierMove) -> str:
    what = "the final model" if wish.step is None else f"the checkpoint of step {wish.step}"
    if wish.expected_at is None:
        return f"To move {what} to {wish.tier} was asked for"
    return (
        f"To bring {what} back from the archive was asked for ({wish.priority} priority): it is "
        f"there at {wish.expected_at:%Y-%m-%d %H:%M} UTC at the latest"
    )


def _not_found(job: JobRow, checkpoint_id: str | None) -> CheckpointNotFound | ModelNotFound:
    if checkpoint_id is None:
        return ModelNotFound(f"Job {job.id} is {job.state}: it has no model yet.")
    return CheckpointNotFound(
        f"Job {job.id} has no checkpoint {checkpoint_id!r}. List them: "
        f"GET /v1/fine_tuning/jobs/{job.id}/checkpoints."
    )
