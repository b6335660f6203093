"""What Azure does to a job on its own: refusals early and late, lost answers, stuck deletions."""

from decimal import Decimal

import pytest

from service.cloud.provider import InsufficientCapacity, Misconfigured, Throttled
from service.db.attempts import attempts
from service.db.core.leases import LEASE
from service.db.jobs import events
from service.domain.cloud.fleet import scale_set_name
from service.domain.errors import LeaseLost
from service.domain.states import AttemptState
from tests.nodes.scripted_node import boot, commit, committed, evicted, say_all, start_training
from tests.world import SPOT, World
from trainer.contract import HEAD, NodePhase

NO_QUOTA = (
    "OperationNotAllowed: The quota 'Total Regional Spot vCPUs' (LowPriorityCores) of eastus is"
    " used up: 96 of 100 cores are in use and 288 are needed. Raise it in the Azure portal under"
    " Quotas > Compute, or allow other regions."
)


async def test_a_throttled_create_is_repeated_once_the_time_is_over_and_not_before(
    world: World,
) -> None:
    job = await world.submit()
    world.cloud.fail_creates = [Throttled("slow down", "OperationNotAllowed", 600)]
    while world.cloud.fail_creates:
        await world.tick(1)
    before = world.cloud.calls
    await world.tick(9, seconds=60)
    call_count = world.cloud.calls - before
    nodes = await boot(world, job["id"])

    assert call_count == 0
    assert len(nodes) == 2
    assert len(await world.attempts_of(job["id"])) == 1


async def test_a_create_whose_answer_was_lost_makes_no_second_scale_set(world: World) -> None:
    world.cloud.lose_answers = 1
    job = await world.submit()
    nodes = await boot(world, job["id"])

    assert world.cloud.lose_answers == 0
    assert world.cloud.billed_names() == {scale_set_name(nodes[0].attempt_id)}
    assert len(await world.attempts_of(job["id"])) == 1


async def test_a_worker_that_lost_its_lease_after_it_looked_makes_no_machines(world: World) -> None:
    await world.submit()
    await world.tick(2, seconds=1)
    world.clock.advance(seconds=60)
    async with world.engine.begin() as conn:
        ((stale_claim, row),) = await attempts.claim_due(conn, world.clock(), 1)
    world.clock.advance(seconds=LEASE.total_seconds() + 1)
    async with world.engine.begin() as conn:
        await attempts.claim_due(conn, world.clock(), 1)

    with pytest.raises(LeaseLost):
        await world.attempts._create(stale_claim, row)  # what it had decided upon

    assert row.state is AttemptState.PROVISIONING
    assert world.cloud.billed_names() == set()


async def test_an_exhausted_quota_is_named_with_where_to_raise_it(world: World) -> None:
    job = await world.submit()
    world.cloud.fail_creates = [InsufficientCapacity(NO_QUOTA, "OperationNotAllowed")]
    while world.cloud.fail_creates:
        await world.tick(1)
    attempt = (await world.attempts_of(job["id"]))[0]
    nodes = await boot(world, job["id"])

    assert attempt["outcome"] == "no_capacity"
    assert "LowPriorityCores" in attempt["reason"]
    assert "Quotas > Compute" in attempt["reason"]
    assert attempt["reason"].count("OperationNotAllowed") == 1
    assert nodes[0].attempt_id != attempt["id"]


async def test_an_allocation_that_fails_minutes_after_acceptance_leaves_nothing_behind(
    world: World,
) -> None:
    world.cloud.sold_out_late.add(SPOT)
    world.cloud.late_code = "OverconstrainedAllocationRequest"
    job = await world.submit()
    await world.tick(15)  # three minutes until it fails
    world.cloud.sold_out_late.clear()
    attempt = (await world.attempts_of(job["id"]))[0]
    nodes = await boot(world, job["id"])
    await world.tick(20)

    assert attempt["outcome"] == "no_capacity"
    assert "OverconstrainedAllocationRequest" in attempt["reason"]
    assert world.cloud.billed_names() == {scale_set_name(nodes[0].attempt_id)}


async def test_a_delete_that_fails_is_repeated_until_the_machines_are_gone(world: World) -> None:
    job, name = await _finish_job(world, failing_deletes=3)
    await world.tick(8)  # two minutes: the first one has failed by now
    view = await world.job(job)
    cost = Decimal(view["cost"]["spent"])
    await world.tick(40)
    job_view = await world.job(job)

    assert (view["status"], view["cost"]["final"]) == ("succeeded", False)
    assert world.cloud.failing_deletes == 0
    assert name not in world.cloud.billed_names()
    assert job_view["cost"]["final"]
    assert Decimal(job_view["cost"]["spent"]) > cost  # they cost until they were gone


async def test_a_machine_that_lingers_stopped_counts_as_evicted_and_costs_until_it_is_deleted(
    world: World,
) -> None:
    job, nodes, number = await start_training(world)
    name = scale_set_name(nodes[0].attempt_id)
    world.cloud.evict(name, "1", lingers=True)
    await world.tick(1)
    await nodes[0].hear()
    await nodes[0].say(NodePhase.STOPPED, number, step=1)
    await world.tick(3)
    after = await world.attempts_of(job)
    await world.tick(20)

    assert [a["outcome"] for a in after] == ["evicted", None]
    assert name not in world.cloud.billed_names()


