"""Contract of Bills: the fake, and Cost Management as the emulator serves it."""

from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from uuid import uuid4

import pytest

from service.domain.money.billing_reconciliation import MACHINES, UNTAGGED, BilledDay
from service.pricing.azure.bills import AzureBills
from service.pricing.bills import Bills, FakeBills
from service.pricing.market import MarketUnavailable
from tests.contract.pricing.test_market import arm
from tests.emulated.process import GROUP, SUBSCRIPTION, Emulator, scale_set, set_url
from tests.waiting import until

OWNER, ATTEMPT = "rekindle-owner", "rekindle-attempt"
SCOPE = f"/subscriptions/{SUBSCRIPTION}/resourceGroups/{GROUP}"


@pytest.fixture(scope="module")
def biller(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Emulator]:
    """Run an emulator without delays for machines or costs."""
    quick = ("--create-seconds", "0", "--delete-seconds", "0", "--cost-delay-seconds", "0")
    running = Emulator(tmp_path_factory.mktemp("bills"), *quick, "--hollow")
    running.make_group()
    yield running
    running.destroy()


def azure(emulator: Emulator, owner: str) -> AzureBills:
    return AzureBills(arm(emulator), SCOPE, tag=ATTEMPT, owner=(OWNER, owner))


def today() -> date:
    return datetime.now(UTC).date()  # noqa: TID251 - the emulator's clock is the real one


@pytest.fixture(params=["fake", "azure"])
async def bills(request: pytest.FixtureRequest) -> Bills:
    """Return bills for two machines of an attempt that started a moment ago."""
    if request.param == "fake":
        return FakeBills(rows=[_row()])
    emulator, owner = request.getfixturevalue("biller"), f"owner-{uuid4().hex}"
    with emulator.signed_in() as http:
        for name, tags in (("ours", {OWNER: owner, ATTEMPT: "att-1"}), ("other", {OWNER: "x"})):
            body = scale_set(2) | {"tags": tags}
            http.put(set_url(f"rk-{name}-{owner[-8:]}"), json=body).raise_for_status()
    return azure(emulator, owner)


async def test_machines_are_billed_by_day_attempt_and_kind_of_meter(bills: Bills) -> None:
    async def read_rows() -> list[BilledDay]:
        return await bills.billed(today() - timedelta(days=1), today())

    rows = await until(read_rows, bool, interval=0.05)
    await bills.close()

    assert {(row.attempt_id, row.category) for row in rows} == {("att-1", MACHINES)}
    assert rows[-1].day == today()
    assert rows[-1].amount > 0
    assert rows[-1].quantity > 0


async def test_bills_outside_of_the_period_are_left_out(bills: Bills) -> None:
    before = await bills.billed(today() - timedelta(days=9), today() - timedelta(days=2))
    await bills.close()

    assert before == []


async def test_a_scope_that_is_not_there_is_unavailable(biller: Emulator) -> None:
    nowhere = AzureBills(arm(biller), f"{SCOPE}-not", tag=ATTEMPT, owner=(OWNER, "x"))

    with pytest.raises(MarketUnavailable, match="was answered 404"):
        await nowhere.billed(today(), today())
    await nowhere.close()


async def test_untagged_costs_and_costs_of_other_deployments_are_separate(biller: Emulator) -> None:
    with biller.signed_in() as http:
        for name, tags in (("bare", {}), ("theirs", {OWNER: "other"})):
            body = scale_set(1) | {"tags": tags}
            http.put(set_url(f"rk-{name}"), json=body).raise_for_status()
    bills = azure(biller, f"owner-{uuid4().hex}")

    async def read_rows() -> list[BilledDay]:
        return await bills.billed(today() - timedelta(days=1), today())

    rows = await until(read_rows, bool, interval=0.05)
    await bills.close()

    assert {(row.attempt_id, row.category) for row in rows} == {(UNTAGGED, MACHINES)}


def _row() -> BilledDay:
    return BilledDay(
        day=today(),
        attempt_id="att-1",
        category=MACHINES,
        quantity=Decimal("0.01"),
        amount=Decimal("0.08"),
    )
