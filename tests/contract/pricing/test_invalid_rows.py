"""Rows of Azure's price list that are no price of a Linux machine today, and price jumps.

Each case names its source. Most are from issues of other tools that read the list.
"""

from dataclasses import replace
from typing import Any

import pytest

from service.pricing.source import PricesUnavailable
from tests.clock import Clock
from tests.price_list import ON_DEMAND, SPOT, PriceList, Reader, machine, price, spot, warned_causes

LATER = "2026-11-19T00:00:00Z"  # than the other rows, and in force
FUTURE, PAST = "2026-12-01T00:00:00Z", "2026-11-10T23:59:59Z"


GOOD = (machine(0.1), spot(0.02))
# What a newer row must not be taken for: (what it is, the row).
NO_PRICES: dict[str, str] = {
    "a placeholder of $0 (SkyPilot 3615: H100 for $0)": spot(0, effectiveStartDate=LATER),
    "$0 on demand": machine(0.0, effectiveStartDate=LATER),
    "a negative price": spot(-0.5, effectiveStartDate=LATER),
    "text": spot("free", effectiveStartDate=LATER),
    "no price at all": spot(None, effectiveStartDate=LATER),
    "the price of next month (azure-rest-api-specs 24491)": spot(0.03, effectiveStartDate=FUTURE),
    "a price that has ended": spot(0.03, effectiveStartDate=LATER, effectiveEndDate=PAST),
    "an end that is no date": spot(0.03, effectiveStartDate=LATER, effectiveEndDate="soon"),
    "no date": spot(0.03, effectiveStartDate=None),
    "a date that is none": spot(0.03, effectiveStartDate="tomorrow"),
    "Windows": machine(0.03, effectiveStartDate=LATER,
     productName="Virtual Machines Dsv5 Series Windows"),
    "Windows, short (SkyPilot: NCCads)": machine(0.03, effectiveStartDate=LATER,
     productName="Virtual Machines Dsv5 Srs Win"),
    "Cloud Services (OpenCost 3230)": machine(0.19, effectiveStartDate=LATER,
     productName="Dsv5 Series Cloud Services"),
    "Cloud Services, named as machines": machine(0.19, effectiveStartDate=LATER,
     productName="Virtual Machines Dsv5 Series CloudServices"),
    "a dedicated host (gpuhunt)": machine(0.3, effectiveStartDate=LATER,
     productName="Dsv5 Series Dedicated Host"),
    "Red Hat": machine(0.3, effectiveStartDate=LATER,
     productName="Virtual Machines Dsv5 Series RHEL"),
    "an expired product": machine(0.03, effectiveStartDate=LATER,
     productName="Virtual Machines Dsv5 Series - Expired"),
    "no product (SkyPilot 1768)": machine(0.03, effectiveStartDate=LATER, productName=None),
    "Low Priority (OpenCost 3531)": machine(0.02, effectiveStartDate=LATER,
     skuName="D2s v5 Low Priority"),
    "Low Priority by its meter only": machine(0.02, effectiveStartDate=LATER,
     meterName="D2s v5 low priority"),
    "a meter without a name": machine(0.03, effectiveStartDate=LATER, skuName=None, meterName=None),
    "Dev/Test (azure-rest-api-specs 24491)": machine(0.03, effectiveStartDate=LATER,
     type="DevTestConsumption"),
    "a reservation for the whole term": machine(183722.0, effectiveStartDate=LATER,
     type="Reservation", reservationTerm="1 Year"),
    "a reservation that says Consumption": machine(300, effectiveStartDate=LATER,
     reservationTerm="1 Year"),
    "euros (azure-pricer 10)": machine(0.088, effectiveStartDate=LATER, currencyCode="EUR"),
    "a hundred hours": machine(10, effectiveStartDate=LATER, unitOfMeasure="100 Hours"),
    "a price for many": machine(0.03, effectiveStartDate=LATER, tierMinimumUnits=1000.0),
    "another region": machine(0.03, effectiveStartDate=LATER, armRegionName="westus"),
    "another size": machine(0.03, effectiveStartDate=LATER, armSkuName="Standard_D4s_v5"),
    "a meter that is not primary": spot(0.03, effectiveStartDate=LATER, isPrimaryMeterRegion=False),
    "no row at all": "null",
}  # fmt: skip


