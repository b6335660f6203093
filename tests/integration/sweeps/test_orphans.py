"""The orphan sweep: what nobody owns goes, and what will not go is told of."""

import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace

import pytest
from sqlalchemy import update
from sqlalchemy.exc import DataError

from contract.choices import Engine
from service.api.app import make_app
from service.cloud.engines import Engines
from service.cloud.fake import FakeCloud
from service.cloud.provider import (
    ATTEMPT_TAG,
    JOB_TAG,
    OWNER_TAG,
    Misconfigured,
    Throttled,
)
from service.db.attempts import attempts
from service.db.attempts.attempts import AttemptRow
from service.db.money import ledger
from service.db.schema import tables
from service.domain.cloud.fleet import (
    Offering,
    Price,
    ScaleSet,
    ScaleSetPhase,
    TaggedResource,
    scale_set_name,
)
from service.domain.lifecycle.attempt import TOO_LONG_TO_DELETE
from service.domain.states import AttemptState
from service.pricing.fixed import FixedPrices
from service.pricing.source import PricesUnavailable
from service.reconciler.sweeps.late_billing import LateBilling
from tests.integration.db.rows import add, add_attempt, add_job
from tests.nodes.scripted_node import boot
from tests.world import PRICE, SPOT, World, client


async def _make_orphan(world: World, **tags: str) -> str:
    """Create a scale set that carries our owner tag and belongs to no live attempt."""
    job = await world.submit()
    nodes = await boot(world, job["id"])
    async with world.engine.connect() as conn:
        row = await attempts.find(conn, nodes[0].attempt_id)
    assert row is not None
    spec = world.attempts.specs.spec(row)
    await world.cloud.create(replace(spec, name="rk-nobodys", tags=spec.tags | tags))
    world.clock.advance(minutes=5)
    return str(job["id"])


