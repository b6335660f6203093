"""How often an outside list is asked, and what is answered while it fails."""

import asyncio

import pytest

from service.pricing.remembered import MAX_AGE_SECONDS, RETRY_SECONDS, PriceListCache
from service.pricing.source import PricesUnavailable

KEPT = 300.0


class Listed:
    """A list that answers how often it was asked."""

    def __init__(self) -> None:
        self.at, self.asked, self.fails = 0.0, 0, False
        self.remembered = PriceListCache(self._ask, KEPT, lambda: self.at)

    async def _ask(self, key: str) -> str:
        self.asked += 1
        await asyncio.sleep(0)
        if self.fails:
            raise PricesUnavailable("503")
        return f"{key} {self.asked}"

    async def after(self, seconds: float) -> str:
        self.at += seconds
        return await self.remembered.get("eastus")


async def test_an_answer_holds_for_some_minutes_and_for_its_key_only() -> None:
    listed = Listed()

    prices = [await listed.after(seconds) for seconds in (0, KEPT, 1)]

    assert prices == ["eastus 1", "eastus 1", "eastus 2"]
    assert await listed.remembered.get("westus") == "westus 3"


async def test_one_of_concurrent_callers_asks() -> None:
    listed = Listed()

    prices = await asyncio.gather(*(listed.after(0) for _ in range(50)))

    assert set(prices) == {"eastus 1"}


async def test_concurrent_callers_ask_a_failing_list_once() -> None:
    listed = Listed()
    listed.fails = True

    results = await asyncio.gather(*(listed.after(0) for _ in range(50)), return_exceptions=True)

    assert {type(result) for result in results} == {PricesUnavailable}
    assert listed.asked == 1


async def test_a_list_that_fails_is_left_alone_for_a_while() -> None:
    listed = Listed()
    listed.fails = True
    for seconds in (0, RETRY_SECONDS, 1):
        with pytest.raises(PricesUnavailable, match="503"):
            await listed.after(seconds)
    listed.fails = False

    assert listed.asked == 2
    assert await listed.after(RETRY_SECONDS + 1) == "eastus 3"


async def test_an_older_answer_holds_for_an_hour_while_the_list_fails() -> None:
    listed = Listed()
    await listed.after(0)
    listed.fails = True

    prices = [await listed.after(seconds) for seconds in (KEPT + 1, MAX_AGE_SECONDS - KEPT - 1)]

    assert prices == ["eastus 1", "eastus 1"]
    with pytest.raises(PricesUnavailable, match="503"):
        await listed.after(1)
