"""Open and halt generations: the database part, one transaction for many."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cached_property

from sqlalchemy.ext.asyncio import AsyncConnection

from service.db.attempts import attempt_moves, generations, nodes
from service.db.attempts.attempts import AttemptRow
from service.db.attempts.generations import LostWork
from service.db.core import leases, locks
from service.db.core.leases import Claim
from service.db.jobs import events, job_versions
from service.db.jobs.events import Event
from service.db.schema import tables
from service.domain import humanize
from service.domain.cloud.rate_limit import Deferral
from service.domain.errors import LeaseLost
from service.domain.lifecycle.attempt import JOINS, OpenGeneration
from service.domain.lifecycle.generation import HaltGeneration
from service.domain.planning.checkpoint_interval import CheckpointInterval, SaveHistory
from service.operations.attempts import heads
from trainer.contract import DirectiveKind, Generation, Head, Member

_SHORT_DELAY = timedelta(seconds=1)
_DATABASE_BEHIND_MESSAGE = (
    "The database is behind HEAD: it knew generation {known}, but generation {head} had begun. It"
    " was restored from a backup, lost its last writes, or a process was killed."
    " No committed checkpoint is lost; events, metrics and cost have a gap"
)


@dataclass(frozen=True, kw_only=True)
class Opening:
    """A generation to open under the attempt's lease; HEAD is fenced for it."""

    claim: Claim
    row: AttemptRow
    step: OpenGeneration
    head: Head
    run_spec_sha256: str
    previous: Generation | None = None  # the attempt's previous generation
    halted_at: datetime | None = None  # when that was halted
    last_known_number: int | None = None  # the job's newest number, as far as the database knew
    save_history: SaveHistory | None = None  # None: the user has fixed the interval

    @property
    def is_database_behind(self) -> bool:
        """Return whether HEAD is ahead of the database, which was restored."""
        return (
            self.last_known_number is not None and self.head.generation > self.last_known_number + 1
        )

    @cached_property
    def interval(self) -> CheckpointInterval | None:
        """Return the generation's checkpoint interval; None: the run spec has it."""
        machines = len(self.step.nodes)
        dollars = float(self.row.price.hourly) * machines
        return self.save_history.interval(machines, dollars) if self.save_history else None

    @cached_property
    def generation(self) -> Generation:
        """Return the generation that opens."""
        members = tuple(
            Member(node_id=n.node_id, vm_id=n.vm_id, address=n.address, node_rank=rank)
            for rank, n in enumerate(self.step.nodes)
        )
        return Generation(
            number=self.head.generation,
            job_id=self.row.job_id,
            attempt_id=self.row.id,
            members=members,
            processes_per_node=self.row.processes_per_node,
            master_address=self.step.nodes[0].address,
            master_port=self.step.nodes[0].free_port,
            checkpoint=self.head.newest,
            run_spec_sha256=self.run_spec_sha256,
            rung=self.step.rung,
            checkpoint_seconds=self.interval.seconds if self.interval else None,
        )


async def open_all(
    conn: AsyncConnection, openings: Sequence[Opening], now: datetime
) -> list[LostWork]:
    """Write the rows that HEAD was fenced for, and direct their members to start.

    Returns the lost steps. Raises LeaseLost if any of the leases is lost: nothing may be committed
    then, and the new holder does the same.
    """
    new_generations = [opening.generation for opening in openings]
    saves = {
        opening.row.job_id: opening.interval.as_progress()
        for opening in openings
        if opening.interval
    }
    orders = {
        member.node_id: (DirectiveKind.START, generation.number)
        for generation in new_generations
        for member in generation.members
    }
    await nodes.direct_all(conn, orders)
    await _release(conn, openings, now)  # locks: nodes, attempts, jobs
    await locks.lock_rows(conn, tables.jobs, [opening.row.job_id for opening in openings])
    await heads.record_all(conn, {opening.row.job_id: opening.head for opening in openings}, now)
    errors = {opening.row.job_id for opening in openings if opening.step.after_error}
    losses = await generations.begin_all(conn, new_generations, errors, now, saves)
    await events.add_all(
        conn, [event for opening in openings for event in _opening_events(opening, now)]
    )
    return losses


async def _release(conn: AsyncConnection, openings: Sequence[Opening], now: datetime) -> None:
    """Release the leases with an early requeue; count the evictions."""
    hints = await leases.lock_all_claimed(conn, [opening.claim for opening in openings])
    if lost_ids := {opening.row.id for opening in openings} - hints.keys():
        raise LeaseLost(f"attempts {sorted(lost_ids)}")
    survivors = [
        (opening.row, opening.halted_at or now) for opening in openings if opening.step.lost
    ]
    await attempt_moves.record_survived_evictions(conn, survivors)
    await leases.release_all(
        conn, [(opening.claim, now + _SHORT_DELAY) for opening in openings], now
    )


