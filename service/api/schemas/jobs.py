"""Jobs: OpenAI's object with Rekindle's members."""

from typing import Annotated, Literal

from pydantic import Field, JsonValue, create_model

from contract.methods import METHODS, Method
from service.api.schemas.base import Answer, Money, Page, Percentiles, Stored, UnixTime, is_none
from service.api.schemas.costs import Cost
from service.api.schemas.plans import Plan

Status = Literal["validating_files", "queued", "running", "succeeded", "failed", "cancelled"]
PhaseGroup = Literal[
    "waiting", "training", "recovering", "paused", "succeeded", "failed", "cancelled"
]


class JobError(Stored):
    """Why a job failed."""

    code: str
    message: str
    param: str | None = None


class Hyperparameters(Answer):
    """OpenAI's three, resolved."""

    batch_size: int
    learning_rate_multiplier: float
    n_epochs: int


class ShownMethod(Answer):
    """How the job trains: options of the type only, resolved."""

    type: Method


_Options = Annotated[dict[str, JsonValue] | None, Field(default=None, exclude_if=is_none)]
_Shown = create_model(
    "Method",
    __base__=ShownMethod,
    __doc__=ShownMethod.__doc__,
    **dict.fromkeys(METHODS, _Options),  # type: ignore[call-overload]  # their names are not literal
)


class StatusReason(Answer):
    """Why the job is in its phase."""

    code: str
    message: str
    since: UnixTime | None
    next_try_at: UnixTime | None
    """When it is reconciled next."""


class Queue(Answer):
    """Place in the queue of a job that waits to be admitted."""

    position: int | None
    ahead: int | None
    code: str
    reason: str | None
    since: UnixTime
    next_try_at: UnixTime | None = Field(default=None, exclude_if=is_none)


class ProgressSummary(Answer):
    """Progress of the training."""

    step: int
    total_steps: int
    percent: float


class Progress(ProgressSummary):
    """Progress of the training, with the metrics of the last step."""

    epoch: float
    seconds_per_step: float | None
    tokens_per_second: float | None
    loss: float | None
    valid_loss: float | None
    margin: float | None
    reward: float | None
    kl: float | None
    answer_tokens: float | None
    lost_steps: int
    """Steps repeated after evictions."""


class AttemptsSummary(Answer):
    """Attempts so far."""

    count: int
    current: str | None
    evictions: int


class LatestCheckpoint(Answer):
    """The newest committed checkpoint."""

    id: str
    step_number: int
    created_at: UnixTime


class CheckpointInterval(Answer):
    """Interval between checkpoints, and its basis."""

    seconds: float | None
    chosen_by: Literal["planner", "user"]
    evictions_per_hour: float | None
    notices_answered: float | None


class CostSummary(Answer):
    """Spent and saved so far."""

    spent: Money
    saved: Money
    """Against the same machine hours on demand."""
    currency: Literal["USD"]


class Budget(Answer):
    """Budget of the job."""

    amount: Money
    on_exhausted: Literal["pause", "cancel"]
    currency: Literal["USD"]


class MaxPrice(Answer):
    """Highest price that the job pays."""

    per: Literal["gpu_hour"]
    amount: Money
    currency: Literal["USD"]


class Infrastructure(Answer):
    """Limits of cost, time and region."""

    budget: Budget | None
    deadline: UnixTime | None
    on_deadline_risk: Literal["switch_to_on_demand", "notify", "cancel"]
    max_price: MaxPrice | None
    regions: list[str] | None
    engine: Literal["scale_set", "azureml"] | None
    """Required engine; null: any."""
    priority: Literal["low", "normal", "high"]


class Forecast(Answer):
    """When the job ends, and the probability that it meets its deadline."""

    finish: Percentiles | None
    meets_deadline: float | None
    """Probability."""
    let_in: Percentiles | None
    """When it is admitted."""
    unknown_because: str | None


class DeepSpeed(Answer):
    """What the trainer passes to DeepSpeed."""

    world_size: int
    """Processes of the newest generation; as planned before the first one and after the job."""
    config: dict[str, JsonValue]
    """DeepSpeed's configuration JSON."""


class JobSummary(Answer):
    """A job as lists show it."""

    id: str
    object: Literal["fine_tuning.job"] = "fine_tuning.job"
    created_at: UnixTime
    error: JobError | None
    fine_tuned_model: str | None
    finished_at: UnixTime | None
    hyperparameters: Hyperparameters
    model: str
    organization_id: str
    result_files: list[str]
    seed: int
    status: Status
    """OpenAI's status. A paused job is `queued`, and its `phase` is `paused`."""
    trained_tokens: int | None
    training_file: str
    validation_file: str | None
    integrations: list[JsonValue]
    metadata: dict[str, str] | None
    method: _Shown  # type: ignore[valid-type]  # made of METHODS
    user_provided_suffix: str | None
    started_at: UnixTime | None
    version: int
    """Grows with every change; `?wait=` and `If-None-Match` compare it."""
    updated_at: UnixTime
    phase: str
    """What the job does now, for example `waiting_capacity`."""
    status_reason: StatusReason
    queue: Queue | None
    progress: ProgressSummary
    estimated_finish: UnixTime | None
    """Median. In lists only while it trains, and without waits after future evictions."""
    attempts: AttemptsSummary
    cost: CostSummary


class Job(JobSummary):
    """A job with its progress, plan, cost and forecast."""

    progress: Progress
    latest_checkpoint: LatestCheckpoint | None
    checkpoint_interval: CheckpointInterval
    cost: Cost  # type: ignore[assignment]  # the summary's members and more
    infrastructure: Infrastructure
    forecast: Forecast | None
    elastic: dict[str, JsonValue] | None
    rung: dict[str, JsonValue] | None
    """What was changed after memory ran out; null: as planned."""
    deepspeed: DeepSpeed
    plan: Plan
    result: dict[str, JsonValue] | None
    """Facts of the final model: path, size, step and checksums."""
    links: dict[str, str]


class JobList(Page[JobSummary]):
    """A page of jobs, newest first unless sorted otherwise."""


class Month(Answer):
    """Machines and storage since the first of the month (UTC)."""

    since: UnixTime
    spent: Money
    saved: Money
    """Against the same machine hours on demand."""


class Today(Answer):
    """Evictions and lost steps since midnight (UTC)."""

    since: UnixTime
    evictions: int
    lost_steps: int
    """Steps that were repeated."""


class JobsSummary(Answer):
    """The jobs of the key's project."""

    object: Literal["fine_tuning.summary"] = "fine_tuning.summary"
    jobs: int
    phases: dict[PhaseGroup, int]
    """Number of jobs in each group of phases, as `?phase=` filters by."""
    per_hour: Money
    """Price of all machines that exist now."""
    on_demand_per_hour: Money
    """The same machines on demand."""
    month: Month
    today: Today
    currency: Literal["USD"]
    as_of: UnixTime
