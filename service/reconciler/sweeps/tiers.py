"""Carry out moves to other tiers, blob by blob, and detect the end of a rehydration.

Level-triggered: each step lists the folder, and moves the blobs that are not in their tier yet. So
after a kill the next step finds the rest. Before each blob it checks that no newer request exists.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial

from sqlalchemy.ext.asyncio import AsyncEngine

from service.db.core import leases
from service.db.core.leases import Claim
from service.db.jobs import events
from service.db.money import storage_cost
from service.db.storage import tier_moves
from service.db.storage.tier_moves import TierMove
from service.domain.errors import LeaseLost
from service.domain.storage.access_tiers import (
    ArchivePriority,
    AwaitRehydration,
    SetTier,
    TierMoveEnd,
    TierMoveOutcome,
    next_tier_step,
)
from service.storage.store import MAX_LISTED, BlobNotFound, BlobStore, StorageError

log = logging.getLogger(__name__)
BATCH_SIZE = 256  # blobs of one step
_POLL_INTERVALS = {
    ArchivePriority.STANDARD: timedelta(minutes=5),
    ArchivePriority.HIGH: timedelta(minutes=1),
}
_AFTER_FAULT = timedelta(seconds=30)
_DELAYED_EVENT = "storage.tier_delayed"


@dataclass(frozen=True, kw_only=True)
class TierMoves:
    """Reconciles every tier move that is due, one step at a time."""

    engine: AsyncEngine
    store: BlobStore
    now: Callable[[], datetime]
    timeout: float = 4.0  # seconds for one blob: ends before the next request begins (LEASE)

    async def claim(self, limit: int) -> list[Callable[[], Awaitable[None]]]:
        """Lease due moves; return for each the step to take under its lease."""
        async with self.engine.begin() as conn:
            claims = await tier_moves.claim_due(conn, self.now(), limit)
        return [partial(self._reconcile, claim, move) for claim, move in claims]

    async def run_once(self, limit: int = 20) -> int:
        """Take every step that is due, one after the other; return how many were."""
        steps = await self.claim(limit)
        for step in steps:
            await step()
        return len(steps)

    async def _reconcile(self, claim: Claim, move: TierMove) -> None:
        try:
            async with leases.renewing(self.engine, claim, self.now):
                await self._step(claim, move)
        except LeaseLost:
            log.info("tier.lease_lost", extra={"move": move.id})
        except StorageError as fault:
            log.warning("tier.step_failed", extra={"move": move.id, "cause": str(fault)})
            with suppress(LeaseLost):
                await self._record_delay(claim, move, str(fault))

    async def _step(self, claim: Claim, move: TierMove) -> None:
        blobs = await self.store.list_stored(move.job_id, f"{move.path}/", most=MAX_LISTED)
        match next_tier_step(blobs, move.tier, move.priority):
            case SetTier(names):
                for name in names[:BATCH_SIZE]:
                    await self._set_blob_tier(claim, move, name)
                await self._requeue(claim, timedelta(0))
            case AwaitRehydration():
                await self._requeue(claim, _POLL_INTERVALS[move.priority])
            case TierMoveEnd(outcome):
                await self._end_move(claim, move, outcome)

    async def _set_blob_tier(self, claim: Claim, move: TierMove, name: str) -> None:
        async with self.engine.begin() as conn:
            await tier_moves.record_start(conn, claim, self.now())
        try:
            async with asyncio.timeout(self.timeout):
                with suppress(BlobNotFound):  # the next step lists what is left
                    await self.store.set_tier(move.job_id, name, move.tier, move.priority)
        except TimeoutError as late:
            raise StorageError(f"Blob has not answered for {self.timeout:g} s.") from late

    async def _requeue(self, claim: Claim, delay: timedelta) -> None:
        async with self.engine.begin() as conn:
            await leases.release(conn, claim, self.now(), self.now() + delay)

    async def _end_move(self, claim: Claim, move: TierMove, outcome: TierMoveOutcome) -> None:
        now = self.now()
        code, message = _end_event(move, outcome)
        level = "info" if outcome is TierMoveOutcome.DONE else "warn"
        async with self.engine.begin() as conn:
            await tier_moves.end(conn, claim, outcome, now)
            await storage_cost.make_due(conn, move.job_id, now)
            data = {"move": move.id, "tier": move.tier}
            await events.add(conn, move.job_id, now, code, message, level=level, data=data)

    async def _record_delay(self, claim: Claim, move: TierMove, fault: str) -> None:
        """Retry later; add an event with the reason once per move."""
        now = self.now()
        facts = {"move": move.id}
        async with self.engine.begin() as conn:
            is_recorded = await events.has_event(conn, move.job_id, _DELAYED_EVENT, facts)
            await leases.release(conn, claim, now, now + _AFTER_FAULT)
            if not is_recorded:
                message = (
                    f"{_folder_title(move)} is not in {move.tier} yet; retrying. Error: {fault}"
                )
                await events.add(
                    conn, move.job_id, now, _DELAYED_EVENT, message, level="warn", data=facts
                )


def _end_event(move: TierMove, outcome: TierMoveOutcome) -> tuple[str, str]:
    if outcome is TierMoveOutcome.GONE:
        return (
            "storage.tier_gone",
            f"{_folder_title(move)} was deleted before it was in {move.tier}",
        )
    if move.expected_at is not None:
        return (
            "storage.rehydrated",
            f"{_folder_title(move)} is back from the archive, in {move.tier}",
        )
    return "storage.tier_changed", f"{_folder_title(move)} is in {move.tier} now"


def _folder_title(move: TierMove) -> str:
    return "The final model" if move.step is None else f"The checkpoint of step {move.step}"