@pytest.mark.parametrize("row", NO_PRICES.values(), ids=NO_PRICES.keys())
async def test_a_newer_row_that_is_no_price_changes_nothing(
    price_list: PriceList, reader: Reader, row: str
) -> None:
    price_list.will_say(row, *GOOD, row)

    assert await reader.price() == price("0.02", "0.1")


@pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity", "1e400", "0.0000001", "-0.0"])
async def test_a_number_that_no_machine_can_cost_is_no_price(
    price_list: PriceList, reader: Reader, number: str
) -> None:
    odd = spot(0.5, effectiveStartDate=LATER).replace("0.5", number)
    price_list.will_say(machine(0.1), odd)

    assert await reader.open().prices([SPOT, ON_DEMAND]) == {ON_DEMAND: price("0.1", "0.1")}


LINUX: dict[str, dict[str, Any]] = {
    "the newer names (azure-cost-calculator 543)": {
        "productName": "Virtual Machines Dsv5-Series Linux"
    },
    "names in another case (SkyPilot: WestUS3)": {
        "armRegionName": "EastUS",
        "armSkuName": "standard_d2s_v5",
        "productName": "virtual machines dsv5 series",
    },
    "savings plans in the row": {"savingsPlan": [{"retailPrice": 0.01, "term": "3 Years"}]},
    "an end in the future": {"effectiveEndDate": "2026-11-30T23:59:59Z"},
    "an end that is empty": {"effectiveEndDate": ""},
    "dates with seven digits": {"effectiveStartDate": "2026-11-01T00:00:00.0000000Z"},
    "a date without a time": {"effectiveStartDate": "2026-11-01"},
    "a tier as text (terrapod 931)": {"tierMinimumUnits": "0.0"},
    "little but names": dict.fromkeys(
        ("currencyCode", "tierMinimumUnits", "isPrimaryMeterRegion", "serviceName", "location")
    ),
    "a meter that is nowhere primary": {"isPrimaryMeterRegion": False},
}


@pytest.mark.parametrize("members", LINUX.values(), ids=LINUX.keys())
async def test_rows_that_say_it_otherwise_are_prices_all_the_same(
    price_list: PriceList, reader: Reader, members: dict[str, Any]
) -> None:
    price_list.will_say(machine(0.1, **members), spot("0.02", **members))

    assert await reader.price() == price("0.02", "0.1")


async def test_spot_rows_are_recognised_by_the_suffix_of_either_name(
    price_list: PriceList, reader: Reader
) -> None:
    price_list.will_say(machine(0.1), machine(0.02, meterName="D2s v5 SPOT"))

    assert await reader.price() == price("0.02", "0.1")


async def test_of_two_current_rows_the_higher_price_counts_and_is_reported(
    price_list: PriceList, reader: Reader, caplog: pytest.LogCaptureFixture
) -> None:
    price_list.will_say(machine(0.1), spot(0.02), spot(0.03), spot(0.03))

    assert await reader.price() == price("0.03", "0.1")
    assert "$0.02 and $0.03" in warned_causes(caplog)[-1]


async def test_a_replaced_placeholder_price_is_not_reported(
    price_list: PriceList, reader: Reader, caplog: pytest.LogCaptureFixture
) -> None:
    price_list.will_say(machine(0.1), spot(0.02), spot(0, effectiveStartDate="2026-10-01"))

    assert await reader.price() == price("0.02", "0.1")
    assert warned_causes(caplog) == []


async def test_prices_hold_from_their_date_on(
    price_list: PriceList, reader: Reader, clock: Clock
) -> None:
    price_list.will_say(machine(0.1), spot(0.02), spot(0.03, effectiveStartDate=FUTURE))
    before = await reader.price()
    price_list.will_only_say(machine(0.1), spot(0.02), spot(0.03, effectiveStartDate=FUTURE))

    assert (before, await reader.price(days=11)) == (price("0.02", "0.1"), price("0.03", "0.1"))


