"""What is written down on the way: metrics, machine time, committed checkpoints, generations."""

from collections.abc import Sequence
from dataclasses import fields, replace
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest
from sqlalchemy import select, update
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from service.db.attempts import attempts, generations
from service.db.jobs import events, jobs, step_metrics
from service.db.jobs.step_metrics import StepRange
from service.db.money import ledger
from service.db.money.ledger import ExistingMachines
from service.db.schema import tables
from service.db.storage import checkpoints
from service.domain.cloud.fleet import Price
from service.domain.ids import new_id
from service.domain.money.cost import machine_cost
from service.domain.states import ATTEMPT_WITH_OUTCOME, AttemptState
from service.operations.attempts import heads
from tests.clock import Clock
from tests.integration.db.rows import add_attempt, add_job, add_node, checkpoint, generation
from tests.nodes.scripted_node import metrics as measured
from trainer.contract import DirectiveKind, Head, Retention

HOURLY, ON_DEMAND = Decimal(8), Decimal(32)
WHOLE = StepRange(from_step=0, to_step=99)


@pytest.fixture
async def _one_attempt(engine: AsyncEngine, clock: Clock) -> None:
    async with engine.begin() as conn:
        await add_job(conn, clock(), state="running")
        await add_attempt(conn, clock())


pytestmark = pytest.mark.usefixtures("_one_attempt")


async def test_events_are_dated_in_the_order_in_which_they_are_written(
    engine: AsyncEngine, clock: Clock
) -> None:
    decided = clock()
    clock.advance(seconds=5)
    async with engine.begin() as conn:
        await events.add(conn, "job", clock(), "node.registered", "quick")
        await events.add(conn, "job", decided, "node.gone", "held up by a lock")
        await events.add_all(conn, [await _copy_event(conn, decided)])
        rows = await conn.execute(select(tables.events.c.at).order_by(tables.events.c.seq))

    assert list(rows.scalars()) == [clock()] * 3


async def _copy_event(conn: AsyncConnection, at: datetime) -> events.Event:
    event = (await conn.execute(select(tables.events).limit(1))).one()
    columns = {f.name: getattr(event, f.name) for f in fields(events.Event)}
    return events.Event(**columns | {"id": new_id("ftevent", at), "at": at})


async def test_metrics_of_a_repeated_step_are_kept_once_from_the_newest_generation(
    engine: AsyncEngine,
) -> None:
    async with engine.begin() as conn:
        # The response was lost, so the node sends it again; and the batch names a step twice.
        for _ in range(2):
            await step_metrics.add(conn, "job", 2, [measured(5, loss=9.0), measured(5, loss=1.0)])
        # A late batch of the attempt before.
        await step_metrics.add(conn, "job", 1, [measured(5, loss=9.0), measured(4, loss=4.0)])
        series = await step_metrics.series(conn, "job", WHOLE, limit=9)
        await step_metrics.add(conn, "job", 3, [measured(5, loss=2.0)])
        after = await step_metrics.series(conn, "job", WHOLE, limit=9)

    assert [(m["step"], m["loss"]) for m in series] == [(4, 4.0), (5, 1.0)]
    assert after[-1]["loss"] == 2.0


async def _meter_machines(conn: AsyncConnection, clock: Clock, *vm_ids: str) -> None:
    now = clock()
    await ledger.meter(conn, [_exist(vm_ids, since=now)], now)


def _exist(vm_ids: Sequence[str], since: datetime) -> ExistingMachines:
    price = Price(hourly=HOURLY, on_demand_hourly=ON_DEMAND)
    return ExistingMachines(
        job_id="job", attempt_id="att-1", vm_ids=vm_ids, price=price, since=since
    )


async def test_a_machine_is_billed_from_when_it_is_seen_until_it_is_gone(
    engine: AsyncEngine, clock: Clock
) -> None:
    async with engine.begin() as conn:
        await _meter_machines(conn, clock, "vm-1", "vm-2")
        clock.advance(minutes=30)
        await _meter_machines(conn, clock, "vm-2")
        clock.advance(minutes=30)
        await _meter_machines(conn, clock)
        clock.advance(minutes=30)
        rows = await ledger.of_job(conn, "job")

    times = {r.vm_id: r.ended_at - r.started_at for r in rows if r.ended_at}
    assert times == {"vm-1": timedelta(minutes=30), "vm-2": timedelta(hours=1)}
    assert machine_cost(rows, clock()) == Decimal(12)


async def test_metering_again_changes_nothing(engine: AsyncEngine, clock: Clock) -> None:
    async with engine.begin() as conn:
        await _meter_machines(conn, clock, "vm-1")
        before = await ledger.of_job(conn, "job")
        clock.advance(minutes=5)
        await _meter_machines(conn, clock, "vm-1")
        rows = await ledger.of_job(conn, "job")
        await _meter_machines(conn, clock)
        closed = await ledger.of_job(conn, "job")
        clock.advance(minutes=5)
        await _meter_machines(conn, clock)

        assert rows == before
        assert await ledger.of_job(conn, "job") == closed


