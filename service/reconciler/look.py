"""What is true of an attempt right now: its scale set, its nodes, its generation, HEAD.

Whatever is learnt on the way (instances, machine time, committed checkpoints) is written
down at once, so that it is known even if the next step never happens.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from service.cloud.provider import CloudError, CloudProvider, ScaleSetNotFound
from service.db import attempts, events, generations, leases, ledger, nodes
from service.db.attempts import AttemptRow
from service.db.generations import Opened
from service.db.leases import Claim
from service.domain.attempt import Attempt, Seen
from service.domain.budget import USUAL, Allowance
from service.domain.fleet import Instance, ScaleSet, ScaleSetPhase, scale_set_name
from service.domain.generation import NodeView, without_excuse
from service.domain.node import NodeRecord, view
from service.domain.states import ATTEMPT_WITH_NODES, AttemptState
from service.operations import budgets, heads, help_wanted
from service.operations.help_wanted import Call
from service.reconciler import outlook
from service.storage.store import BlobStore, StorageError
from trainer.contract import Generation, Head


@dataclass(frozen=True, kw_only=True)
class Look:
    """The attempt with its job's wishes, and what was seen."""

    attempt: Attempt
    seen: Seen
    newest_number: int  # of the job's generations, read together with the nodes
    faults: tuple[CloudError | StorageError, ...]  # what could not be seen, and why
    call: Call | None  # the newest for help, or that it is over


async def look(
    engine: AsyncEngine,
    cloud: CloudProvider | ScaleSet,
    store: BlobStore,
    claim: Claim,
    row: AttemptRow,
    awake_since: datetime,
    now: datetime,
    allowance: Allowance = USUAL,
) -> Look:
    """Ask the cloud and Blob outside any transaction, then write down what is news.

    ``awake_since``: nobody is taken for silent who could not have been heard before. Nor is
    who still commits: it takes every member of the live generation to make a checkpoint.
    ``cloud`` is the scale set itself where the list of all tells enough of it: the cloud is not
    asked then, and the machines are as they were.
    Raises LeaseLost when another worker has the attempt.
    """
    listed = isinstance(cloud, ScaleSet)
    scale_set, cloud_fault = await _scale_set(cloud, row)
    head, head_fault = await _head(store, row)
    async with engine.begin() as conn:
        records = await nodes.of_attempt(conn, row.id)
        told = {} if listed else {"vm_ids": _running(scale_set), **_refilled(scale_set, row)}
        await _write_down(conn, claim, row, scale_set, now, told, asked=not (listed or cloud_fault))
        if head is not None:
            await heads.record(conn, row.job_id, head, now)
        committed_at = await events.last_at(conn, row.job_id, "checkpoint.committed")
        opened = await generations.current(conn, row.id)
        newest = head.newest.path if head and head.newest else None
        same = await generations.without_news(conn, row.id, newest) if head else []
        await budgets.guard(conn, row, allowance, now)
        attempt = await attempts.snapshot(conn, row)
        ahead = await outlook.ahead(conn, attempt, row, scale_set, opened, now)
        call = await help_wanted.newest(conn, row.job_id)
        last = await generations.newest(conn, row.job_id)
        ladder = await generations.ladder(conn, row.job_id, last)
    seen = _seen(scale_set, _views(scale_set, records, awake_since, now), records, opened, head)
    signs = [t for t in (seen.heard_at, awake_since, committed_at) if t is not None]
    seen = replace(
        seen,
        blind=cloud_fault is not None,
        heard_at=max(signs) if seen.heard_at else None,
        fruitless=without_excuse((g for g in same if g.rung == ladder.rung), seen.nodes),
        ladder=ladder,
        outlook=ahead,
    )
    faults = tuple(f for f in (cloud_fault, head_fault) if f is not None)
    number = last.number if last else 0
    return Look(attempt=attempt, seen=seen, newest_number=number, faults=faults, call=call)


async def _write_down(
    conn: AsyncConnection,
    claim: Claim,
    row: AttemptRow,
    scale_set: ScaleSet | None,
    now: datetime,
    told: Mapping[str, object],
    *,
    asked: bool,
) -> None:
    """Under the lease. What was not ``asked`` of the cloud just now says nothing of costs."""
    await leases.write(conn, claim, seen_at=now if asked else row.seen_at, **told)
    if asked:
        await _meter(conn, row, scale_set, now)


