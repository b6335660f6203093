"""Storage: blobs by access tier, and moves between tiers."""

from typing import Literal

from pydantic import Field

from service.api.schemas.base import Answer, Money, UnixTime, is_none

Tier = Literal["hot", "cool", "cold", "archive"]
RehydratePriority = Literal["standard", "high"]


class Account(Answer):
    """The storage account that the prices are for."""

    region: str | None
    redundancy: str


class TierPrice(Answer):
    """US dollars as decimal strings."""

    gib_month: str
    writes_10k: str
    reads_10k: str
    retrieval_gib: str


class StoragePrices(Answer):
    """Prices by tier."""

    source: str
    as_of: str
    tiers: dict[Tier, TierPrice]


class WayBack(Answer):
    """Cost and duration of a rehydration from the archive tier."""

    cost: Money
    seconds_at_most: int


class Rehydrating(Answer):
    """A folder that is being rehydrated from the archive tier."""

    priority: RehydratePriority | None
    expected_at: UnixTime | None


class Folder(Answer):
    """One checkpoint or the model."""

    kind: Literal["checkpoint", "model"]
    checkpoint: str | None
    step_number: int | None
    path: str
    bytes: int
    tier: str
    state: str
    moving_to: str | None
    rehydrate: dict[RehydratePriority, WayBack] | None = Field(default=None, exclude_if=is_none)
    rehydrating: Rehydrating | None = Field(default=None, exclude_if=is_none)


class Storage(Answer):
    """The content of a job's container."""

    object: Literal["fine_tuning.job.storage"] = "fine_tuning.job.storage"
    job: str
    currency: Literal["USD"]
    spent: Money
    blobs: int
    bytes: int
    billed_bytes: dict[Tier, int]
    account: Account
    folders: list[Folder]
    a_month: Money | None = Field(default=None, exclude_if=is_none)
    prices: StoragePrices | None = Field(default=None, exclude_if=is_none)


class Moves(Answer):
    """The blobs of a move."""

    blobs: int
    bytes: int


class MoveCost(Answer):
    """Cost of a move, once and each month."""

    currency: Literal["USD"]
    once: Money
    charged: Money | None
    operations: Money
    early_deletion: Money
    a_month_before: Money
    a_month_after: Money
    read_back: Money
    free_to_leave_at: UnixTime | None


class TierMove(Folder):
    """A move of a folder to another tier, or with `dry_run` its cost."""

    object: Literal["fine_tuning.job.tier_move"] = "fine_tuning.job.tier_move"
    id: str | None
    to: Tier
    priority: RehydratePriority
    expected_at: UnixTime | None
    moves: Moves
    cost: MoveCost
    prices: StoragePrices
    dry_run: bool
    account: Account
