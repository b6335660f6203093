"""Members of ``infrastructure`` that limit money, time and place; PATCH changes them. Strict."""

from datetime import UTC, datetime
from decimal import Decimal
from typing import Annotated, Any, Literal

from pydantic import Field

from service.api.hyperparameters import Strict
from service.domain.admission import Priority
from service.domain.terms import OnExhausted, OnRisk, Terms
from service.operations.jobs import UNCHANGED, Unchanged

_LATEST = 4_102_444_800  # the year 2100
Amount = Annotated[Decimal, Field(strict=False, gt=0, max_digits=14, decimal_places=6)]
Deadline = Annotated[int, Field(ge=1, le=_LATEST, description="unix seconds")]
Region = Annotated[str, Field(min_length=1, max_length=64, pattern="^[a-z0-9]+$")]


class BudgetRequest(Strict):
    """What the whole job may cost, machines and storage, and what happens then."""

    amount: Amount
    currency: Literal["USD"] = "USD"
    on_exhausted: OnExhausted = Field(default=OnExhausted.PAUSE, strict=False)


class PriceRequest(Strict):
    """What an hour of one GPU may cost; of a machine where there is none."""

    per: Literal["gpu_hour"] = "gpu_hour"
    amount: Amount
    currency: Literal["USD"] = "USD"


class TermsRequest(Strict):
    """The same as news: what is left out stays, what is null is lifted."""

    budget: BudgetRequest | None = None
    deadline: Deadline | None = None
    on_deadline_risk: OnRisk = Field(default=OnRisk.SWITCH, strict=False)
    max_price: PriceRequest | None = None
    regions: list[Region] | None = Field(default=None, min_length=1, max_length=100)
    priority: Priority = Field(default=Priority.NORMAL, strict=False)


class JobPatch(Strict):
    """The body of PATCH: what of a job may change while it goes on."""

    infrastructure: TermsRequest = TermsRequest()
    metadata: (
        dict[Annotated[str, Field(max_length=64)], Annotated[str, Field(max_length=512)]] | None
    ) = Field(default=None, max_length=16)

    @property
    def new_metadata(self) -> dict[str, str] | Unchanged | None:
        """What metadata becomes; UNCHANGED where nothing was said of it."""
        return self.metadata if "metadata" in self.model_fields_set else UNCHANGED


def after(before: Terms, asked: TermsRequest) -> Terms:
    """What holds once the members that were sent are written over ``before``."""
    members: dict[str, Any] = dict(vars(before))
    told = asked.model_fields_set
    if "budget" in told:
        members["budget"] = asked.budget.amount if asked.budget else None
        members["on_exhausted"] = asked.budget.on_exhausted if asked.budget else OnExhausted.PAUSE
    if "deadline" in told:
        members["deadline"] = asked.deadline and datetime.fromtimestamp(asked.deadline, UTC)
    if "on_deadline_risk" in told:
        members["on_deadline_risk"] = asked.on_deadline_risk
    if "max_price" in told:
        members["max_price"] = asked.max_price.amount if asked.max_price else None
    if "regions" in told:
        members["regions"] = tuple(asked.regions or ())
    if "priority" in told:
        members["priority"] = asked.priority
    return Terms(**members)
