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
    observed_at: datetime
    newest_path: str | None  # the path of the newest checkpoint that HEAD names
    cloud_answered: bool  # the cloud answered just now; else machines are not metered by this
    updates_machines: bool  # the machines come from the cloud, or its silence, not from the list

    @property
    def vm_ids(self) -> list[str] | None:
        """The vm_ids of the machines that run; None: unchanged."""
        return running_vm_ids(self.scale_set) if self.updates_machines else None

    @property
    def is_refill_complete(self) -> bool:
        """Whether every machine is there after a refill: the next refill needs no backoff."""
        is_complete = len(running_vm_ids(self.scale_set)) >= self.row.instance_count
        return self.updates_machines and self.row.refills > 0 and is_complete

    def existing_machines(self, price: Price) -> ExistingMachines:
        """Return the machines to bill: every one that exists, even if it lingers stopped.

        ``price`` is the current one. The claimed row's may have changed while Azure was asked, and
        `PriceWatch` then found no machines of this attempt in the ledger.

        Each machine is billed from when Azure accepted its request (the creation or the refill),
        whenever it is seen first. So a machine that Azure adds by itself, with a new vm_id, is
        billed for some time before it existed: the cost shown may exceed the invoice, and is never
        below it. A machine without a vm_id is billed once it has one, from the same moment on.
        """
        row, scale_set = self.row, self.scale_set
        since = self.observed_at
        if row.refilled_at:
            since = min(since, row.refilled_at)
        elif scale_set and scale_set.created_at:
            since = min(since, max(row.created_at, scale_set.created_at))
        return ExistingMachines(
            job_id=row.job_id,
            attempt_id=row.id,
            vm_ids=[i.vm_id for i in scale_set.instances if i.vm_id] if scale_set else [],
            price=price,
            since=since,
        )


def running_vm_ids(scale_set: ScaleSet | None) -> list[str]:
    """Return the vm_ids of the running machines."""
    return sorted(i.vm_id for i in scale_set.instances if i.running) if scale_set else []


async def record_observations(
    engine: AsyncEngine, observations: Sequence[Observation]
) -> list[AttemptInputs | Exception]:
    """Write new observations and read facts; return LeaseLost where another worker has the row."""
    new_observations = [
        observation
        for observation in observations
        if observation.cloud_answered or observation.updates_machines
    ]
    if not new_observations:
        async with engine.connect() as conn:
            facts = await _read_facts(conn, observations)
        return [facts[observation.row.id] for observation in observations]
    async with engine.begin() as conn:
        lost_ids = await _write_observations(conn, new_observations)
        facts = await _read_facts(
            conn,
            [observation for observation in observations if observation.row.id not in lost_ids],
        )
    return [
        facts.get(observation.row.id) or LeaseLost(f"attempts {observation.row.id}")
        for observation in observations
    ]


async def _read_facts(
    conn: AsyncConnection, observations: Sequence[Observation]
) -> dict[str, AttemptInputs]:
    return await attempt_facts.read_inputs(
        conn, [(observation.row, observation.newest_path) for observation in observations]
    )


async def _write_observations(
    conn: AsyncConnection, observations: Sequence[Observation]
) -> set[str]:
    """Write the observations; return attempts whose lease is lost (not written)."""
    records = [
        attempts.ScaleSetObservation(
            claim=observation.claim,
            seen_at=observation.observed_at if observation.cloud_answered else None,
            vm_ids=observation.vm_ids,
            is_complete=observation.is_refill_complete,
        )
        for observation in observations
    ]
    prices = await attempts.record_observations(conn, records)
    billed = [
        observation
        for observation in observations
        if observation.cloud_answered and observation.row.id in prices
    ]
    if billed:
        machines = [
            observation.existing_machines(prices[observation.row.id]) for observation in billed
        ]
        await ledger.meter(conn, machines, max(observation.observed_at for observation in billed))
    return {observation.row.id for observation in observations} - prices.keys()