async def test_when_all_machines_go_at_once_one_attempt_takes_over(world: World) -> None:
    job, *_ = await start_training(world)
    await evicted(world, job)
    await world.tick(6)
    job_attempts = await world.attempts_of(job)

    assert [a["outcome"] for a in job_attempts] == ["evicted", None]


async def test_a_machine_that_azure_restores_after_an_eviction_goes_with_its_scale_set(
    world: World,
) -> None:
    job, nodes, _ = await start_training(world)
    name = scale_set_name(nodes[0].attempt_id)
    await evicted(world, job)
    await world.tick(1)
    world.cloud.restore(name)
    await world.tick(30)

    assert name not in world.cloud.billed_names()
    assert (await world.attempts_of(job))[0]["state"] == "ended"


async def test_a_scale_set_deleted_by_others_before_it_has_machines_counts_no_eviction(
    world: World,
) -> None:
    job = await world.submit()
    await world.tick(5)
    (attempt,) = await world.attempts_of(job["id"])
    await world.cloud.delete(scale_set_name(attempt["id"]))
    await world.tick(1)
    (attempt, *_) = await world.attempts_of(job["id"])

    assert (attempt["state"], attempt["outcome"]) == ("terminating", "evicted")
    assert attempt["evicted"] == {"noticed": 0, "unnoticed": 0}
    assert "other than Rekindle is deleting" in attempt["reason"]
    assert (
        "other than Rekindle is deleting"
        in (await world.job(job["id"]))["status_reason"]["message"]
    )


ROLE = Misconfigured("The service's identity lacks a role: grant Virtual Machine Contributor.")


async def test_help_is_called_for_once_and_shown_until_it_has_come(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    job = await world.submit()
    world.cloud.fail_creates = [ROLE] * 3
    await world.tick(4, seconds=61)
    async with world.engine.begin() as conn:  # other news do not hide a fault that lasts
        await events.add(conn, job["id"], world.clock(), "checkpoint.delayed", "news")
    reason_during = (await world.job(job["id"]))["status_reason"]
    while world.cloud.fail_creates:
        await world.tick(1, seconds=61)
    await world.tick(2, seconds=61)
    after = (await world.job(job["id"]))["status_reason"]

    assert (reason_during["code"], reason_during["message"]) == ("needs_help", str(ROLE))
    assert after["code"] != "needs_help"
    assert await _help_calls(world, job["id"]) == ["needs_help", "help_over"]
    (line,) = [vars(r) for r in caplog.records if r.getMessage() == "attempt.needs_help"]
    logged = (line["levelname"], line["job"], line["about"], line["cause"])
    assert logged == ("ERROR", job["id"], "azure", str(ROLE))  # the operator hears of it


async def test_the_next_attempt_that_meets_the_same_fault_says_so_again(world: World) -> None:
    job, *_ = await start_training(world)
    world.cloud.fail_creates = [ROLE] * 100
    await evicted(world, job)
    await world.tick(45, seconds=61)  # until the time of the attempt is over
    paused = await world.job(job)
    outcomes = [attempt["outcome"] for attempt in await world.attempts_of(job)]
    await world.call("POST", f"/v1/fine_tuning/jobs/{job}/resume")
    await world.tick(4, seconds=61)

    assert outcomes == ["evicted", "misconfigured"]
    assert paused["status_reason"]["code"] in ("misconfigured", "needs_help")
    assert (await world.job(job))["status_reason"]["code"] == "needs_help"
    calls = await _help_calls(world, job)
    assert calls[0] == calls[-1] == "needs_help"
    assert calls.count("needs_help") == 2


async def test_a_head_that_is_restored_ends_the_call_for_help(world: World) -> None:
    job, _, _ = await start_training(world)
    head, _ = await world.store.read(job, HEAD)
    await world.store.delete(job, HEAD)
    await world.tick(2, seconds=61)
    code_during = (await world.job(job))["status_reason"]["code"]
    await world.store.write(job, HEAD, head)
    await world.tick(2, seconds=61)

    assert code_during == "needs_help"
    assert (await world.job(job))["status_reason"]["code"] != "needs_help"
    assert await _help_calls(world, job) == ["needs_help", "help_over"]


async def test_a_lost_head_stays_reported_while_no_attempt_reads_it(world: World) -> None:
    job, *_ = await start_training(world)
    await world.store.delete(job, HEAD)
    await world.tick(2, seconds=61)
    await evicted(world, job)
    await world.tick(8, seconds=61)

    assert len(await world.attempts_of(job)) > 1
    assert "help_over" not in await _help_calls(world, job)


async def _help_calls(world: World, job_id: str) -> list[str]:
    """Return the calls for help and their ends, oldest first."""
    codes = await world.event_codes(job_id)
    return [code.removeprefix("attempt.") for code in codes if "help" in code]


async def _finish_job(world: World, failing_deletes: int = 0) -> tuple[str, str]:
    """Return a job that has just succeeded, and the name of its scale set."""
    world.cloud.failing_deletes = failing_deletes
    job, nodes, number = await start_training(world)
    await commit(world, job, committed(60, number, "final"))
    await say_all(nodes, NodePhase.FINISHED, number, step=60)
    await world.tick(2)
    assert (await world.job(job))["status"] == "succeeded"
    return job, scale_set_name(nodes[0].attempt_id)
