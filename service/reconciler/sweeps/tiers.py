"""Carries out moves to other tiers, blob by blob, and notices when the archive has given back.

Level-triggered: each step lists the folder, and orders what is not where it should be. Killed
anywhere, it finds the rest at the next look; a blob that is there already is not touched again.
Before each order it makes sure that nobody wants something else meanwhile.
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
from service.storage.store import LISTED, BlobNotFound, BlobStore, StorageError

log = logging.getLogger(__name__)
AT_ONCE = 256  # blobs of one step; the rest at the next
_POLL = {ArchivePriority.STANDARD: timedelta(minutes=5), ArchivePriority.HIGH: timedelta(minutes=1)}
_AFTER_FAULT = timedelta(seconds=30)
_DELAYED = "storage.tier_delayed"


@dataclass(frozen=True, kw_only=True)
class TierMoves:
    """Takes one step for every move that is due."""

    engine: AsyncEngine
    store: BlobStore
    now: Callable[[], datetime]
    patience: float = 4.0  # for an order: it is over before another wish begins (leases.LEASE)

    async def claim(self, limit: int) -> list[Callable[[], Awaitable[None]]]:
        """Lease what is due; each lease comes as the step to take under it."""
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
                await self._delay(claim, move, str(fault))

    async def _step(self, claim: Claim, move: TierMove) -> None:
        blobs = await self.store.list_stored(move.job_id, f"{move.path}/", most=LISTED)
        match next_tier_step(blobs, move.tier, move.priority):
            case SetTier(names):
                for name in names[:AT_ONCE]:
                    await self._order(claim, move, name)
                await self._again(claim, timedelta(0))
            case AwaitRehydration():
                await self._again(claim, _POLL[move.priority])
            case TierMoveEnd(outcome):
                await self._end(claim, move, outcome)

    async def _order(self, claim: Claim, move: TierMove, name: str) -> None:
        async with self.engine.begin() as conn:
            await tier_moves.record_start(conn, claim, self.now())
        try:
            async with asyncio.timeout(self.patience):
                with suppress(BlobNotFound):  # the next look tells what is left
                    await self.store.set_tier(move.job_id, name, move.tier, move.priority)
        except TimeoutError as late:
            raise StorageError(f"Blob has not answered for {self.patience:g} s.") from late

    async def _again(self, claim: Claim, delay: timedelta) -> None:
        async with self.engine.begin() as conn:
            await leases.release(conn, claim, self.now(), self.now() + delay)

    async def _end(self, claim: Claim, move: TierMove, outcome: TierMoveOutcome) -> None:
        now = self.now()
        code, message = _news(move, outcome)
        level = "info" if outcome is TierMoveOutcome.DONE else "warn"
        async with self.engine.begin() as conn:
            await tier_moves.end(conn, claim, outcome, now)
            await storage_cost.make_due(conn, move.job_id, now)
            data = {"move": move.id, "tier": move.tier}
            await events.add(conn, move.job_id, now, code, message, level=level, data=data)

    async def _delay(self, claim: Claim, move: TierMove, fault: str) -> None:
        """Retry later; add an event with the reason once per move."""
        now = self.now()
        about = {"move": move.id}
        async with self.engine.begin() as conn:
            told = await events.has_event(conn, move.job_id, _DELAYED, about)
            await leases.release(conn, claim, now, now + _AFTER_FAULT)
            if not told:
                message = f"{_what(move)} is not in {move.tier} yet, and is tried again: {fault}"
                await events.add(
                    conn, move.job_id, now, _DELAYED, message, level="warn", data=about
                )


def _news(move: TierMove, outcome: TierMoveOutcome) -> tuple[str, str]:
    if outcome is TierMoveOutcome.GONE:
        return "storage.tier_gone", f"{_what(move)} was deleted before it was in {move.tier}"
    if move.expected_at is not None:
        return "storage.rehydrated", f"{_what(move)} is back from the archive, in {move.tier}"
    return "storage.tier_changed", f"{_what(move)} is in {move.tier} now"


def _what(move: TierMove) -> str:
    return "The final model" if move.step is None else f"The checkpoint of step {move.step}"
