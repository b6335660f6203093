"""The seam to prices."""

from typing import Protocol

from service.domain.cloud.fleet import Offering, Price
from service.domain.money.storage_cost import StoragePrices
from service.domain.storage.access_tiers import StorageAccount


class PricesUnavailable(Exception):
    """The price list cannot be read now. A later retry is safe."""


class PriceSource(Protocol):
    """A list of prices: machines by the hour, stored bytes by the month."""

    async def prices(self, offerings: list[Offering]) -> dict[Offering, Price]:
        """Return the price of each offering in the list; leave out the others.

        Raises PricesUnavailable.
        """
        ...

    async def storage(self, account: StorageAccount) -> StoragePrices:
        """Return the account's storage prices by tier; from a dated table where unlisted.

        Raises PricesUnavailable.
        """
        ...

    async def close(self) -> None:
        """Close the connections."""
        ...


async def known_prices(source: PriceSource, offerings: list[Offering]) -> dict[Offering, Price]:
    """Return the price of each offering; none if the list cannot be read.

    For a recovery, which does not wait for a price list.
    """
    try:
        return await source.prices(offerings)
    except PricesUnavailable:
        return {}
