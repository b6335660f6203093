"""`rekindle costs`: by day, and against what Azure billed."""

from datetime import UTC, datetime, time, timedelta
from decimal import Decimal

from sqlalchemy import text

from service.db.money.bills import metered
from service.db.schema.tables import ledger
from service.domain.money.billing_reconciliation import MACHINES, UNTAGGED, BilledDay
from service.pricing.bills import FakeBills
from service.pricing.market import MarketUnavailable
from service.reconciler.sweeps.bill_watch import BillWatch
from tests.integration.cli.conftest import Shell
from tests.integration.cli.submit.test_submit import submit
from tests.integration.db.rows import add, add_attempt, add_job
from tests.world import World


async def lived(world: World, job: str) -> datetime:
    """Record an attempt of two hours from 23:00 three days ago; return the midnight within it."""
    midnight = datetime.combine(world.clock().date(), time(), UTC) - timedelta(days=2)
    await record_attempt(world, job, 1, 2)
    return midnight


async def record_attempt(world: World, job: str, number: int, hours: float) -> None:
    """Record a one-machine attempt of this number: from 23:00 three days ago, at $8 an hour."""
    midnight = datetime.combine(world.clock().date(), time(), UTC) - timedelta(days=2)
    started_at, name = midnight - timedelta(hours=1), f"att-{number}"
    end = started_at + timedelta(hours=hours)
    async with world.engine.begin() as conn:
        values = {"state": "ended", "outcome": "succeeded", "ended_at": end}
        await add_attempt(conn, started_at, id=name, number=number, job_id=job, **values)
        row = {"job_id": job, "attempt_id": name, "started_at": started_at, "ended_at": end}
        await add(conn, ledger, vm_id="a", hourly=8, on_demand_hourly=32, **row)


def billed(at: datetime, quantity: str, amount: str, category: str = MACHINES) -> BilledDay:
    return BilledDay(
        day=at.date(),
        attempt_id="att-1",
        category=category,
        quantity=Decimal(quantity),
        amount=Decimal(amount),
    )


async def test_each_difference_of_bill_and_ledger_has_a_reason(shell: Shell) -> None:
    world, job = shell.world, await submit(shell)
    midnight = await lived(world, job)
    before = midnight - timedelta(hours=1)
    disk = billed(midnight, "1", "0.25", "Storage")
    bills = FakeBills(rows=[billed(before, "1", "8"), billed(midnight, "1.5", "12"), disk])
    watch = BillWatch(engine=world.engine, bills=bills, now=world.clock)

    empty = await shell.run("costs", "--reconcile")
    await watch.run_once()
    await watch.run_once()
    document = (await shell.run("costs", "--reconcile", "--json")).json
    output = await shell.run("costs", "--reconcile")
    other_result = await shell.run(
        "costs", "--reconcile", "--json", "--key", await world.other_key()
    )

    assert "Azure has not published a bill yet" in empty.out
    assert len(bills.requested_periods) == 1
    (line,) = document["attempts"]
    assert (line["id"], line["metered"], line["billed"]) == ("att-1", "16.0000", "20.2500")
    causes = {d["cause"]: d["amount"] for d in line["differences"]}
    assert causes == {"disks": "0.2500", "time_of_meter": "4.0000"}
    assert document["whole"]["difference"] == "4.2500"
    assert "Azure billed 30 machine-minutes more" in output.out
    assert "Rekindle's ledger $16.00, Azure's bill $20.25." in output.out
    assert (other_result.json["attempts"], other_result.json["whole"]["billed"]) == ([], "0.0000")


async def test_what_azure_corrects_takes_the_place_of_what_it_told_before(shell: Shell) -> None:
    world, job = shell.world, await submit(shell)
    midnight = await lived(world, job)
    bills = FakeBills(rows=[billed(midnight, "9", "72")])
    watch = BillWatch(engine=world.engine, bills=bills, now=world.clock)

    await watch.run_once()
    bills.fail_next = [MarketUnavailable("429", retry_after=60)]
    world.clock.advance(hours=9)
    await watch.run_once()
    statement = (await shell.run("costs", "--reconcile", "--json")).json
    bills.rows = [billed(midnight, "1", "8")]
    world.clock.advance(minutes=16)
    await watch.run_once()
    corrected = (await shell.run("costs", "--reconcile", "--json")).json

    assert (statement["whole"]["billed"], corrected["whole"]["billed"]) == ("72.0000", "8.0000")