def _opening_events(opening: Opening, now: datetime) -> Iterator[Event]:
    """Yield the events of an opened generation, in order."""
    step, generation = opening.step, opening.generation
    ids = (opening.row.job_id, opening.row.id, now)
    if opening.is_database_behind:
        facts = {"known": opening.last_known_number, "head": generation.number - 1}
        message = _DATABASE_BEHIND_MESSAGE.format(**facts)
        yield events.new_event(*ids, "database.behind", message, level="warn", data=facts)
    if step.lost:
        yield events.new_event(
            *ids, "node.evicted", _eviction_message(opening.row, step), level="warn"
        )
    from_step = generation.checkpoint.step if generation.checkpoint else 0
    counts = {"generation": generation.number, "step": from_step, "nodes": len(generation.members)}
    data = counts | ({"rung": step.rung.to_plain()} if step.rung else {})
    level = "warn" if step.because else "info"
    message = _opening_message(opening.row, generation, opening.previous) + _rung_suffix(step)
    yield events.new_event(*ids, "generation.opened", message, level=level, data=data)


@dataclass(frozen=True, kw_only=True)
class Halting:
    """An attempt's generation to halt, under the attempt's lease."""

    claim: Claim
    row: AttemptRow
    generation: Generation
    step: HaltGeneration
    delay: timedelta = _SHORT_DELAY  # until the attempt is due again
    deferral: Deferral | None = None  # a call to the cloud that stays deferred


async def halt_all(conn: AsyncConnection, halts: Sequence[Halting], now: datetime) -> None:
    """Direct the members that have not settled to stop, and requeue the attempts."""
    halted = [(halting.generation, halting.step.kind, halting.step.reason) for halting in halts]
    first = await generations.mark_halted(conn, halted, now)
    orders = {
        node_id: (halting.step.kind, halting.generation.number)
        for halting in halts
        for node_id in halting.step.node_ids
    }
    await nodes.direct_all(conn, orders)
    due = [(halting.claim, now + halting.delay) for halting in halts]
    deferrals = {halting.row.id: halting.deferral for halting in halts if halting.deferral}
    held_ids = await leases.release_all(conn, due, now, deferrals)  # after generations and nodes
    if lost_ids := {halting.row.id for halting in halts} - held_ids:
        raise LeaseLost(f"attempts {sorted(lost_ids)}")
    changed = [halting for halting in halts if halting.row.job_id in first]
    await job_versions.raise_all(conn, [halting.row.job_id for halting in changed], now)
    await events.add_all(conn, [_halt_event(halting, now) for halting in changed])


def _halt_event(halting: Halting, now: datetime) -> Event:
    level = "info" if halting.step.reason == JOINS else "warn"
    message = f"Generation {halting.generation.number} is stopped: {halting.step.reason}"
    ids, data = (halting.row.job_id, halting.row.id, now), {"kind": halting.step.kind}
    return events.new_event(*ids, "generation.halted", message, level=level, data=data)


def _eviction_message(row: AttemptRow, step: OpenGeneration) -> str:
    notice_count = sum(n.evicting for n in step.lost)
    notice = f", {notice_count} of them with notice" if 0 < notice_count < len(step.lost) else ""
    notice = notice or (" with notice" if notice_count else " without notice")
    return (
        f"Azure evicted {len(step.lost)} of {humanize.count_machines(row.instance_count)}{notice}"
    )


def _rung_suffix(step: OpenGeneration) -> str:
    return f", with {step.because}" if step.because else ""


def _opening_message(row: AttemptRow, opened: Generation, before: Generation | None) -> str:
    """Return the sentence about a generation: how it starts, and which nodes are missing or new."""
    count, total = len(opened.members), row.instance_count
    start = f"from step {opened.checkpoint.step}" if opened.checkpoint else "from the base model"
    number = f"(generation {opened.number})"
    earlier_ids = {m.node_id for m in before.members} if before else set()
    new_count = sum(m.node_id not in earlier_ids for m in opened.members)
    if before is None or (count == len(earlier_ids) == total and not new_count):
        verb = humanize.pluralize(count, "node starts", "nodes start")
        return f"{count} {verb} training {start} {number}"
    continuation = f"oing on with {count} of {total} nodes {start} {number}"
    if new_count == 1:
        return f"The {humanize.ordinal(count)} node joins: g{continuation}"
    return f"{new_count} nodes join: g{continuation}" if new_count else f"G{continuation}"
