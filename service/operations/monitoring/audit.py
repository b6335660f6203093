"""Audit: list the cloud, then read the rows, in this order and in no transaction.

Resources without a known price are looked up in the price list, and unknown containers are counted.
"""

import logging
from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import or_, select
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from contract.choices import Engine
from service.cloud import engines
from service.cloud.provider import (
    ATTEMPT_TAG,
    JOB_TAG,
    CloudError,
    CloudProvider,
    Misconfigured,
)
from service.db.schema.tables import attempts
from service.domain.cloud.fleet import Offering, Price, TaggedResource
from service.domain.errors import ServiceUnavailable
from service.domain.lifecycle import audit
from service.domain.lifecycle.audit import AuditedResource, ScaleSetOwner
from service.domain.states import AttemptState
from service.operations.storage import containers
from service.pricing.source import PriceSource, PricesUnavailable
from service.storage.store import BlobStore, StorageError

log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class AuditResult:
    """The resources found, by name, and why untracked ones may be missing."""

    resources: list[AuditedResource]
    incomplete_reason: str  # what could not be listed and what to do; empty: nothing
    unknown_containers: int | None  # of jobs that no row knows; None: Blob did not answer


async def run_audit(
    engine: AsyncEngine,
    cloud: CloudProvider,
    store: BlobStore,
    source: PriceSource,
    now: datetime,
) -> AuditResult:
    """Compare what exists in Azure with what should exist.

    Raises ServiceUnavailable when scale sets cannot be listed.
    """
    try:
        scale_sets = await cloud.list_owned()  # first: a row is older than its set
    except CloudError as fault:
        raise ServiceUnavailable(
            f"Listing Azure resources failed; the audit is incomplete: {fault}"
        ) from fault
    untracked, incomplete_reason = await _list_untracked(cloud)
    unlisted = engines.unlisted_reason(scale_sets)
    if unlisted:
        reasons = _unlisted_clusters_message(unlisted), incomplete_reason
        incomplete_reason = " ".join(filter(None, reasons))
    tagged = {s.tags.get(ATTEMPT_TAG, "") for s in scale_sets} - {""}
    async with engine.connect() as conn:
        owners = await _find_owners(conn, tagged)
    prices = await _read_prices(source, audit.unpriced_offerings(scale_sets, owners))
    tags = {"attempt_tag": ATTEMPT_TAG, "job_tag": JOB_TAG}
    if unlisted:  # what was not listed is not missing
        owners = {i: o for i, o in owners.items() if o.engine is not Engine.AZUREML}
    findings = audit.audit_resources(
        scale_sets, owners, now, prices=prices, untracked=untracked, **tags
    )
    blobs = await _count_unknown_containers(engine, store, now)
    return AuditResult(
        resources=findings, incomplete_reason=incomplete_reason, unknown_containers=blobs
    )


async def _read_prices(source: PriceSource, offerings: list[Offering]) -> dict[Offering, Price]:
    """Return the list's current prices; none if it cannot be read."""
    try:
        return await source.prices(offerings) if offerings else {}
    except PricesUnavailable as fault:
        log.warning("prices.not_read", extra={"cause": str(fault)})
        return {}


async def _count_unknown_containers(
    engine: AsyncEngine, store: BlobStore, now: datetime
) -> int | None:
    try:
        return len(await containers.list_unknown_containers(engine, store, now))
    except StorageError as fault:
        log.warning("containers.not_listed", extra={"cause": str(fault)})
        return None


async def _list_untracked(cloud: CloudProvider) -> tuple[list[TaggedResource], str]:
    """Return untracked resources, or none and the reason: scale sets are most of the cost."""
    try:
        return await cloud.list_tagged(), ""
    except Misconfigured as fault:
        remedy = "Give the service's identity the actions of the role in infra/README.md."
        return [], _unlisted_message(fault, remedy)
    except CloudError as fault:
        return [], _unlisted_message(fault, "Retry in a minute.")


def _unlisted_clusters_message(reason: str) -> str:
    return f"The clusters of the Azure ML workspace could not be listed and are left out: {reason}"


def _unlisted_message(fault: CloudError, remedy: str) -> str:
    return f"Untracked resources could not be listed: {fault} - {remedy}"


async def _find_owners(conn: AsyncConnection, tagged: Collection[str]) -> dict[str, ScaleSetOwner]:
    """Return the attempts that have not ended and those that a scale set names in its tags."""
    c = attempts.c
    query = select(attempts).where(or_(c.state != AttemptState.ENDED, c.id.in_(tagged)))
    return {
        r.id: ScaleSetOwner(
            attempt_id=r.id,
            job_id=r.job_id,
            state=AttemptState(r.state),
            since=r.since,
            region=r.region,
            vm_size=r.vm_size,
            instance_count=r.instance_count,
            hourly=r.hourly,
            engine=Engine(r.engine),
        )
        for r in await conn.execute(query)
    }