async def _scale_set(
    cloud: CloudProvider | ScaleSet, row: AttemptRow
) -> tuple[ScaleSet | None, CloudError | None]:
    """The scale set, or None when there is none; and why the cloud did not answer, if so.

    While nodes train, a cloud that does not answer is no reason to think that they are gone.
    """
    if isinstance(cloud, ScaleSet):
        return cloud, None
    if row.state is AttemptState.PENDING:
        return None, None
    name = scale_set_name(row.id)
    try:
        return await cloud.get(name), None
    except ScaleSetNotFound:
        return None, None
    except CloudError as fault:
        if row.state not in ATTEMPT_WITH_NODES:
            return None, fault
        as_before = tuple(Instance(instance_id="", vm_id=v, name="") for v in row.vm_ids)
        return ScaleSet(name=name, phase=ScaleSetPhase.READY, instances=as_before), fault


async def _head(store: BlobStore, row: AttemptRow) -> tuple[Head | None, StorageError | None]:
    """HEAD, or why it cannot be read: cancels and time limits must not depend on it."""
    if row.state not in ATTEMPT_WITH_NODES:
        return None, None
    try:
        head, _ = await heads.read(store, row.job_id)
    except StorageError as fault:
        return None, fault
    return head, None


def _running(scale_set: ScaleSet | None) -> list[str]:
    return sorted(i.vm_id for i in scale_set.instances if i.running) if scale_set else []


async def _meter(
    conn: AsyncConnection, row: AttemptRow, scale_set: ScaleSet | None, now: datetime
) -> None:
    """Every machine that exists is billed, one that lingers stopped as well.

    Each is billed from when Azure took the order, whenever it is seen first: the first one, or the
    one for machines in place of lost ones. One that Azure adds by itself, under a vm_id that is
    new to us, is billed for the time before it as well: who watches what is spent may read too
    much, and never less than the invoice will say. What has no vm_id yet is billed once it has
    one, from that same moment on.
    """
    exist = [i.vm_id for i in scale_set.instances if i.vm_id] if scale_set else []
    since = now
    if row.refilled_at:
        since = min(now, row.refilled_at)
    elif scale_set and scale_set.created_at:
        since = min(now, max(row.created_at, scale_set.created_at))
    price = row.price
    prices = (price.hourly, price.on_demand_hourly)
    await ledger.meter(conn, row.job_id, row.id, exist, *prices, now, since=since)


def _refilled(scale_set: ScaleSet | None, row: AttemptRow) -> dict[str, int]:
    """Once every machine is there, the next that is lost is asked for at once again."""
    full = row.refills > 0 and len(_running(scale_set)) >= row.instance_count
    return {"refills": 0} if full else {}


def _views(
    scale_set: ScaleSet | None, records: list[NodeRecord], awake_since: datetime, now: datetime
) -> list[NodeView]:
    running = set(_running(scale_set))
    heard = ((r, datetime.fromtimestamp(r.heard_at, UTC)) for r in records)
    return [view(r, r.vm_id in running, now - max(at, min(awake_since, now))) for r, at in heard]


def _seen(
    scale_set: ScaleSet | None,
    views: list[NodeView],
    records: list[NodeRecord],
    opened: Opened | None,
    head: Head | None,
) -> Seen:
    generation = opened.generation if opened else None
    return Seen(
        scale_set=scale_set,
        nodes=views,
        heard_at=_heard_at(generation, records),
        generation=generation,
        opened_at=opened.opened_at if opened else None,
        halted_at=opened.halted_at if opened else None,
        halt_kind=opened.halt_kind if opened else None,
        stepped=generation is not None and _stepped(generation, records),
        model_committed=head is not None and head.model is not None,
    )


def _heard_at(generation: Generation | None, records: list[NodeRecord]) -> datetime | None:
    """When the member that has been silent for longest was last heard."""
    if generation is None:
        return None
    heard = [r.heard_at for r in records if generation.member(r.node_id)]
    return datetime.fromtimestamp(min(heard), UTC) if heard else None


def _stepped(generation: Generation, records: list[NodeRecord]) -> bool:
    start = generation.checkpoint.step if generation.checkpoint else 0
    return any(r.generation == generation.number and r.step > start for r in records)
