"""Contract of Market: the fake, and Azure's tables as the emulator serves them."""

from collections.abc import AsyncIterator
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest

from service.domain.spot.capacity_traces import SpotPool
from service.domain.spot.market import EvictionBand, PlacementScore, PricePoint
from service.pricing.azure.arm import Arm
from service.pricing.azure.market import AzureMarket
from service.pricing.fake_market import FakeMarket
from service.pricing.market import Market, MarketUnavailable
from tests.contract.emulated import credential
from tests.emulated.process import SUBSCRIPTION, Emulator

EAST = SpotPool("eastus", "Standard_ND96amsr_A100_v4")
SWEDEN = SpotPool("swedencentral", "Standard_ND96amsr_A100_v4")
NOWHERE = SpotPool("northpole", "Standard_ND96amsr_A100_v4")
UNKNOWN = SpotPool("eastus", "Standard_Abacus")
LAST = PricePoint(datetime(2026, 11, 1, tzinfo=UTC), Decimal("8.441552"))


def arm(emulator: Emulator, **options: float) -> Arm:
    """Return a client of the emulator's ARM."""
    return Arm(credential(emulator), base_url=emulator.arm_url, ca_path=emulator.ca, **options)


@pytest.fixture(params=["fake", "azure"])
async def market(request: pytest.FixtureRequest) -> AsyncIterator[Market]:
    bands = {EAST: EvictionBand.TO_5, SWEDEN: EvictionBand.TO_5}
    source: Market = FakeMarket(
        listed_bands=bands,
        listed_prices={EAST: [LAST], SWEDEN: [LAST]},
        listed_scores={EAST: PlacementScore.HIGH, SWEDEN: PlacementScore.HIGH},
    )
    if request.param == "azure":
        source = AzureMarket(arm(request.getfixturevalue("emulator")), SUBSCRIPTION)
    yield source
    await source.close()


async def test_each_place_has_the_band_of_its_machines(market: Market) -> None:
    assert await market.bands([EAST, SWEDEN]) == {
        EAST: EvictionBand.TO_5,
        SWEDEN: EvictionBand.TO_5,
    }
    assert await market.bands([NOWHERE, UNKNOWN]) == {}
    assert await market.price_history([NOWHERE, UNKNOWN]) == {}
    assert await market.bands([]) == {}


async def test_prices_come_oldest_first_and_end_with_the_price_of_today(market: Market) -> None:
    history = await market.price_history([EAST, NOWHERE])

    (points,) = history.values()
    assert list(history) == [EAST]
    assert points == sorted(points)
    assert points[-1].hourly == LAST.hourly
    assert points[-1].at.tzinfo is not None


async def test_places_are_scored_for_so_many_machines(market: Market) -> None:
    assert await market.scores([EAST, SWEDEN], 2) == {
        EAST: PlacementScore.HIGH,
        SWEDEN: PlacementScore.HIGH,
    }
    assert await market.scores([UNKNOWN], 2) == {}
    assert await market.scores([], 2) == {}


async def test_more_sizes_and_regions_than_one_question_takes_are_asked_in_several(
    emulator: Emulator,
) -> None:
    regions = ("eastus", "eastus2", "westus2", "westus3", "southcentralus", "swedencentral")
    sizes = ("Standard_ND96amsr_A100_v4", *(f"Standard_NC{n}ads_A100_v4" for n in (24, 48, 96)))
    market = AzureMarket(arm(emulator), SUBSCRIPTION)

    scores = await market.scores([SpotPool(r, s) for r in regions for s in (*sizes, "a", "b")], 1)
    await market.close()

    assert EAST in scores
    assert {pool.region for pool in scores} > {"eastus"}


async def test_a_place_is_scored_for_as_many_machines_as_are_wanted(emulator: Emulator) -> None:
    pool = SpotPool("westus2", EAST.vm_size)
    room = {"region": pool.region, "vm_size": pool.vm_size, "available": 1}
    emulator.admin("capacity", room).raise_for_status()
    market = AzureMarket(arm(emulator), SUBSCRIPTION)

    scores = [(await market.scores([pool], machines))[pool] for machines in (1, 2)]
    await market.close()

    assert scores == [PlacementScore.MEDIUM, PlacementScore.LOW]


async def test_every_page_of_an_answer_is_read(emulator: Emulator) -> None:
    market = AzureMarket(arm(emulator), SUBSCRIPTION, page=1)

    bands = await market.bands([EAST, SWEDEN])
    await market.close()

    assert set(bands) == {EAST, SWEDEN}


async def test_an_endpoint_that_is_away_or_slow_is_unavailable(emulator: Emulator) -> None:
    hasty = AzureMarket(arm(emulator, call_seconds=0.0), SUBSCRIPTION)
    with pytest.raises(MarketUnavailable, match="did not answer within"):
        await hasty.bands([EAST])
    await hasty.close()


async def test_a_refusal_says_how_long_to_wait(emulator: Emulator) -> None:
    market = AzureMarket(arm(emulator), SUBSCRIPTION)
    fault = {"kind": "throttle", "retry_after": 77, "path": "ResourceGraph"}
    emulator.admin("faults", fault).raise_for_status()
    try:
        with pytest.raises(MarketUnavailable) as refused:
            await market.bands([EAST])
    finally:
        emulator.clear_faults()
        await market.close()

    assert refused.value.retry_after == 77


class OneAnswer(Arm):
    """ARM client that answers each request with one row of a price history."""

    def __init__(self, points: list[object]) -> None:
        self.row = {"location": EAST.region, "size": EAST.vm_size.lower(), "prices": points}

    async def post(self, path: str, version: str, body: dict[str, Any]) -> dict[str, Any]:  # noqa: ARG002 - one answer
        return {"data": [self.row]}


@pytest.mark.parametrize(
    "odd",
    [
        {"effectiveDate": "2026-11-02T00:00:00Z", "priceUSD": 0},
        {"effectiveDate": "2026-11-02T00:00:00Z", "priceUSD": "free"},
        {"effectiveDate": "2026-11-02T00:00:00Z", "priceUSD": "NaN"},
        {"effectiveDate": "2026-11-02T00:00:00Z"},
        {"effectiveDate": "soon", "priceUSD": 8},
        "8",
        None,
    ],
)
async def test_a_point_of_the_price_history_that_is_no_price_leaves_the_others(odd: object) -> None:
    good = {"effectiveDate": "2026-11-01T00:00:00Z", "priceUSD": 8.441552}
    market = AzureMarket(OneAnswer([odd, good, odd]), SUBSCRIPTION)

    assert await market.price_history([EAST]) == {EAST: [LAST]}
