"""What many attempts read and write when they are looked at, in one transaction for all of them."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from service.db.attempts import attempt_facts, attempts
from service.db.attempts.attempt_facts import Facts
from service.db.attempts.attempts import AttemptRow
from service.db.core.leases import Claim
from service.db.money import ledger
from service.db.money.ledger import Exist
from service.domain.cloud.fleet import Price, ScaleSet
from service.domain.errors import LeaseLost


@dataclass(frozen=True, kw_only=True)
class Observation:
    """One attempt as it was just seen from outside, and what of it is news to its row."""

    claim: Claim
    row: AttemptRow
    scale_set: ScaleSet | None
    at: datetime
    newest: str | None  # the path of the newest checkpoint that HEAD names
    asked: bool  # the cloud has answered just now; else this says nothing of costs
    told: bool  # the machines are those that the cloud or its silence tells, not the list

    @property
    def vm_ids(self) -> list[str] | None:
        """The machines that run; None: as before."""
        return running(self.scale_set) if self.told else None

    @property
    def whole(self) -> bool:
        """Once every machine is there, the next that is lost is asked for at once again."""
        full = len(running(self.scale_set)) >= self.row.instance_count
        return self.told and self.row.refills > 0 and full

    def exist(self, price: Price) -> Exist:
        """Every machine that exists is billed, one that lingers stopped as well.

        At ``price``, of now: the claimed row's may have moved while Azure was asked, and whoever
        moved it found no machines of ours in the ledger.

        Each is billed from when Azure took the order, whenever it is seen first: the first one, or
        the one for machines in place of lost ones. One that Azure adds by itself, under a vm_id
        that is new to us, is billed for the time before it as well: who watches what is spent may
        read too much, and never less than the invoice will say. What has no vm_id yet is billed
        once it has one, from that same moment on.
        """
        row, found = self.row, self.scale_set
        since = self.at
        if row.refilled_at:
            since = min(since, row.refilled_at)
        elif found and found.created_at:
            since = min(since, max(row.created_at, found.created_at))
        return Exist(
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
) -> list[Facts | Exception]:
    """Write down what is news and read the rest; LeaseLost for whom another worker has now."""
    news = [one for one in sights if one.asked or one.told]
    if not news:
        async with engine.connect() as conn:
            found = await _facts(conn, sights)
        return [found[one.row.id] for one in sights]
    async with engine.begin() as conn:
        lost = await _write_down(conn, news)
        found = await _facts(conn, [one for one in sights if one.row.id not in lost])
    return [found.get(one.row.id) or LeaseLost(f"attempts {one.row.id}") for one in sights]


async def _facts(conn: AsyncConnection, sights: Sequence[Observation]) -> dict[str, Facts]:
    return await attempt_facts.of(conn, [(one.row, one.newest) for one in sights])


async def _write_down(conn: AsyncConnection, news: Sequence[Observation]) -> set[str]:
    """Write the observations; return attempts whose lease is lost (not written)."""
    seen = [
        attempts.Seen(
            claim=one.claim,
            seen_at=one.at if one.asked else None,
            vm_ids=one.vm_ids,
            whole=one.whole,
        )
        for one in news
    ]
    ours = await attempts.saw(conn, seen)
    billed = [one for one in news if one.asked and one.row.id in ours]
    if billed:
        exist = [one.exist(ours[one.row.id]) for one in billed]
        await ledger.meter(conn, exist, max(one.at for one in billed))
    return {one.row.id for one in news} - ours.keys()