async def test_what_a_machine_cost_before_it_was_seen_is_billed_once(
    engine: AsyncEngine, clock: Clock
) -> None:
    ordered = clock()
    async with engine.begin() as conn:
        for vm_ids in (["vm-1"], [], ["vm-1", "vm-2"]):  # one list of instances came short
            clock.advance(minutes=5)
            await ledger.meter(conn, [_exist(vm_ids, since=ordered)], clock())
        rows = await ledger.of_job(conn, "job")

    minutes = [(r.vm_id, (r.started_at - ordered).total_seconds() / 60) for r in rows]
    assert sorted(minutes) == [("vm-1", 0), ("vm-1", 15), ("vm-2", 0)]


async def test_a_new_price_changes_nothing_of_what_ran_before(
    engine: AsyncEngine, clock: Clock
) -> None:
    higher_price = Price(hourly=2 * HOURLY, on_demand_hourly=ON_DEMAND)
    async with engine.begin() as conn:
        for vm_ids in (["vm-1"], [], ["vm-2"]):
            await _meter_machines(conn, clock, *vm_ids)
            clock.advance(minutes=5)
        await ledger.reprice(conn, "att-1", higher_price, clock())
        clock.advance(minutes=5)
        rows = await ledger.of_job(conn, "job")

    assert [r.vm_id for r in rows if r.ended_at is None] == ["vm-2"]
    assert machine_cost(rows, clock()) == HOURLY * (5 + 5 + 2 * 5) / 60


async def test_a_replica_whose_clock_is_behind_closes_a_row_all_the_same(
    engine: AsyncEngine, clock: Clock
) -> None:
    async with engine.begin() as conn:
        await _meter_machines(conn, clock, "vm-1")
        clock.advance(seconds=-5)
        await _meter_machines(conn, clock)

        (row,) = await ledger.of_job(conn, "job")

    assert row.ended_at == row.started_at


async def test_what_head_says_is_recorded_once(engine: AsyncEngine, clock: Clock) -> None:
    head = Head(generation=1, checkpoints=(checkpoint(1), checkpoint(2)))
    async with engine.begin() as conn:
        changes = await heads.record(conn, "job", head, clock())
        repeated = await heads.record(conn, "job", head, clock())
        one_more = await heads.record(conn, "job", head.with_checkpoint(checkpoint(3)), clock())
        rows = await checkpoints.newest(conn, "job", after=None, limit=9)
        recorded = await events.newest(conn, "job", after=None, limit=9)

    assert (changes, repeated, one_more) == (True, False, True)
    assert [c.step for c in rows or []] == [3, 2, 1]
    assert [e.code for e in recorded or []] == ["checkpoint.committed"] * 3


async def test_a_checkpoint_that_head_drops_is_not_listed_but_is_still_a_cursor(
    engine: AsyncEngine, clock: Clock
) -> None:
    head, recorded = Head(generation=1), list[list[checkpoints.CheckpointRow]]()
    async with engine.begin() as conn:
        for step in range(1, 6):
            head = head.with_checkpoint(checkpoint(step))
            await heads.record(conn, "job", head, clock())
            recorded.append(await checkpoints.newest(conn, "job", after=None, limit=9) or [])
        rows = await checkpoints.newest(conn, "job", after=None, limit=9)
        older = await checkpoints.newest(conn, "job", after=recorded[1][0].id, limit=9)

    assert [c.step for c in rows or []] == [5, 4, 3] == [c.step for c in head.checkpoints[::-1]]
    assert [c.step for c in recorded[1]] == [2, 1]
    assert older == []


async def test_when_a_person_restores_an_older_head_its_checkpoints_are_listed_again(
    engine: AsyncEngine, clock: Clock
) -> None:
    heads_of, head = dict[int, Head](), Head(generation=1)
    async with engine.begin() as conn:
        for step in range(1, 6):
            heads_of[step] = head = head.with_checkpoint(checkpoint(step))
            await heads.record(conn, "job", head, clock())
        before = await jobs.find(conn, "job")
        await heads.record(conn, "job", heads_of[3], clock())
        after = await jobs.find(conn, "job")
        rows = await checkpoints.newest(conn, "job", after=None, limit=9)
        await heads.record(conn, "job", heads_of[3], clock())
        job_row = await jobs.find(conn, "job")
        recorded = await events.newest(conn, "job", after=None, limit=99)

    assert [c.step for c in rows or []] == [3, 2, 1]
    assert before
    assert after
    assert job_row
    assert before.version < after.version == job_row.version
    assert [e.code for e in recorded or []] == ["checkpoint.committed"] * 5


