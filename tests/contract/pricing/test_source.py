"""Contract of PriceSource: a fixed table, and Azure's list as the emulator serves it."""

from collections.abc import AsyncIterator
from dataclasses import replace
from decimal import Decimal

import pytest

from service.domain.cloud.fleet import Offering, Price
from service.domain.states import CapacityType
from service.domain.storage.access_tiers import AccessTier, StorageAccount
from service.pricing.azure.retail import RetailPrices
from service.pricing.fixed import FixedPrices
from service.pricing.source import PriceSource
from service.pricing.storage_prices import TABLE
from tests.emulated.process import Emulator

SPOT = Offering(
    region="eastus", vm_size="Standard_ND96amsr_A100_v4", capacity_type=CapacityType.SPOT
)
ON_DEMAND = replace(SPOT, capacity_type=CapacityType.ON_DEMAND)
ELSEWHERE = replace(SPOT, region="swedencentral")
LISTED = {
    SPOT: Price(hourly=Decimal("8.441552"), on_demand_hourly=Decimal("32.77")),
    ON_DEMAND: Price(hourly=Decimal("32.77"), on_demand_hourly=Decimal("32.77")),
    ELSEWHERE: Price(hourly=Decimal("10.55"), on_demand_hourly=Decimal("39.324")),
}


@pytest.fixture(params=["fixed", "retail"])
async def source(request: pytest.FixtureRequest) -> AsyncIterator[PriceSource]:
    made: PriceSource = FixedPrices(LISTED)
    if request.param == "retail":
        emulator: Emulator = request.getfixturevalue("emulator")
        made = RetailPrices(base_url=emulator.arm_url, ca_path=emulator.ca)
    yield made
    await made.close()


async def test_spot_and_on_demand_prices_are_exact(source: PriceSource) -> None:
    assert await source.prices(list(LISTED)) == LISTED


async def test_only_what_was_asked_for_is_answered(source: PriceSource) -> None:
    assert await source.prices([ELSEWHERE]) == {ELSEWHERE: LISTED[ELSEWHERE]}
    assert await source.prices([]) == {}


async def test_what_the_list_does_not_know_is_left_out(source: PriceSource) -> None:
    unknown = replace(SPOT, vm_size="Standard_Abacus")
    not_sold_there = replace(SPOT, region="northpole")

    assert await source.prices([unknown, SPOT, not_sold_there]) == {SPOT: LISTED[SPOT]}


async def test_every_tier_of_storage_has_a_price_and_the_prices_a_source(
    source: PriceSource,
) -> None:
    prices = await source.storage(StorageAccount(region="eastus", redundancy="LRS"))

    assert set(prices.tiers) == set(AccessTier)
    months = [prices.tiers[tier].month for tier in AccessTier]
    assert months == sorted(months, reverse=True)
    assert (prices.high_reads, prices.high_retrieval) == (TABLE.high_reads, TABLE.high_retrieval)
    assert prices.source in ("Azure's price list", TABLE.source)


async def test_storage_of_an_unknown_region_has_the_prices_of_the_dated_table(
    source: PriceSource,
) -> None:
    assert await source.storage(StorageAccount(region="northpole")) == TABLE
