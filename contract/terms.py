"""Members of ``infrastructure``: budget, deadline, placement and machines."""

from decimal import Decimal
from typing import Annotated, Literal

from pydantic import Field

from contract.choices import Engine, OnExhausted, OnRisk, Priority
from contract.strict import Strict

_LATEST = 4_102_444_800  # the year 2100
Amount = Annotated[Decimal, Field(strict=False, gt=0, max_digits=14, decimal_places=6)]
Region = Annotated[str, Field(min_length=1, max_length=64, pattern="^[a-z0-9]+$")]
Metadata = dict[Annotated[str, Field(max_length=64)], Annotated[str, Field(max_length=512)]]


class BudgetRequest(Strict):
    """Most that the whole job may cost, machines and storage."""

    amount: Amount
    """US dollars, as a decimal string or a number."""
    currency: Literal["USD"] = "USD"
    """Currency of the amount."""
    on_exhausted: OnExhausted = Field(default=OnExhausted.PAUSE, strict=False)
    """What happens to the job when the budget is exhausted and a checkpoint is saved."""


class PriceRequest(Strict):
    """Highest price of an hour of one GPU; of a machine where there is no GPU."""

    per: Literal["gpu_hour"] = "gpu_hour"
    """Unit of the price."""
    amount: Amount
    """US dollars, as a decimal string or a number."""
    currency: Literal["USD"] = "USD"
    """Currency of the amount."""


class TermsRequest(Strict):
    """Limits of a job. In a PATCH, omitted members stay and null removes a limit."""

    budget: BudgetRequest | None = None
    """Most that the job may cost."""
    deadline: Annotated[int, Field(ge=1, le=_LATEST)] | None = None
    """Time by which the job must be done, in Unix seconds."""
    on_deadline_risk: OnRisk = Field(default=OnRisk.SWITCH, strict=False)
    """What happens when Spot is likely to miss the deadline."""
    max_price: PriceRequest | None = None
    """Highest price of a GPU-hour that the job takes."""
    regions: Annotated[list[Region], Field(min_length=1, max_length=100)] | None = None
    """Allowed Azure regions; default: all of the deployment."""
    engine: Annotated[Engine, Field(strict=False)] | None = None
    """Scale sets or Azure Machine Learning alone; default: whichever is better."""
    priority: Priority = Field(default=Priority.NORMAL, strict=False)
    """Place in the queue among the project's own jobs."""


class ElasticRequest(Strict):
    """Permission to train on fewer nodes after an eviction."""

    min_nodes: int = Field(ge=1, le=100)
    """Fewest machines that the job may train on."""


class InfrastructureRequest(TermsRequest):
    """Machines, and limits of cost, time and region."""

    nodes: int | None = Field(default=None, ge=1, le=100)
    """Number of machines; default: the planner's choice."""
    elastic: ElasticRequest | None = None
    """May train on fewer nodes for a while; default: the number of nodes is kept."""