async def test_checkpoints_are_listed_by_their_steps_whatever_the_nodes_clock_says(
    engine: AsyncEngine, clock: Clock
) -> None:
    future_entry, past_entry = (
        replace(checkpoint(s), committed_at=at) for s, at in ((1, 9e9), (2, 1.0))
    )
    async with engine.begin() as conn:
        await heads.record(
            conn, "job", Head(generation=1, checkpoints=(future_entry, past_entry)), clock()
        )
        rows = await checkpoints.newest(conn, "job", after=None, limit=9)
        assert rows
        older = await checkpoints.newest(conn, "job", after=rows[0].id, limit=9)

    assert [c.step for c in rows] == [2, 1]
    assert [c.step for c in older or []] == [1]
    assert {c.id[:14] for c in rows} == {new_id("ftckpt", clock())[:14]}


async def test_a_new_checkpoint_breaks_the_row_of_trainer_errors(
    engine: AsyncEngine, clock: Clock
) -> None:
    head = Head(generation=1, checkpoints=(checkpoint(1),))
    async with engine.begin() as conn:
        after_error = generation(1, [await add_node(conn, clock(), "vm-1")])
        await heads.record(conn, "job", head, clock())
        await generations.begin_all(conn, [after_error], {"job"}, clock())
        await heads.record(conn, "job", head, clock())  # no news
        job_row = await jobs.find(conn, "job")
        await heads.record(conn, "job", head.with_checkpoint(checkpoint(2)), clock())
        job = await jobs.find(conn, "job")

    assert job_row is not None
    assert job is not None
    assert (job_row.trainer_errors, job.trainer_errors) == (1, 0)


async def test_numbers_are_the_jobs_and_the_newest_row_the_attempts(
    engine: AsyncEngine, clock: Clock
) -> None:
    async with engine.begin() as conn:
        nodes = [await add_node(conn, clock(), "vm-1")]
        for number in (1, 2):
            await generations.begin_all(conn, [generation(number, nodes)], (), clock())
        ended_values = {"state": "terminating", "outcome": "evicted"}
        await conn.execute(tables.attempts.update().values(**ended_values))
        await add_attempt(conn, clock(), id="att-2", number=2)
        current = await generations.current(conn, "att-1")

        assert current is not None
        assert current.generation == generation(2, nodes)
        assert await generations.current(conn, "att-2") is None
        assert await generations.newest(conn, "job") == generation(2, nodes)


async def test_the_time_to_stop_starts_anew_when_stop_follows_save_and_stop(
    engine: AsyncEngine, clock: Clock
) -> None:
    save, stop = DirectiveKind.CHECKPOINT_AND_STOP, DirectiveKind.STOP
    first = clock()
    async with engine.begin() as conn:
        row = generation(1, [await add_node(conn, clock(), "vm-1")])
        await generations.begin_all(conn, [row], (), clock())
        results = []
        for kind in (save, save, stop, stop, save):
            halted = await generations.mark_halted(conn, [(row, kind, "because")], clock())
            current = await generations.current(conn, "att-1")
            assert current is not None
            results.append((halted == {"job"}, current.halt_kind, current.halted_at))
            clock.advance(minutes=1)

    later_at = first + timedelta(minutes=2)
    assert results == [
        (True, save, first),
        (False, save, first),
        (True, stop, later_at),
        (False, stop, later_at),
        (False, stop, later_at),
    ]
    async with engine.connect() as conn:
        columns = select(tables.generations.c.content)
        assert (await conn.execute(columns)).scalar_one() == row.to_plain()


async def test_a_list_says_why_each_checkpoint_is_kept_as_head_changes(
    engine: AsyncEngine, clock: Clock
) -> None:
    every = Retention(newest=1, milestone_every=2)
    head, rows = Head(generation=1), list[dict[int, str]]()
    async with engine.begin() as conn:
        for step, loss in ((1, 0.5), (2, 0.9), (3, 0.4)):
            entry = replace(checkpoint(step), valid_loss=loss)
            head = head.with_checkpoint(entry, every)
            await heads.record(conn, "job", head, clock())
            recorded = await checkpoints.newest(conn, "job", after=None, limit=10) or []
            rows.append({c.step: c.kept_as for c in recorded})

    assert rows == [{1: "best"}, {2: "milestone", 1: "best"}, {3: "best", 2: "milestone"}]


@pytest.mark.parametrize("state", AttemptState)
async def test_an_attempt_may_have_machines_until_it_has_ended(
    engine: AsyncEngine, clock: Clock, state: AttemptState
) -> None:
    values: dict[str, Any] = {"outcome": "evicted"} if state in ATTEMPT_WITH_OUTCOME else {}
    values |= {"ended_at": clock()} if state is AttemptState.ENDED else {}
    async with engine.begin() as conn:
        await conn.execute(update(tables.attempts).values(state=state, **values))
        live = await attempts.live_ids(conn)

    assert live == (set() if state is AttemptState.ENDED else {"att-1"})
