"""Delete orphans, the scale sets without a live attempt: the backstop for unforeseen leaks.

An orphan that an attempt made is billed to it right before (`late_billing.py`).
"""

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cached_property

from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.ext.asyncio import AsyncEngine

from service.cloud import engines
from service.cloud.provider import ATTEMPT_TAG, CloudError, CloudProvider, ScaleSetNotFound
from service.db.attempts import attempts
from service.db.cloud import alarms
from service.db.cloud.scale_set_cache import ALL
from service.db.core.db_errors import is_unavailable
from service.db.jobs import events
from service.db.money import ledger
from service.domain.cloud.fleet import ScaleSet, ScaleSetPhase, scale_set_name
from service.domain.lifecycle.attempt import TOO_LONG_TO_DELETE
from service.reconciler.cloud.rate_limit import RateLimitedCloud
from service.reconciler.sweeps.late_billing import LateBilling, creator_id

log = logging.getLogger(__name__)
ALARM = "leak.will_not_die"
BILLING_GRACE = timedelta(seconds=30)  # an orphan that cannot be billed yet is kept for this long


@dataclass(frozen=True, kw_only=True)
class OrphanSweep:
    """Compares the scale sets that Azure lists under our tag with the live attempts."""

    engine: AsyncEngine
    cloud: CloudProvider
    now: Callable[[], datetime]
    limited_cloud: RateLimitedCloud | None = None  # None: the cloud is called without limits

    async def run_once(self) -> list[str]:
        """Begin deleting every orphan; return their names.

        If a bill could not be written, the other orphans are handled first and its error is raised
        at the end.
        """
        try:
            # List before reading rows: a row is older than its set.
            owned = await self._cloud_in_region(ALL).list_owned()
        except CloudError as fault:
            log.warning("sweep.list_failed", extra={"cause": str(fault)})
            return []
        async with self.engine.connect() as conn:
            live = {scale_set_name(i) for i in await attempts.live_ids(conn)}
            billed = await ledger.open_after_the_end(conn)
        orphans = [s for s in owned if s.name not in live]
        since = await self._record_sightings(orphans, complete=not engines.unlisted_reason(owned))
        faults = list[SQLAlchemyError]()
        for orphan in orphans:
            is_billed = await self._bill_machines(creator_id(orphan), billed, faults)
            await self._delete_or_alarm(
                orphan, self.now() - since[orphan.name], is_billed=is_billed
            )
        for attempt_id in sorted(billed - {creator_id(o) for o in orphans}):
            await self._bill_machines(attempt_id, billed, faults)
        if faults:
            raise faults[0]
        return [o.name for o in orphans]

    async def _delete_or_alarm(self, orphan: ScaleSet, age: timedelta, *, is_billed: bool) -> None:
        """Delete an orphan, and raise the alarm if its deletion is stuck.

        An orphan that is not billed is kept until it is BILLING_GRACE old.
        """
        if not is_billed and age < BILLING_GRACE:
            return
        refusal = ""
        if orphan.phase is not ScaleSetPhase.DELETING:
            log.error("sweep.orphan", extra={"scale_set": orphan.name})
            refusal = await self._delete(orphan)
        if age > TOO_LONG_TO_DELETE:
            await self._raise_alarm(orphan, refusal)

    async def _record_sightings(
        self, orphans: Sequence[ScaleSet], *, complete: bool
    ) -> dict[str, datetime]:
        async with self.engine.begin() as conn:
            names = [orphan.name for orphan in orphans]
            return await alarms.record(conn, ALARM, names, self.now(), is_complete=complete)

    async def _bill_machines(
        self, attempt_id: str, billed: set[str], faults: list[SQLAlchemyError]
    ) -> bool:
        """Bill the machines of an attempt; return whether it is billed.

        A failure does not stop the other bills.
        """
        try:
            return await self._late_billing.meter(attempt_id, billed=attempt_id in billed)
        except SQLAlchemyError as fault:
            if is_unavailable(fault):
                raise
            log.exception("sweep.not_billed", extra={"attempt": attempt_id})
            faults.append(fault)
            return False

    @cached_property
    def _late_billing(self) -> LateBilling:
        return LateBilling(engine=self.engine, cloud_in_region=self._cloud_in_region, now=self.now)

    def _cloud_in_region(self, region: str) -> CloudProvider:
        """Return the cloud with the rate limits of ``region``."""
        return self.limited_cloud.region(region) if self.limited_cloud else self.cloud

    async def _delete(self, orphan: ScaleSet) -> str:
        """Request the deletion; return why it was refused, or "" if accepted or already gone."""
        try:
            await self._cloud_in_region(orphan.pool).delete(orphan.name)
        except ScaleSetNotFound:
            return ""
        except CloudError as fault:  # does not delay the next orphans
            log.warning(
                "sweep.delete_failed", extra={"scale_set": orphan.name, "cause": str(fault)}
            )
            return str(fault)
        return ""

    async def _raise_alarm(self, orphan: ScaleSet, refusal: str) -> None:
        """Alert the operator repeatedly, and the user once if the scale set is of a known job."""
        facts = {"scale_set": orphan.name, "region": orphan.region}
        attempt_id = orphan.tags.get(ATTEMPT_TAG, "")
        cause = f" Azure says: {refusal}" if refusal else ""
        async with self.engine.begin() as conn:
            if not await alarms.claim(conn, ALARM, [orphan.name], self.now(), TOO_LONG_TO_DELETE):
                return
            log.error(ALARM, extra={**facts, "attempt": attempt_id, "cause": refusal})
            row = await attempts.find(conn, attempt_id)
            if row is None or await events.has_event(conn, row.job_id, ALARM, facts):
                return
            await events.add(
                conn,
                row.job_id,
                self.now(),
                ALARM,
                f"Scale set {orphan.name} of this job cannot be deleted and still costs money."
                f"{cause} The operator has been alerted.",
                attempt_id=row.id,
                level="error",
                data=facts,
            )
