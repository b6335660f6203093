"""Opening and halting generations: the database's part, one transaction each."""

from datetime import datetime, timedelta

from sqlalchemy.ext.asyncio import AsyncConnection

from service.db import attempts, events, generations, jobs, nodes
from service.db.attempts import AttemptRow
from service.db.leases import Claim
from service.domain.attempt import OpenGeneration
from service.domain.generation import Halt
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
    ids = [m.node_id for m in generation.members]
    await nodes.direct(conn, ids, DirectiveKind.START, generation.number)
    await attempts.release(conn, claim, now, _SOON)  # locks: nodes, attempt, job
    lost = await generations.add(conn, generation, now)
    await heads.record(conn, row.job_id, head, now)
    await jobs.count_lost_steps(conn, row.job_id, lost)
    from_step = head.newest.step if head.newest else 0
    await jobs.progressed(conn, row.job_id, now, {"step": from_step})  # what is lost is not done
    if step.after_error:
        await jobs.count_trainer_error(conn, row.job_id)
    start = f"from step {head.newest.step}" if head.newest else "from the base model"
    await events.add(
        conn,
        row.job_id,
        now,
        "generation.opened",
        f"{len(ids)} nodes start training {start} (generation {generation.number})",
        attempt_id=row.id,
        data={"generation": generation.number, "step": from_step},
    )
    return generation


async def halt(
    conn: AsyncConnection,
    claim: Claim,
    row: AttemptRow,
    generation: Generation,
    step: Halt,
    now: datetime,
) -> None:
    """Direct the members that have not settled to stop, and look again soon."""
    first = await generations.mark_halted(conn, generation, step.kind, step.reason, now)
    await nodes.direct(conn, step.node_ids, step.kind, generation.number)
    await attempts.release(conn, claim, now, _SOON)  # locks: nodes, attempt, job
    if first:
        await events.add(
            conn,
            row.job_id,
            now,
            "generation.halted",
            f"Generation {generation.number} is stopped: {step.reason}",
            attempt_id=row.id,
            level="warn",
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
    )
