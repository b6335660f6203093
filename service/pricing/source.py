"""The seam to prices."""

from typing import Protocol

from service.domain.fleet import Offering, Price


class PricesUnavailable(Exception):
    """The price list cannot be read now. Safe to try again later."""


class PriceSource(Protocol):
    """A list of hourly prices."""

    async def prices(self, offerings: list[Offering]) -> dict[Offering, Price]:
        """Price of each offering that the list knows; the others are left out.

        Raises PricesUnavailable.
        """
        ...

    async def close(self) -> None:
        """Let go of connections."""
        ...
