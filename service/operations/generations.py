"""Opening and halting generations: the database's part, one transaction each."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from sqlalchemy.ext.asyncio import AsyncConnection

from service.db import attempt_moves, attempts, events, generations, jobs, leases, nodes, versions
from service.db.attempts import AttemptRow
from service.db.events import Event
from service.db.leases import Claim
from service.domain import wording
from service.domain.attempt import JOINS, OpenGeneration
from service.domain.errors import LeaseLost
from service.domain.generation import Halt
from service.domain.ids import new_id
from service.operations import heads
from trainer.contract import DirectiveKind, Generation, Head, Member

_SOON = timedelta(seconds=1)


async def open_next(
    conn: AsyncConnection,
    claim: Claim,
    row: AttemptRow,
    step: OpenGeneration,
    head: Head,
    run_spec_sha256: str,
    now: datetime,
) -> Generation:
    """Write the row that ``head`` was fenced for, and direct its members to start.

    Raises LeaseLost when another worker has taken over meanwhile; it then does the same.
    """
    generation = _generation(row, step, head, run_spec_sha256)
    before = await generations.current(conn, row.id)
    ids = [m.node_id for m in generation.members]
    await nodes.direct(conn, ids, DirectiveKind.START, generation.number)
    known = (before and before.halted_at) or now
    counted = await attempt_moves.outlived(conn, row, known) if step.lost else {}
    await attempts.release(conn, claim, now, _SOON, **counted)  # locks: nodes, attempt, job
    lost = await generations.add(conn, generation, now)
    await heads.record(conn, row.job_id, head, now)
    await jobs.count_lost_steps(conn, row.job_id, lost)
    from_step = head.newest.step if head.newest else 0
    await jobs.progressed(conn, row.job_id, now, {"step": from_step})  # what is lost is not done
    if step.after_error:
        await jobs.count_trainer_error(conn, row.job_id)
    if step.lost:
        await events.add(
            conn,
            row.job_id,
            now,
            "node.evicted",
            _taken(row, step),
            attempt_id=row.id,
            level="warn",
        )
    await events.add(
        conn,
        row.job_id,
        now,
        "generation.opened",
        _sentence(row, generation, before.generation if before else None) + _less(step),
        attempt_id=row.id,
        level="warn" if step.because else "info",
        data={"generation": generation.number, "step": from_step, "nodes": len(ids)}
        | ({"rung": step.rung.to_plain()} if step.rung else {}),
    )
    return generation


@dataclass(frozen=True, kw_only=True)
class Halting:
    """One attempt's generation that is to be stopped, under the attempt's lease."""

    claim: Claim
    row: AttemptRow
    generation: Generation
    step: Halt
    again: timedelta = _SOON  # until the next look, if nobody asks for one


async def halt_all(conn: AsyncConnection, halts: Sequence[Halting], now: datetime) -> None:
    """Direct the members that have not settled to stop, and look again in a while.

    Raises LeaseLost if any of the leases is lost: then none of it may be committed.
    """
    told = [(one.generation, one.step.kind, one.step.reason) for one in halts]
    first = await generations.mark_halted(conn, told, now)
    orders = {
        node_id: (one.step.kind, one.generation.number)
        for one in halts
        for node_id in one.step.node_ids
    }
    await nodes.direct_all(conn, orders)
    due = [(one.claim, now + one.again) for one in halts]
    held = await leases.release_all(conn, due, now)  # locks: generations, nodes, attempts, jobs
    if lost := {one.row.id for one in halts} - held:
        raise LeaseLost(f"attempts {sorted(lost)}")
    news = [one for one in halts if one.row.job_id in first]
    await versions.raise_all(conn, [one.row.job_id for one in news], now)
    await events.add_all(conn, [_halted(one, now) for one in news])


def _halted(one: Halting, now: datetime) -> Event:
    step = one.step
    return Event(
        id=new_id("ftevent", now),
        job_id=one.row.job_id,
        attempt_id=one.row.id,
        at=now,
        level="info" if step.reason == JOINS else "warn",
        code="generation.halted",
        message=f"Generation {one.generation.number} is stopped: {step.reason}",
        data={"kind": step.kind},
    )


def _generation(
    row: AttemptRow, step: OpenGeneration, head: Head, run_spec_sha256: str
) -> Generation:
    members = tuple(
        Member(node_id=n.node_id, vm_id=n.vm_id, address=n.address, node_rank=rank)
        for rank, n in enumerate(step.nodes)
    )
    return Generation(
        number=head.generation,
        job_id=row.job_id,
        attempt_id=row.id,
        members=members,
        processes_per_node=row.processes_per_node,
        master_address=step.nodes[0].address,
        master_port=step.nodes[0].free_port,
        checkpoint=head.newest,
        run_spec_sha256=run_spec_sha256,
        rung=step.rung,
    )


def _taken(row: AttemptRow, step: OpenGeneration) -> str:
    noticed = sum(n.evicting for n in step.lost)
    how = f", {noticed} of them with notice" if 0 < noticed < len(step.lost) else ""
    how = how or (" with notice" if noticed else " without notice")
    return f"Azure took {len(step.lost)} of {wording.machines(row.instance_count)} back{how}"


def _less(step: OpenGeneration) -> str:
    return f", with {step.because}" if step.because else ""


def _sentence(row: AttemptRow, opened: Generation, before: Generation | None) -> str:
    """What is new about the generation: how it begins, or who is not there or has joined."""
    count, full = len(opened.members), row.instance_count
    start = f"from step {opened.checkpoint.step}" if opened.checkpoint else "from the base model"
    number = f"(generation {opened.number})"
    known = {m.node_id for m in before.members} if before else set()
    fresh = sum(m.node_id not in known for m in opened.members)
    if before is None or (count == len(known) == full and not fresh):
        begin = wording.either(count, "node starts", "nodes start")
        return f"{count} {begin} training {start} {number}"
    on = f"oing on with {count} of {full} nodes {start} {number}"
    if fresh == 1:
        return f"The {wording.nth(count)} node joins: g{on}"
    return f"{fresh} nodes join: g{on}" if fresh else f"G{on}"
