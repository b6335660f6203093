"""Replacements of missing machines: the intent and the events.

Machines are missing where Azure evicted them or did not deliver them with the others.
"""

from collections.abc import Collection
from datetime import datetime

from sqlalchemy.ext.asyncio import AsyncConnection

from service.db.attempts import attempts
from service.db.attempts.attempts import AttemptRow
from service.db.core.leases import Claim
from service.db.jobs import events
from service.domain import humanize
from service.domain.cloud.fleet import ScaleSetPhase
from service.domain.lifecycle.attempt import AttemptView
from service.domain.states import TIME_LIMITS, AttemptState


async def record_refill(
    conn: AsyncConnection,
    claim: Claim,
    row: AttemptRow,
    view: AttemptView,
    useless: Collection[str],
    now: datetime,
) -> None:
    """Write the intent to request replacements, with an event the first time.

    Adds another event once the first order has failed. Raises LeaseLost when another worker has
    taken over; it then does the same.
    """
    await attempts.note_refill(conn, claim, row, now, requests=0 if useless else 1)
    if useless:
        unhealthy_ids = {n.vm_id for n in view.nodes if n.unhealthy}  # these have events already
        await _record_useless(conn, row, set(useless) - unhealthy_ids, now)
        return
    missing = row.instance_count - view.running_instances
    scale_set = view.scale_set
    if row.refills == 0:
        detail = "to replace evicted ones"
        if row.state is AttemptState.PROVISIONING:
            suffix = f" ({scale_set.error_code})" if scale_set and scale_set.error_code else ""
            detail = f"that Azure did not deliver{suffix}; the delivered ones are kept"
        await events.add(
            conn,
            row.job_id,
            now,
            "node.replacement_asked",
            f"Requested {humanize.count_machines(missing)} {detail}",
            attempt_id=row.id,
            data={"machines": missing},
        )
    elif row.refills == 1 and scale_set and scale_set.phase is ScaleSetPhase.FAILED:
        await _record_no_capacity(conn, row, scale_set.error_message or scale_set.error_code, now)


async def record_refusal(
    conn: AsyncConnection, row: AttemptRow, reason: str, now: datetime
) -> None:
    """Add an event at the first refusal of a replacement by Azure."""
    if row.refills == 0:
        await _record_no_capacity(conn, row, reason, now)


async def _record_useless(
    conn: AsyncConnection, row: AttemptRow, useless: Collection[str], now: datetime
) -> None:
    facts = {"vm_ids": sorted(useless)}
    if not useless or await events.has_event(conn, row.job_id, "node.useless", facts):
        return  # its deletion takes a while
    limit, _ = TIME_LIMITS[AttemptState.STARTING]
    await events.add(
        conn,
        row.job_id,
        now,
        "node.useless",
        f"{humanize.count_machines(len(useless))} of attempt {row.number} did not join within"
        f" {humanize.format_duration(limit.total_seconds())}, or went silent: deleted, as it costs"
        " money; a replacement is requested while it can help",
        attempt_id=row.id,
        level="warn",
        data=facts,
    )


async def _record_no_capacity(
    conn: AsyncConnection, row: AttemptRow, reason: str, now: datetime
) -> None:
    meanwhile = "training continues on the remaining machines"
    if row.state is AttemptState.PROVISIONING:
        meanwhile = "the delivered machines are kept until the provisioning timeout"
    await events.add(
        conn,
        row.job_id,
        now,
        "node.no_replacement",
        f"No replacement capacity ({humanize.as_sentence(reason).rstrip('.')}); {meanwhile}."
        " Retrying, at most every 5 minutes",
        attempt_id=row.id,
        level="warn",
    )
