"""Typed responses of the Python client: OpenAI's objects with Rekindle's members.

As in OpenAI's client, members that a newer service adds are available as attributes.
"""

from typing import Literal

from openai import BaseModel
from openai.types.fine_tuning import FineTuningJob


class CostOverview(BaseModel):
    """Cost of a job; amounts are decimal strings in US dollars."""

    spent: str
    forecast_total: str
    forecast_low: str
    forecast_high: str
    budget: str | None = None
    budget_remaining: str | None = None
    on_demand_equivalent: str
    saved: str
    saved_percent: float
    as_of: int
    final: bool


class JobProgress(BaseModel):
    """How far the training has come."""

    step: int
    total_steps: int
    percent: float
    loss: float | None = None
    valid_loss: float | None = None
    seconds_per_step: float | None = None


class JobStatusReason(BaseModel):
    """Why the job is in its phase."""

    code: str
    message: str


class RekindleJob(FineTuningJob):
    """OpenAI's job with phase, progress and cost."""

    phase: str
    version: int
    progress: JobProgress
    status_reason: JobStatusReason
    cost: CostOverview


class PlacementOption(BaseModel):
    """One placement where the job can run; times in seconds, amounts as decimal strings."""

    region: str
    vm_size: str
    capacity_type: Literal["spot", "on_demand"]
    nodes: int
    cost_p50: str
    cost_p90: str
    duration_p50: float
    duration_p90: float
    expected_evictions: float


class PlanSuggestion(BaseModel):
    """Another way to run the same training."""

    aim: Literal["cheaper", "faster"]
    change: str
    cost_p50: str
    duration_p50: float


class PlacementPlan(BaseModel):
    """A plan; pass its id to `jobs.create(plan=...)` until `expires_at`."""

    id: str
    created_at: int
    expires_at: int
    model: str
    chosen: PlacementOption
    next: list[PlacementOption]
    suggestions: list[PlanSuggestion]


class JobAttempt(BaseModel):
    """One attempt of the job on a set of machines."""

    id: str
    number: int
    region: str
    sku: str
    capacity: str
    nodes: int
    state: str
    outcome: str | None = None
    reason: str | None = None
    steps: int
    lost_steps: int
    cost: str


class JobAttemptList(BaseModel):
    """All attempts of a job, oldest first."""

    data: list[JobAttempt]