async def test_a_deleted_resource_group_does_not_end_the_sweep(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    await _make_orphan(world)
    world.cloud.fail_next = [Misconfigured("ResourceGroupNotFound: rg", "ResourceGroupNotFound")]

    with caplog.at_level(logging.WARNING):
        count = await world.orphans.run_once()
    after = await world.orphans.run_once()

    assert (count, after) == ([], ["rk-nobodys"])
    assert "sweep.list_failed" in caplog.messages


async def test_an_orphan_that_cannot_be_deleted_is_reported_once_by_all_replicas(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    job_id = await _make_orphan(world)
    world.cloud.failing_deletes = 1000
    with caplog.at_level(logging.ERROR):
        for _ in range(40):
            for _replica in range(2):
                await replace(world.orphans).run_once()
            world.clock.advance(minutes=1)

    events = await world.events(job_id, "leak.will_not_die")
    assert len(events) == 1
    assert "rk-nobodys of this job cannot be deleted" in events[0]["message"]
    assert caplog.messages.count("leak.will_not_die") == 2  # every quarter of an hour


async def test_machines_that_came_when_their_attempt_was_over_are_billed_until_they_are_gone(
    world: World,
) -> None:
    job = await world.submit()
    row = await _end_attempt(world, job["id"])
    before = await world.job(job["id"])
    born = world.clock()
    await world.cloud.create(world.attempts.specs.spec(row))  # it was on its way all that time
    world.clock.advance(minutes=5)
    await world.orphans.run_once()
    view = await world.job(job["id"])
    world.clock.advance(minutes=3)
    deleted_at = world.clock()
    for _ in range(2):
        await world.orphans.run_once()
        world.clock.advance(minutes=1)

    async with world.engine.connect() as conn:
        rows = await ledger.of_job(conn, job["id"])
        after = await attempts.find(conn, row.id)
    late_rows = [r for r in rows if r.started_at >= born]
    assert [(r.started_at, r.ended_at) for r in late_rows] == [(born, deleted_at)] * 2
    assert [j["cost"]["final"] for j in (before, view, await world.job(job["id"]))] == [
        *(True, False, True)
    ]
    assert after is not None
    assert after.ended_at == deleted_at  # a bill of that time counts it
    assert (await world.event_codes(job["id"])).count("attempt.made_late") == 1


async def test_an_orphan_is_deleted_by_the_second_sweep_that_cannot_bill_it_others_by_the_first(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    cloud = WatchedCloud(now=world.clock)
    for name in "ab":
        await cloud.create(world.attempts.specs.spec(await _add_ended_attempt(world, name)))
    async with world.engine.begin() as conn:
        full = update(tables.jobs).where(tables.jobs.c.id == "job-a")
        await conn.execute(full.values(version=2**63 - 1))  # what it is told raises it
    world.clock.advance(minutes=5)
    sweep = replace(world.orphans, cloud=cloud)

    with pytest.raises(DataError):
        await sweep.run_once()
    first = cloud.dying()
    world.clock.advance(minutes=1)
    with pytest.raises(DataError):
        await sweep.run_once()

    assert (first, cloud.dying()) == ({"rk-b"}, {"rk-a", "rk-b"})
    assert caplog.messages.count("sweep.not_billed") == 2


@pytest.mark.parametrize(("refusals", "billed"), [(1, 2), (2, 0)])
async def test_a_late_set_that_azure_does_not_describe_is_left_once_to_be_billed(
    world: World, refusals: int, billed: int
) -> None:
    cloud = WatchedCloud(now=world.clock, refusals=refusals)
    await cloud.create(world.attempts.specs.spec(await _add_ended_attempt(world, "a")))
    world.clock.advance(minutes=5)
    sweep = replace(world.orphans, cloud=cloud)

    await sweep.run_once()
    first = cloud.dying()
    world.clock.advance(minutes=1)
    await sweep.run_once()

    assert (first, cloud.dying()) == (set(), {"rk-a"})
    async with world.engine.connect() as conn:
        assert len(await ledger.of_job(conn, "job-a")) == billed


async def test_each_orphan_is_billed_right_before_its_delete_and_what_is_gone_after_all_deletes(
    world: World,
) -> None:
    cloud = WatchedCloud(now=world.clock)
    for name in "bc":
        await cloud.create(world.attempts.specs.spec(await _add_ended_attempt(world, name)))
    await _add_ended_attempt(world, "a")
    money = {"hourly": 8, "on_demand_hourly": 32, "started_at": world.clock()}
    async with world.engine.begin() as conn:
        await add(conn, tables.ledger, job_id="job-a", attempt_id="a", vm_id="vm", **money)
    world.clock.advance(minutes=5)

    await replace(world.orphans, cloud=cloud).run_once()

    assert cloud.asked == ["get rk-b", "delete rk-b", "get rk-c", "delete rk-c", "get rk-a"]


async def test_an_older_look_opens_no_bill_after_the_machines_are_gone(world: World) -> None:
    row = await _add_ended_attempt(world, "a")
    empty = FakeCloud(now=world.clock)
    other_meter = LateBilling(engine=world.engine, cloud_in_region=lambda _: empty, now=world.clock)

    async def meanwhile() -> None:
        world.clock.advance(seconds=2)
        assert await other_meter.meter(row.id, billed=True)

    cloud = WatchedCloud(now=world.clock, meanwhile=meanwhile)
    await cloud.create(world.attempts.specs.spec(row))
    world.clock.advance(minutes=5)
    late_billing = LateBilling(
        engine=world.engine, cloud_in_region=lambda _: cloud, now=world.clock
    )

    assert not await late_billing.meter(row.id, billed=False)
    async with world.engine.connect() as conn:
        assert await ledger.of_job(conn, "job-a") == []


async def _nothing() -> None:
    """Happens meanwhile."""


@dataclass
class WatchedCloud(FakeCloud):
    """It describes no set at first, and lets something happen before it answers."""

    refusals: int = 0
    meanwhile: Callable[[], Awaitable[None]] = _nothing
    asked: list[str] = field(default_factory=list)

    async def get(self, name: str) -> ScaleSet:
        self.asked.append(f"get {name}")
        if self.refusals:
            self.refusals -= 1
            raise Throttled("Our share is used up")
        scale_set = await super().get(name)
        await self.meanwhile()
        return scale_set

    async def delete(self, name: str) -> None:
        self.asked.append(f"delete {name}")
        await super().delete(name)

    def dying(self) -> set[str]:
        return {s.name for s in self.list_existing(()) if s.phase is ScaleSetPhase.DELETING}


async def _add_ended_attempt(world: World, name: str) -> AttemptRow:
    """Add the only attempt of a job "job-{name}", which never had machines."""
    ended_values = {"state": "ended", "outcome": "cancelled", "ended_at": world.clock()}
    async with world.engine.begin() as conn:
        await add_job(conn, world.clock(), id=f"job-{name}")
        await add_attempt(conn, world.clock(), id=name, job_id=f"job-{name}", **ended_values)
        row = await attempts.find(conn, name)
    assert row is not None
    return row


async def _end_attempt(world: World, job_id: str) -> AttemptRow:
    """Its only attempt, booted, cancelled and gone."""
    await boot(world, job_id)
    await world.call("POST", f"/v1/fine_tuning/jobs/{job_id}/cancel")
    await world.tick(20)
    async with world.engine.connect() as conn:
        (row,) = await attempts.of_job(conn, job_id)
    assert row.state is AttemptState.ENDED
    return row


async def test_the_audit_names_what_leaks_and_what_it_costs(world: World) -> None:
    job_id = await _make_orphan(world, **{ATTEMPT_TAG: "att-nobodys", JOB_TAG: "ftjob-nobodys"})
    (attempt,) = await world.attempts_of(job_id)
    disk = TaggedResource(kind="Disks", name="old", tags={OWNER_TAG: world.cloud.owner})
    world.cloud.untracked += [disk, replace(disk, name="theirs", tags={OWNER_TAG: "neighbour"})]

    report = (await world.call("GET", "/v1/organization/audit")).json()
    first = (await world.call("GET", "/v1/organization/audit?limit=1")).json()
    last = await world.call("GET", f"/v1/organization/audit?after={first['last_id']}")

    by_name = {s["id"]: s for s in report["data"]}
    leaked_set, used_set = by_name["rk-nobodys"], by_name[scale_set_name(attempt["id"])]
    assert (leaked_set["standing"], leaked_set["leaks"], leaked_set["per_hour"]) == (
        "unknown",
        True,
        "16.8800",
    )
    assert leaked_set["per_hour_if"] is None  # Azure tells that it is Spot
    assert (leaked_set["job"], leaked_set["machines"], leaked_set["region"]) == (
        "ftjob-nobodys",
        2,
        "eastus",
    )
    assert (used_set["standing"], used_set["leaks"], used_set["per_hour"]) == (
        "used",
        False,
        "16.8800",
    )
    assert (used_set["job"], used_set["attempt_state"]) == (job_id, "starting")
    assert (by_name["Disks/old"]["standing"], "Disks/theirs" in by_name) == ("untracked", False)
    assert (report["summary"]["leaks"], report["summary"]["unpriced_leaks"]) == (2, 1)
    groups = report["summary"]["groups"]
    assert [groups[g]["per_hour"] for g in ("used", "unknown")] == ["16.8800"] * 2
    assert first["has_more"]
    assert [*first["data"], *last.json()["data"]] == report["data"]


class AwayPrices(FixedPrices):
    """A price list that does not answer."""

    async def prices(self, offerings: list[Offering]) -> dict[Offering, Price]:
        raise PricesUnavailable(f"no route to the price of {offerings}")


async def test_an_audit_without_prices_names_leaks_without_their_cost(
    world: World,
) -> None:
    await _make_orphan(world, **{ATTEMPT_TAG: "att-nobodys"})
    headers = {"authorization": f"Bearer {world.key}"}

    async with client(make_app(replace(world.parts, prices=AwayPrices({})))) as http:
        report = (await http.get("/v1/organization/audit", headers=headers)).json()

    prices_of = {s["standing"]: s["per_hour"] for s in report["data"]}
    assert prices_of == {"used": "16.8800", "unknown": None}
    assert (report["summary"]["leaks"], report["summary"]["unpriced_leaks"]) == (1, 1)


async def test_an_audit_that_may_not_list_all_else_shows_the_scale_sets_and_says_so(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    await _make_orphan(world)

    async def refuse() -> list[TaggedResource]:
        raise Misconfigured("no role")

    monkeypatch.setattr(world.cloud, "list_tagged", refuse)
    report = (await world.call("GET", "/v1/organization/audit")).json()

    assert "rk-nobodys" in {s["id"] for s in report["data"]}
    assert report["summary"]["leaks"] == 1
    assert "no role" in report["summary"]["unseen"]
    assert "Give the service's identity the actions" in report["summary"]["unseen"]


async def test_an_audit_without_azure_says_so(world: World) -> None:
    world.cloud.fail_next = [Misconfigured("no role")]

    response = await world.call("GET", "/v1/organization/audit")

    assert response.status_code == 503
    assert "no role" in response.json()["error"]["message"]


def _with_workspace(world: World) -> FakeCloud:
    """Return a workspace beside the world's scale sets, as the API and the sweep see it."""
    workspace = FakeCloud(now=world.clock, owner=world.cloud.owner)
    engines = Engines(scale_sets=world.cloud, azureml=workspace)
    world.orphans = replace(world.orphans, cloud=engines, limited_cloud=None)
    prices = FixedPrices({SPOT: PRICE, replace(SPOT, engine=Engine.AZUREML): PRICE})
    parts = replace(world.parts, cloud=engines, prices=prices)
    world.http = client(make_app(parts))
    return workspace


async def _cluster_of_nobody(world: World, workspace: FakeCloud) -> None:
    """Create a cluster that no attempt has, beside one that an attempt has."""
    job = await world.submit()
    await boot(world, job["id"])
    async with world.engine.begin() as conn:
        (row,) = await attempts.of_job(conn, job["id"])
        await conn.execute(update(tables.attempts).values(engine=Engine.AZUREML))
    spec = world.attempts.specs.spec(row)
    offering = replace(spec.offering, engine=Engine.AZUREML)
    for name in (spec.name, "rk-nobodys"):
        await workspace.create(replace(spec, name=name, offering=offering))
    world.clock.advance(minutes=5)


async def test_the_audit_says_that_a_silent_workspace_was_left_out_and_misses_none_of_it(
    world: World,
) -> None:
    workspace = _with_workspace(world)
    await _cluster_of_nobody(world, workspace)
    audit = (await world.call("GET", "/v1/organization/audit")).json()
    workspace.fail_next = [Throttled("the workspace is busy")]
    without = (await world.call("GET", "/v1/organization/audit")).json()

    assert (audit["summary"]["leaks"], audit["summary"]["unseen"]) == (1, None)
    assert [s["per_hour"] for s in audit["data"] if s["id"] == "rk-nobodys"] == ["16.8800"]
    unseen = without["summary"]["unseen"]
    assert "could not be listed and are left out: the workspace is busy" in unseen
    assert "missing" not in {s["standing"] for s in without["data"]}


async def test_a_cluster_that_will_not_go_is_not_forgotten_while_its_workspace_is_silent(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    workspace = _with_workspace(world)
    await _cluster_of_nobody(world, workspace)
    workspace.failing_deletes = 100
    for _ in range(2):
        await world.orphans.run_once()
    world.clock.advance(seconds=TOO_LONG_TO_DELETE.total_seconds())
    workspace.fail_next = [Throttled("the workspace is busy")]
    await world.orphans.run_once()
    world.clock.advance(seconds=60)
    await world.orphans.run_once()

    assert "leak.will_not_die" in [record.message for record in caplog.records]
