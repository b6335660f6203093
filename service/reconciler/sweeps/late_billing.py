"""Bill machines that were created after the end of their attempt, by a delayed create request.

A worker checks its lease right before it requests machines. If it stalls between the check and the
call, or Azure accepts the request late, the scale set is created after the attempt has ended. The
sweep deletes it (`orphans.py`), and its cost goes into the ledger of its attempt.
"""

import logging
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from service.cloud.provider import ATTEMPT_TAG, CloudError, CloudProvider, ScaleSetNotFound
from service.db.attempts import attempts
from service.db.attempts.attempts import AttemptRow
from service.db.core.leases import LEASE
from service.db.jobs import events, job_versions
from service.db.money import ledger
from service.db.money.ledger import ExistingMachines
from service.domain.cloud.fleet import ScaleSet, scale_set_name
from service.domain.states import AttemptState

log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class LateBilling:
    """Opens and closes ledger rows of ended attempts by the machines that Azure reports."""

    engine: AsyncEngine
    cloud_in_region: Callable[[str], CloudProvider]  # the cloud with the rate limits of a region
    now: Callable[[], datetime]

    async def meter(self, attempt_id: str, *, billed: bool) -> bool:
        """Meter the machines of an ended attempt as Azure reports them now.

        ``billed``: the attempt has open ledger rows. Returns False if nothing was written, because
        Azure does not answer or another replica has metered later. Returns True, and writes
        nothing, for any other attempt.
        """
        async with self.engine.connect() as conn:
            row = await attempts.find(conn, attempt_id)
        if row is None or row.state is not AttemptState.ENDED:
            return True
        return await self._meter_row(row, billed=billed)

    async def _meter_row(self, row: AttemptRow, *, billed: bool) -> bool:
        at, name = self.now(), scale_set_name(row.id)
        try:
            scale_set = await self.cloud_in_region(row.offering.pool).get(name)
        except ScaleSetNotFound:
            scale_set = None
        except CloudError as fault:  # the next sweep tries again
            log.warning("sweep.look_failed", extra={"scale_set": name, "cause": str(fault)})
            return False
        machines = _billable_machines(row, scale_set, at)
        if not (machines.vm_ids or billed):
            return True
        async with self.engine.begin() as conn:
            if self.now() - at > LEASE:  # another replica may have newer data by now
                return False
            return await _write(conn, row, machines, at)


def creator_id(orphan: ScaleSet) -> str:
    """Return the id of the attempt that created a scale set, by tag and name; else empty."""
    attempt_id = orphan.tags.get(ATTEMPT_TAG, "")
    return attempt_id if scale_set_name(attempt_id) == orphan.name else ""


def _billable_machines(
    row: AttemptRow, scale_set: ScaleSet | None, at: datetime
) -> ExistingMachines:
    """Return the machines to bill, from their creation on, as `observations.py` does."""
    created_at = scale_set.created_at if scale_set and scale_set.created_at else at
    return ExistingMachines(
        job_id=row.job_id,
        attempt_id=row.id,
        vm_ids=[i.vm_id for i in scale_set.instances if i.vm_id] if scale_set else [],
        price=row.price,
        since=min(at, max(row.created_at, created_at)),
    )


async def _write(
    conn: AsyncConnection, row: AttemptRow, machines: ExistingMachines, at: datetime
) -> bool:
    """Move the attempt's end to ``at``, so that sums over a period include its cost.

    Returns False, and writes nothing, if the attempt was observed after ``at``.
    """
    if not await attempts.move_end(conn, row.id, at):
        return False
    await ledger.meter(conn, [machines], at)
    facts = {"scale_set": scale_set_name(row.id)}
    if not machines.vm_ids or await events.has_event(conn, row.job_id, "attempt.made_late", facts):
        await job_versions.raise_version(conn, row.job_id, at)  # the cost has changed
        return True
    await events.add(
        conn,
        row.job_id,
        at,
        "attempt.made_late",
        f"Attempt {row.number}: Azure created its machines after its end, by a delayed request."
        " They are being deleted, and cost money until then.",
        attempt_id=row.id,
        level="warn",
        data=facts,
    )
    return True