async def test_every_day_since_the_last_look_is_asked_for(shell: Shell) -> None:
    world, job = shell.world, await submit(shell)
    midnight = await lived(world, job)
    today = world.clock().date()
    bills = FakeBills(rows=[billed(midnight, "1", "8"), billed(midnight, "1", "8")])
    watch = BillWatch(engine=world.engine, bills=bills, now=world.clock)

    await watch.run_once()
    world.clock.advance(hours=30 * 24)
    await watch.run_once()
    twice = (await shell.run("costs", "--reconcile", "--json", "--days", "60")).json

    first, second = (period[0] for period in bills.requested_periods)
    assert (first, second) == (today - timedelta(days=90), today - timedelta(days=10))
    assert (twice["told_since"], twice["whole"]["billed"]) == (f"{first}", "16.0000")


async def test_without_a_bill_nothing_is_judged_and_the_reason_is_told(shell: Shell) -> None:
    world, job = shell.world, await submit(shell)
    await lived(world, job)
    await BillWatch(engine=world.engine, bills=FakeBills(rows=None), now=world.clock).run_once()

    output = await shell.run("costs", "--reconcile")
    document = (await shell.run("costs", "--reconcile", "--json")).json
    key = await world.other_key()
    other_statement = (await shell.run("costs", "--reconcile", "--json", "--key", key)).json

    assert (document["told_at"], document["whole"]["differences"][0]["cause"]) == (None, "delay")
    assert "did not answer: REKINDLE_CLOUD is fake" in output.out
    assert "Operators of the service see the reason" in other_statement["trouble"]["message"]


async def test_a_day_is_one_of_utc_in_every_session(world: World) -> None:
    """The night in which Berlin sets its clocks back has 25 hours there."""
    started_at = datetime(2026, 10, 24, 23, tzinfo=UTC)
    async with world.engine.begin() as conn:
        await add_job(conn, started_at)
        await add_attempt(conn, started_at)
        row = {"job_id": "job", "attempt_id": "att-1", "ended_at": started_at + timedelta(hours=26)}
        await add(
            conn, ledger, vm_id="a", hourly=8, on_demand_hourly=32, started_at=started_at, **row
        )
        await conn.execute(text("set local time zone 'Europe/Berlin'"))
        summary = await metered(
            conn, "p-job", started_at.date(), started_at.date() + timedelta(days=2), world.clock()
        )

    assert {m.day.day: float(m.hours) for m in summary} == {24: 1, 25: 24, 26: 1}


async def test_attempts_come_page_by_page_those_first_that_differ_most(shell: Shell) -> None:
    job = await submit(shell)
    for number, hours in enumerate((1, 3, 2), start=1):
        await record_attempt(shell.world, job, number, hours)
    path = "/v1/organization/costs/reconciliation?limit=2"

    first = (await shell.world.call("GET", path)).json()
    second = (await shell.world.call("GET", f"{path}&after=att-3")).json()

    assert [[a["id"] for a in p["attempts"]] for p in (first, second)] == [
        ["att-2", "att-3"],
        ["att-1"],
    ]
    assert [p["has_more"] for p in (first, second)] == [True, False]
    assert {p["whole"]["metered"] for p in (first, second)} == {"48.0000"}


async def test_costs_are_shown_by_day_with_what_was_saved(shell: Shell) -> None:
    midnight = await lived(shell.world, await submit(shell))

    output = await shell.run("costs", "--days", "3")
    document = (await shell.run("costs", "--days", "3", "--json")).json

    day = f"{midnight:%Y-%m-%d}"
    row = next(line.split() for line in output.out.splitlines() if line.strip().startswith(day))
    assert row == [day, "$8.00", "$0.00", "$32.00", "$24.00"]
    assert "machines saved $24.00 compared to on-demand (75 %)." in output.out
    assert document["data"][0]["start_time"] == midnight.timestamp()


