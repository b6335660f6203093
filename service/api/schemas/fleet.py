"""Machines: offerings with their capacity, what runs on them, and what waits for them."""

from typing import Literal

from service.api.schemas.base import Answer, Money, UnixTime

Capacity = Literal["spot", "on_demand"]
EngineName = Literal["scale_set", "azureml"]


class Cores(Answer):
    """The subscription's Spot cores of a region, as last read from Azure."""

    limit: int
    used: int
    """Cores of Rekindle, newly admitted jobs included, and of others."""
    used_by_others: int


class Shortage(Answer):
    """A recent refusal of machines by Azure."""

    since: UnixTime
    """Of the first refusal in a row."""
    retry_at: UnixTime
    refusals: int
    """In a row."""
    machines: int
    """Smallest refused number of machines; smaller requests may be tried."""
    reason: str


class FleetOffering(Answer):
    """A VM size in a region, bought in one way."""

    region: str
    vm_size: str
    capacity_type: Capacity
    engine: EngineName
    gpus: int | None
    gpu: str | None
    per_hour: Money | None
    """Price of one machine, as last paid or published; null: unknown."""
    on_demand_per_hour: Money | None
    cores: Cores | None
    """Null for on-demand machines and until the first read from Azure."""
    shortage: Shortage | None
    last_given_at: UnixTime | None
    """Creation of the newest attempt that trained on such machines."""
    eviction_rate: str | None
    """Percent of machines evicted in an hour, as Azure publishes it, for example `5-10`."""
    placement_score: str | None
    machines: int
    """Running machines of the key's project; for operators, of all projects."""


class FleetNode(Answer):
    """A machine that has joined."""

    id: str
    vm_id: str
    name: str
    phase: str
    generation: int
    step: int
    is_evicting: bool
    unhealthy_since: UnixTime | None
    error: str | None
    registered_at: UnixTime
    heard_at: UnixTime
    """Last heartbeat."""


class FleetAttempt(Answer):
    """A scale set or cluster, by the attempt that owns it."""

    id: str
    """Of the attempt."""
    name: str
    """Of the scale set or cluster in Azure."""
    job: str
    job_name: str | None
    project: str
    number: int
    region: str
    vm_size: str
    capacity_type: Capacity
    engine: EngineName
    state: str
    since: UnixTime
    machines: int
    """Requested machines."""
    running: int
    """Running machines, as last seen in Azure."""
    joined: int
    seen_at: UnixTime | None
    per_hour: Money
    """Price of all its machines that cost money now."""
    on_demand_per_hour: Money
    boot: str | None
    """Newest report of a booting machine."""
    boot_at: UnixTime | None
    nodes: list[FleetNode]


class QueuedJob(Answer):
    """A job that waits for admission."""

    job: str
    job_name: str | None
    project: str
    position: int | None
    priority: Literal["low", "normal", "high"]
    gpus: int
    code: str
    reason: str | None
    since: UnixTime


class Fleet(Answer):
    """Machines by the database, without a call to Azure."""

    object: Literal["organization.fleet"] = "organization.fleet"
    all_projects: bool
    offerings: list[FleetOffering]
    attempts: list[FleetAttempt]
    """Oldest first."""
    queue: list[QueuedJob]
    """In order of admission."""
    has_more: bool
    """True where more than 500 attempts or jobs exist; the oldest are shown."""
    per_hour: Money
    on_demand_per_hour: Money
    currency: Literal["USD"]
    as_of: UnixTime


class PricePoint(Answer):
    """A price and since when it holds."""

    at: UnixTime
    per_hour: Money


class PriceHistory(Answer):
    """Spot prices of one machine, as Azure published them, oldest first."""

    region: str
    vm_size: str
    prices: list[PricePoint]
    """The first one may begin before the requested days."""


class PriceHistories(Answer):
    """Spot prices of the offerings."""

    object: Literal["list"] = "list"
    data: list[PriceHistory]
    """Empty `prices`: Azure has published none, or none were read yet."""
    since: UnixTime
    until: UnixTime
    currency: Literal["USD"]
