"""Prices from a table: a deployment with a contract of its own, and the tests."""

from collections.abc import Mapping

from service.domain.fleet import Offering, Price


class FixedPrices:
    """Prices that never change."""

    def __init__(self, table: Mapping[Offering, Price]) -> None:
        self._table = dict(table)

    async def prices(self, offerings: list[Offering]) -> dict[Offering, Price]:
        """Those of ``offerings`` that are in the table."""
        return {o: self._table[o] for o in offerings if o in self._table}

    async def close(self) -> None:
        """Nothing to let go of."""