async def test_what_no_project_is_charged_with_is_told_to_operators_alone(shell: Shell) -> None:
    world, job = shell.world, await submit(shell)
    midnight = await lived(world, job)
    charges = {
        UNTAGGED: ("Storage", "3"),
        "att-9": (MACHINES, "2"),
        "": (MACHINES, "1"),  # our tag, and none of an attempt
    }
    rows = [
        BilledDay(
            day=midnight.date(),
            attempt_id=resource,
            category=category,
            quantity=Decimal(1),
            amount=Decimal(amount),
        )
        for resource, (category, amount) in charges.items()
    ]
    bills = FakeBills(rows=[*rows, billed(midnight, "2", "16")])
    await BillWatch(engine=world.engine, bills=bills, now=world.clock).run_once()

    document = (await shell.run("costs", "--reconcile", "--json")).json
    output = await shell.run("costs", "--reconcile")
    other_result = await shell.run(
        "costs", "--reconcile", "--json", "--key", await world.other_key()
    )

    assert {
        (line["cause"], line["category"], line["billed"]) for line in document["of_nobody"]
    } == {
        ("untagged", "Storage", "3.0000"),
        ("unknown_attempt", MACHINES, "3.0000"),
    }
    assert "Belongs to no project: $3.00 (Storage $3.00). A resource without" in output.out
    assert document["whole"]["billed"] == "16.0000"
    assert other_result.json["of_nobody"] == []


async def two_projects(world: World, job: str) -> None:
    """Record an attempt of each of three projects: two days ago, evicted today, and refused.

    The refused job never had any machines.
    """
    await record_attempt(world, job, 1, 2)
    now, started_at = world.clock(), world.clock() - timedelta(hours=3)
    async with world.engine.begin() as conn:
        await add_job(conn, started_at, id="theirs")
        evicted = {"state": "ended", "outcome": "evicted", "ended_at": now, "survived": 2}
        await add_attempt(conn, started_at, id="att-9", job_id="theirs", **evicted)
        row = {"job_id": "theirs", "attempt_id": "att-9", "started_at": started_at}
        await add(conn, ledger, vm_id="b", hourly=10, on_demand_hourly=40, **row)
        await add_job(conn, started_at, id="refused")
        values = {"state": "ended", "outcome": "no_capacity", "ended_at": now}
        await add_attempt(conn, started_at, id="att-8", job_id="refused", **values)


async def test_operators_see_what_each_project_spent_and_saved(shell: Shell) -> None:
    await two_projects(shell.world, await submit(shell))

    document = (await shell.run("costs", "--projects", "--json")).json
    output = await shell.run("costs", "--projects")
    today = (await shell.run("costs", "--projects", "--days", "1", "--json")).json

    (dearer_project, cheaper_project) = document["data"]
    assert (dearer_project["name"], dearer_project["spent"], dearer_project["evictions"]) == (
        "p-theirs",
        "30.0000",
        3,
    )
    assert (cheaper_project["name"], cheaper_project["spent"], cheaper_project["saved"]) == (
        "tests",
        "16.0000",
        "48.0000",
    )
    assert (
        cheaper_project["saved_percent"],
        cheaper_project["jobs"],
        cheaper_project["evictions"],
    ) == (75.0, 1, 0)
    assert (document["whole"]["spent"], document["projects"]) == ("46.0000", 2)
    assert "2 projects: machines cost $46.00, which is $138.00 less" in output.out
    assert [project["name"] for project in today["data"]] == ["p-theirs"]


async def spends_more_than_all(world: World, job: str) -> None:
    """From now on, for an hour."""
    async with world.engine.begin() as conn:
        await add_attempt(conn, world.clock(), id="att-2", number=2, job_id=job, state="running")
        row = {"job_id": job, "attempt_id": "att-2", "started_at": world.clock()}
        await add(conn, ledger, vm_id="a", hourly=99, on_demand_hourly=99, **row)
    world.clock.advance(hours=1)


async def test_projects_come_page_by_page_all_of_one_moment(shell: Shell) -> None:
    world, path = shell.world, "/v1/organization/costs/projects?limit=1"
    job = await submit(shell)
    await two_projects(world, job)

    first = (await world.call("GET", path)).json()
    next_url = f"{path}&until={first['until']}&after="
    await spends_more_than_all(world, job)
    second = (await world.call("GET", f"{next_url}{first['last_id']}")).json()
    response = await world.call("GET", f"{next_url}p-unknown")
    first_page = (await world.call("GET", path)).json()

    assert [p["data"][0]["name"] for p in (first, second)] == ["p-theirs", "tests"]
    assert [p["has_more"] for p in (first, second)] == [True, False]
    assert {p["whole"]["spent"] for p in (first, second)} == {"46.0000"}
    assert first_page["data"][0]["name"] == "tests"
    assert response.status_code == 400
