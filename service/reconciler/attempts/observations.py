"""Record the observations of many attempts, and read their facts, in one transaction."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from service.db.attempts import attempt_facts, attempts
from service.db.attempts.attempt_facts import AttemptInputs
from service.db.attempts.attempts import AttemptRow
from service.db.core.leases import Claim
from service.db.money import ledger
from service.db.money.ledger import ExistingMachines
from service.domain.cloud.fleet import Price, ScaleSet
from service.domain.errors import LeaseLost


@dataclass(frozen=True, kw_only=True)
class Observation:
    """An attempt as the cloud and Blob show it, before it is compared with its row."""

    claim: Claim
    row: AttemptRow
    scale_set: ScaleSet | None
    at: datetime
    newest: str | None  # the path of the newest checkpoint that HEAD names
    asked: bool  # the cloud answered just now; else machines are not metered by this
    told: bool  # the machines come from the cloud, or its silence, not from the list

    @property
    def vm_ids(self) -> list[str] | None:
        """The vm_ids of the machines that run; None: unchanged."""
        return running(self.scale_set) if self.told else None

    @property
    def whole(self) -> bool:
        """Whether every machine is there after a refill: the next refill needs no backoff."""
        full = len(running(self.scale_set)) >= self.row.instance_count
        return self.told and self.row.refills > 0 and full

    def exist(self, price: Price) -> ExistingMachines:
        """Return the machines to bill: every one that exists, even if it lingers stopped.

        ``price`` is the current one. The claimed row's may have changed while Azure was asked, and
        `PriceWatch` then found no machines of this attempt in the ledger.

        Each machine is billed from when Azure accepted its request (the creation or the refill),
        whenever it is seen first. So a machine that Azure adds by itself, with a new vm_id, is
        billed for some time before it existed: the cost shown may exceed the invoice, and is never
        below it. A machine without a vm_id is billed once it has one, from the same moment on.
        """
        row, found = self.row, self.scale_set
        since = self.at
        if row.refilled_at:
            since = min(since, row.refilled_at)
        elif found and found.created_at:
            since = min(since, max(row.created_at, found.created_at))
        return ExistingMachines(
            job_id=row.job_id,
            attempt_id=row.id,
            vm_ids=[i.vm_id for i in found.instances if i.vm_id] if found else [],
            price=price,
            since=since,
        )


def running(scale_set: ScaleSet | None) -> list[str]:
    """Return the vm_ids of the running machines."""
    return sorted(i.vm_id for i in scale_set.instances if i.running) if scale_set else []


async def record_observations(
    engine: AsyncEngine, sights: Sequence[Observation]
) -> list[AttemptInputs | Exception]:
    """Write new observations and read facts; return LeaseLost where another worker has the row."""
    news = [one for one in sights if one.asked or one.told]
    if not news:
        async with engine.connect() as conn:
            found = await _facts(conn, sights)
        return [found[one.row.id] for one in sights]
    async with engine.begin() as conn:
        lost = await _write_down(conn, news)
        found = await _facts(conn, [one for one in sights if one.row.id not in lost])
    return [found.get(one.row.id) or LeaseLost(f"attempts {one.row.id}") for one in sights]


async def _facts(conn: AsyncConnection, sights: Sequence[Observation]) -> dict[str, AttemptInputs]:
    return await attempt_facts.read_inputs(conn, [(one.row, one.newest) for one in sights])


async def _write_down(conn: AsyncConnection, news: Sequence[Observation]) -> set[str]:
    """Write the observations; return attempts whose lease is lost (not written)."""
    seen = [
        attempts.ScaleSetObservation(
            claim=one.claim,
            seen_at=one.at if one.asked else None,
            vm_ids=one.vm_ids,
            is_complete=one.whole,
        )
        for one in news
    ]
    ours = await attempts.record_observations(conn, seen)
    billed = [one for one in news if one.asked and one.row.id in ours]
    if billed:
        exist = [one.exist(ours[one.row.id]) for one in billed]
        await ledger.meter(conn, exist, max(one.at for one in billed))
    return {one.row.id for one in news} - ours.keys()