async def test_a_page_that_fails_leaves_no_half_of_a_list(
    price_list: PriceList, reader: Reader
) -> None:
    price_list.will_say(machine(0.1), spot(0.03, effectiveStartDate="2026-10-01"), has_next=True)
    price_list.pages.append("<html>")
    with pytest.raises(PricesUnavailable, match="no JSON"):
        await reader.price()
    price_list.pages.pop()
    price_list.will_say(spot(0.02))

    assert await reader.price(minutes=1) == price("0.02", "0.1")


@pytest.mark.parametrize("link", ['"gopher://x"', '"http://[x"', "7", '{"a": 1}'])
async def test_a_next_page_of_no_address_is_unavailable(
    price_list: PriceList, reader: Reader, link: str
) -> None:
    price_list.pages.append(f'{{"Items": [{", ".join(GOOD)}], "NextPageLink": {link}}}')

    with pytest.raises(PricesUnavailable):
        await reader.price()


async def test_a_list_in_another_currency_is_unavailable(
    price_list: PriceList, reader: Reader
) -> None:
    rows = ", ".join(machine(0.1, currencyCode=None) for _ in range(2))
    price_list.pages.append(f'{{"BillingCurrency": "EUR", "Items": [{rows}]}}')

    with pytest.raises(PricesUnavailable, match="not in US dollars"):
        await reader.price(ON_DEMAND)


async def test_one_price_that_cannot_be_read_does_not_take_away_the_others(
    price_list: PriceList, reader: Reader
) -> None:
    price_list.will_say(machine(0.1), spot("free"))
    prices = reader.open()

    by_offering = await prices.prices([SPOT, ON_DEMAND])

    assert by_offering == {ON_DEMAND: price("0.1", "0.1")}
    with pytest.raises(PricesUnavailable, match="no number"):
        await prices.prices([SPOT])


async def test_regions_and_sizes_are_asked_for_as_the_list_writes_them(
    price_list: PriceList, reader: Reader
) -> None:
    price_list.will_say()
    await reader.price(replace(SPOT, region="EastUS", vm_size="standard_nd96AMSR_a100_v4"))

    assert "armRegionName eq 'eastus'" in price_list.filters[0]
    assert "armSkuName eq 'Standard_ND96amsr_A100_v4'" in price_list.filters[0]


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

    read_prices = [await reader.price(minutes=6) for _ in range(3)]

    assert read_prices == [price("0.02", "0.2")] * 3
    assert len(warned_causes(caplog)) == 1


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
    read_prices = []
    for hourly in (0.02, 0.3, 0.02, 0.3, 0.003):
        price_list.will_only_say(machine(0.9), spot(hourly))
        read_prices.append(await reader.price(hours=13))

    assert read_prices == [price("0.02", "0.9")] * 5


async def test_what_settled_is_used_by_every_replica_and_after_a_restart(
    price_list: PriceList, reader: Reader
) -> None:
    price_list.will_say(machine(0.9), spot(0.02))
    await reader.price()
    replica = reader.open()
    await replica.prices([SPOT])
    price_list.will_only_say(machine(0.9), spot(0.3))
    await reader.price(minutes=6)
    reader.opened.insert(0, reader.opened.pop())
    settled = [await reader.price(days=1)]
    reader.opened.insert(0, reader.opened.pop())
    settled.append(await reader.price(minutes=6))
    reader.open()
    settled.append(await reader.price(minutes=6))

    assert settled == [price("0.3", "0.9")] * 3


async def test_spot_never_costs_more_than_on_demand(
    price_list: PriceList, reader: Reader, caplog: pytest.LogCaptureFixture
) -> None:
    price_list.will_say(machine(0.1), spot(0.3))

    assert await reader.price() == price("0.1", "0.1")
    assert warned_causes(caplog) == ["Spot costs $0.3, more than $0.1 on demand"]


@pytest.mark.parametrize("odd", [0.00199, 0.501])
async def test_a_first_price_of_spot_that_does_not_fit_the_one_on_demand_is_none(
    price_list: PriceList, reader: Reader, odd: float, caplog: pytest.LogCaptureFixture
) -> None:
    price_list.will_say(machine(0.1), spot(odd))

    assert await reader.price() is None
    assert "is not between" in warned_causes(caplog)[-1]


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
