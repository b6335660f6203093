"""The orphan sweep: what nobody owns goes, and what will not go is told of."""

import logging
from dataclasses import replace

import pytest
from sqlalchemy.exc import IntegrityError

from service.cloud.provider import (
    ATTEMPT_TAG,
    JOB_TAG,
    OWNER_TAG,
    CloudError,
    Misconfigured,
    Throttled,
)
from service.db import attempts, ledger
from service.db.attempts import AttemptRow
from service.domain.fleet import Resource, scale_set_name
from service.domain.states import AttemptState
from tests.scripted_node import boot
from tests.world import World


async def _orphan(world: World, **tags: str) -> str:
    """A scale set that carries our owner's tag and belongs to no live attempt."""
    job = await world.submit()
    nodes = await boot(world, job["id"])
    async with world.engine.connect() as conn:
        row = await attempts.find(conn, nodes[0].attempt_id)
    assert row is not None
    spec = world.attempts.specs.spec(row)
    await world.cloud.create(replace(spec, name="rk-nobodys", tags=spec.tags | tags))
    world.clock.advance(minutes=5)
    return str(job["id"])


async def test_a_resource_group_that_somebody_deleted_does_not_end_the_sweep(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    await _orphan(world)
    world.cloud.fail_next = [Misconfigured("ResourceGroupNotFound: rg", "ResourceGroupNotFound")]

    with caplog.at_level(logging.WARNING):
        during = await world.orphans.run_once()
    after = await world.orphans.run_once()

    assert (during, after) == ([], ["rk-nobodys"])
    assert "sweep.list_failed" in caplog.messages


async def test_an_orphan_that_will_not_die_is_told_to_operator_and_user_and_told_once_to_the_user(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    job_id = await _orphan(world)
    world.cloud.failing_deletes = 1000
    with caplog.at_level(logging.ERROR):
        for _ in range(40):
            await world.orphans.run_once()
            world.clock.advance(minutes=1)

    answer = await world.call("GET", f"/v1/fine_tuning/jobs/{job_id}/events?limit=100")
    told = [e for e in answer.json()["data"] if e["code"] == "leak.will_not_die"]
    assert len(told) == 1
    assert "rk-nobodys of this job is still there" in told[0]["message"]
    assert caplog.messages.count("leak.will_not_die") == 2  # every quarter of an hour


async def test_an_orphan_that_goes_is_no_alarm(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    await _orphan(world)
    with caplog.at_level(logging.ERROR):
        for _ in range(40):
            await world.orphans.run_once()
            world.clock.advance(minutes=1)

    assert "leak.will_not_die" not in caplog.messages
    assert world.cloud.costing() == {scale_set_name(await _newest(world))}


async def test_machines_that_came_when_their_attempt_was_over_are_billed_until_they_are_gone(
    world: World,
) -> None:
    job = await world.submit()
    row = await _ended(world, job["id"])
    before = await world.job(job["id"])
    born = world.clock()
    await world.cloud.create(world.attempts.specs.spec(row))  # it was on its way all that time
    world.clock.advance(minutes=5)
    await world.orphans.run_once()
    during = await world.job(job["id"])
    world.clock.advance(minutes=3)
    gone = world.clock()
    for _ in range(2):
        await world.orphans.run_once()
        world.clock.advance(minutes=1)

    async with world.engine.connect() as conn:
        rows = await ledger.of_job(conn, job["id"])
        after = await attempts.find(conn, row.id)
    late = [r for r in rows if r.started_at >= born]
    assert [(r.started_at, r.ended_at) for r in late] == [(born, gone)] * 2
    assert [j["cost"]["final"] for j in (before, during, await world.job(job["id"]))] == [
        *(True, False, True),
    ]
    assert after is not None
    assert after.ended_at == gone  # a bill of that time counts it
    told = (await world.call("GET", f"/v1/fine_tuning/jobs/{job['id']}/events")).json()["data"]
    assert [e["code"] for e in told].count("attempt.made_late") == 1


async def test_an_orphan_is_deleted_though_what_it_costs_cannot_be_written_down(
    world: World, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    job = await world.submit()
    row = await _ended(world, job["id"])
    await world.cloud.create(world.attempts.specs.spec(row))
    world.clock.advance(minutes=5)

    async def refuse(*_: object) -> None:
        raise IntegrityError("insert", None, Exception("a bug of ours"))

    monkeypatch.setattr(ledger, "meter", refuse)
    await world.orphans.run_once()
    world.clock.advance(minutes=5)

    assert world.cloud.costing() == set()
    assert "sweep.not_billed" in caplog.messages


async def _ended(world: World, job_id: str) -> AttemptRow:
    """Its only attempt, booted, cancelled and gone."""
    await boot(world, job_id)
    await world.call("POST", f"/v1/fine_tuning/jobs/{job_id}/cancel")
    await world.tick(20)
    async with world.engine.connect() as conn:
        (row,) = await attempts.of_job(conn, job_id)
    assert row.state is AttemptState.ENDED
    return row


async def _newest(world: World) -> str:
    jobs = (await world.call("GET", "/v1/fine_tuning/jobs")).json()["data"]
    return str((await world.attempts_of(jobs[0]["id"]))[-1]["id"])


@pytest.mark.parametrize("project", ["tests", "others"])
async def test_only_operators_may_ask_for_the_audit(world: World, project: str) -> None:
    key = world.key if project == "tests" else await world.other_key()

    answer = await world.call(
        "GET", "/v1/organization/audit", headers={"authorization": f"Bearer {key}"}
    )

    assert answer.status_code == (200 if project == "tests" else 403)
    assert project == "tests" or "key create --project tests" in answer.text


async def test_the_audit_names_what_leaks_and_what_it_costs(world: World) -> None:
    job_id = await _orphan(world, **{ATTEMPT_TAG: "att-nobodys", JOB_TAG: "ftjob-nobodys"})
    (attempt,) = await world.attempts_of(job_id)

    shown = (await world.call("GET", "/v1/organization/audit")).json()
    first = (await world.call("GET", "/v1/organization/audit?limit=1")).json()
    last = await world.call("GET", f"/v1/organization/audit?after={first['last_id']}")
    lost = await world.call("GET", "/v1/organization/audit?after=rk-what")

    by_name = {s["id"]: s for s in shown["data"]}
    leak, used = by_name["rk-nobodys"], by_name[scale_set_name(attempt["id"])]
    assert (leak["standing"], leak["leaks"], leak["per_hour"]) == ("unknown", True, None)
    assert (leak["job"], leak["machines"], leak["region"]) == ("ftjob-nobodys", 2, "eastus")
    assert (used["standing"], used["leaks"], used["per_hour"]) == ("used", False, "16.8800")
    assert (used["job"], used["attempt_state"]) == (job_id, "starting")
    assert (shown["summary"]["leaks"], shown["summary"]["unpriced_leaks"]) == (1, 1)
    assert shown["summary"]["groups"]["used"]["per_hour"] == "16.8800"
    assert first["has_more"]
    assert [*first["data"], *last.json()["data"]] == shown["data"]
    assert lost.status_code == 400


async def test_a_disk_that_carries_our_tag_is_in_the_audit_and_a_neighbours_is_not(
    world: World,
) -> None:
    disk = Resource(kind="Microsoft.Compute/disks", name="old", tags={OWNER_TAG: world.cloud.owner})
    world.cloud.strays += [disk, replace(disk, name="theirs", tags={OWNER_TAG: "neighbour"})]

    shown = (await world.call("GET", "/v1/organization/audit")).json()

    (stray,) = shown["data"]
    assert stray["id"] == "Microsoft.Compute/disks/old"
    assert (stray["object"], stray["standing"]) == ("resource", "stray")
    assert (stray["type"], stray["leaks"]) == ("Microsoft.Compute/disks", True)
    groups = shown["summary"]["groups"]
    assert (groups["stray"]["resources"], groups["unknown"]["scale_sets"]) == (1, 0)
    assert "scale_sets" not in groups["stray"]
    assert shown["summary"]["unseen"] is None


async def test_no_page_of_the_audit_loses_a_stray_whose_type_ends_as_anothers(world: World) -> None:
    kinds = ("Elsewhere.Compute/disks", "Microsoft.Compute/disks")
    tags = {OWNER_TAG: world.cloud.owner}
    world.cloud.strays += [Resource(kind=kind, name="old", tags=tags) for kind in kinds]

    first = (await world.call("GET", "/v1/organization/audit?limit=1")).json()
    rest = await world.call("GET", f"/v1/organization/audit?after={first['last_id']}")

    assert [s["type"] for s in first["data"] + rest.json()["data"]] == list(kinds)


@pytest.mark.parametrize(
    ("fault", "then"),
    [
        (Misconfigured("no role"), "Give the service's identity the actions"),
        (Throttled("too many"), "Ask again"),
    ],
)
async def test_an_audit_that_may_not_list_all_else_shows_the_scale_sets_and_says_so(
    world: World, monkeypatch: pytest.MonkeyPatch, fault: CloudError, then: str
) -> None:
    await _orphan(world)

    async def refuse() -> list[Resource]:
        raise fault

    monkeypatch.setattr(world.cloud, "list_tagged", refuse)
    shown = (await world.call("GET", "/v1/organization/audit")).json()

    assert "rk-nobodys" in {s["id"] for s in shown["data"]}
    assert shown["summary"]["leaks"] == 1
    assert str(fault) in shown["summary"]["unseen"]
    assert then in shown["summary"]["unseen"]


async def test_an_audit_without_azure_says_so(world: World) -> None:
    world.cloud.fail_next = [Misconfigured("no role")]

    answer = await world.call("GET", "/v1/organization/audit")

    assert answer.status_code == 503
    assert "no role" in answer.json()["error"]["message"]
