"""Prices from a table, for deployments with negotiated prices and for tests."""

from collections.abc import Mapping

from service.domain.cloud.fleet import Offering, Price
from service.domain.money.storage_cost import StoragePrices
from service.domain.storage.access_tiers import StorageAccount
from service.pricing.storage_prices import TABLE


class FixedPrices:
    """Prices that never change."""

    def __init__(self, table: Mapping[Offering, Price], storage: StoragePrices = TABLE) -> None:
        self._table = dict(table)
        self._storage = storage

    async def prices(self, offerings: list[Offering]) -> dict[Offering, Price]:
        """Return the prices of the offerings that are in the table."""
        return {o: self._table[o] for o in offerings if o in self._table}

    async def storage(self, account: StorageAccount) -> StoragePrices:  # noqa: ARG002 - one account
        """Return the storage prices, the same for every account."""
        return self._storage

    async def close(self) -> None:
        """Do nothing: there are no connections."""
