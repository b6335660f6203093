"""What the market keeps between restarts; parts of `emulator.core.state.EmulatorState`."""

from dataclasses import dataclass, field
from typing import Any, ClassVar

from emulator.core.rows import FrozenRow


@dataclass(frozen=True, slots=True)
class Restriction(FrozenRow):
    """A size that the subscription may not have in a region, or in some of its zones."""

    table: ClassVar[str] = "restrictions"
    size: str
    location: str
    zones: list[str]  # empty: the whole region
    reason: str = "NotAvailableForSubscription"

    @property
    def key(self) -> str:
        """The size and the region."""
        return f"{self.size}/{self.location}".lower()


@dataclass(frozen=True, slots=True)
class PlantedPrice(FrozenRow):
    """A row of the price list beside the catalog's; ``alone``: in place of them."""

    table: ClassVar[str] = "planted_prices"
    key_member: ClassVar[str] = "number"
    number: int
    size: str
    location: str
    bought: str  # "", " Spot" or " Low Priority"
    alone: bool
    row: dict[str, Any]  # what it says otherwise; null: does not say


@dataclass(frozen=True, slots=True)
class MeteredUsage(FrozenRow):
    """How long one instance of a scale set was allocated, and what an hour cost meanwhile.

    One that was deallocated and started again has a second record.
    """

    table: ClassVar[str] = "metered"
    id: str
    vm_id: str
    scale_set_id: str
    subscription: str
    group: str
    location: str
    size: str
    spot: bool
    tags: dict[str, str]
    began_at: float
    prices: list[list[float]] = field(default_factory=list)  # from when, US dollars per hour
    ended_at: float | None = None
