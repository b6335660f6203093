"""Cost and metrics of a job."""

from typing import Literal

from service.api.schemas.base import Answer, Money, UnixTime


class Cost(Answer):
    """Spent so far, forecast, and the same machine time on demand."""

    currency: Literal["USD"]
    spent: Money
    """Machines and storage until `as_of`."""
    storage: Money
    storage_a_month: Money
    forecast_total: Money
    """Cost at the end (P50)."""
    forecast_low: Money
    """Cost at the end (P10)."""
    forecast_high: Money
    """Cost at the end (P90)."""
    budget: Money | None
    budget_remaining: Money | None
    per_million_tokens: Money | None
    planned_total: Money
    """Cost (P50) by the plan at creation."""
    on_demand_equivalent: Money
    saved: Money
    saved_percent: float
    as_of: UnixTime
    final: bool
    """True once every machine is confirmed deleted."""


class JobCost(Cost):
    """The cost of one job, as an object of its own."""

    object: Literal["fine_tuning.job.cost"] = "fine_tuning.job.cost"
    job: str


Figure = Literal[
    "loss",
    "learning_rate",
    "grad_norm",
    "accuracy",
    "tokens",
    "seconds",
    "valid_loss",
    "margin",
    "reward",
    "kl",
    "answer_tokens",
    "grader_errors",
    "loss_scale",
    "mfu",
    "peak_memory",
    "slowest_ratio",
    "spike",
]


class MetricRow(Answer):
    """Metrics of one training step."""

    step: int
    generation: int
    loss: float | None
    learning_rate: float | None
    grad_norm: float | None
    accuracy: float | None
    tokens: float | None
    """Trained tokens of the step, all ranks together."""
    seconds: float | None
    valid_loss: float | None
    margin: float | None
    reward: float | None
    kl: float | None
    """Nats per answer, from the base model."""
    answer_tokens: float | None
    grader_errors: int | None
    loss_scale: float | None
    mfu: float | None
    """Share of the GPUs' peak FLOP/s that was used."""
    peak_memory: int | None
    """Bytes, of the rank with the highest peak."""
    slowest_rank: int | None
    slowest_ratio: float | None
    spike: float | None
    skipped: bool | None


class MetricList(Answer):
    """A series of measured steps, oldest first."""

    object: Literal["list"] = "list"
    data: list[MetricRow]
    has_more: bool
