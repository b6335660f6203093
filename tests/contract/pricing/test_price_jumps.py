"""Price jumps: a price that jumps is used after a day; until then the last good one."""

from dataclasses import replace
from decimal import Decimal

import pytest

from service.domain.spot.capacity_traces import spot_pool_of
from service.domain.states import CapacityType
from tests.price_list import ON_DEMAND, SPOT, PriceList, Reader, machine, price, spot, told


@pytest.mark.parametrize(("now", "used"), [(0.1, "0.1"), (0.004, "0.004")])
async def test_a_price_may_move_by_five_times(
    price_list: PriceList, reader: Reader, now: float, used: str
) -> None:
    price_list.will_say(machine(0.2), spot(0.02))
    await reader.price()
    price_list.will_only_say(machine(0.2), spot(now))

    assert await reader.price(minutes=6) == price(used, "0.2")


@pytest.mark.parametrize("odd", [spot(0.11), spot(0.0039), spot(0), spot("free"), spot(50)])
async def test_a_price_that_jumps_is_replaced_by_the_last_good_one_and_reported_once(
    price_list: PriceList, reader: Reader, odd: str, caplog: pytest.LogCaptureFixture
) -> None:
    price_list.will_say(machine(0.2), spot(0.02))
    await reader.price()
    price_list.will_only_say(machine(0.2), odd)

    found = [await reader.price(minutes=6) for _ in range(3)]

    assert found == [price("0.02", "0.2")] * 3
    assert len(told(caplog)) == 1


@pytest.mark.parametrize("odd", [machine(0.01), machine(5), machine(0), machine(None)])
async def test_a_price_on_demand_that_jumps_leaves_both_as_they_were(
    price_list: PriceList, reader: Reader, odd: str
) -> None:
    price_list.will_say(machine(0.2), spot(0.02))
    await reader.price()
    price_list.will_only_say(odd, spot(0.02))

    assert await reader.price(minutes=6) == price("0.02", "0.2")


async def test_a_jump_that_is_still_listed_a_day_later_is_the_price(
    price_list: PriceList, reader: Reader
) -> None:
    price_list.will_say(machine(0.9), spot(0.02))
    await reader.price()
    price_list.will_only_say(machine(0.9), spot(0.3))
    first = await reader.price(minutes=6)
    price_list.will_only_say(machine(0.9), spot(0.29))  # about the same
    almost = await reader.price(hours=23, minutes=55)

    assert [first, almost] == [price("0.02", "0.9")] * 2
    assert await reader.price(minutes=6) == price("0.29", "0.9")


async def test_a_jump_that_is_over_or_becomes_another_begins_its_day_anew(
    price_list: PriceList, reader: Reader
) -> None:
    found = []
    for hourly in (0.02, 0.3, 0.02, 0.3, 0.003):
        price_list.will_only_say(machine(0.9), spot(hourly))
        found.append(await reader.price(hours=13))

    assert found == [price("0.02", "0.9")] * 5


async def test_what_settled_is_used_by_every_replica_and_after_a_restart(
    price_list: PriceList, reader: Reader
) -> None:
    price_list.will_say(machine(0.9), spot(0.02))
    await reader.price()
    other = reader.open()
    await other.prices([SPOT])
    price_list.will_only_say(machine(0.9), spot(0.3))
    await reader.price(minutes=6)
    reader.opened.insert(0, reader.opened.pop())
    settled = [await reader.price(days=1)]
    reader.opened.insert(0, reader.opened.pop())
    settled.append(await reader.price(minutes=6))
    reader.open()
    settled.append(await reader.price(minutes=6))

    assert settled == [price("0.3", "0.9")] * 3


async def test_after_a_restart_the_price_that_was_paid_is_the_last_good_one(
    price_list: PriceList, reader: Reader
) -> None:
    paid = {CapacityType.SPOT: Decimal("0.02"), CapacityType.ON_DEMAND: Decimal("0.2")}
    reader.memory.prices = {spot_pool_of(SPOT): paid}
    price_list.will_say(machine(0.01), spot(0))

    assert await reader.price() == price("0.02", "0.2")


async def test_spot_never_costs_more_than_on_demand(
    price_list: PriceList, reader: Reader, caplog: pytest.LogCaptureFixture
) -> None:
    price_list.will_say(machine(0.1), spot(0.3))

    assert await reader.price() == price("0.1", "0.1")
    assert told(caplog) == ["Spot costs $0.3, more than $0.1 on demand"]


@pytest.mark.parametrize("odd", [0.00199, 0.501])
async def test_a_first_price_of_spot_that_does_not_fit_the_one_on_demand_is_none(
    price_list: PriceList, reader: Reader, odd: float, caplog: pytest.LogCaptureFixture
) -> None:
    price_list.will_say(machine(0.1), spot(odd))

    assert await reader.price() is None
    assert "is not between" in told(caplog)[-1]


@pytest.mark.parametrize("hourly", [0.01, 183722])
async def test_a_first_price_that_eight_gpus_cannot_have_is_none(
    price_list: PriceList, reader: Reader, hourly: float
) -> None:
    eight = replace(ON_DEMAND, vm_size="Standard_ND96amsr_A100_v4")
    price_list.will_say(machine(hourly, armSkuName=eight.vm_size))

    assert await reader.price(eight) is None


async def test_between_two_months_of_spot_prices_the_last_one_holds(
    price_list: PriceList, reader: Reader
) -> None:
    """Keep the old price in the gap, because Azure may publish a new month's Spot prices late.

    Azure dates the end of a price to the last second of a month.
    """
    price_list.will_say(machine(0.1), spot(0.02, effectiveEndDate="2026-11-30T23:59:59Z"))
    before = await reader.price()

    assert await reader.price(days=11) == before == price("0.02", "0.1")


async def test_what_is_no_longer_listed_has_no_price(price_list: PriceList, reader: Reader) -> None:
    price_list.will_say(machine(0.1), spot(0.02))
    await reader.price()
    price_list.will_only_say(machine(0.1))

    assert await reader.price(minutes=6) is None
