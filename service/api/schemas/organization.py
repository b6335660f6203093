"""Costs of projects, and the resources that exist in the cloud."""

from typing import Literal

from pydantic import Field, JsonValue

from service.api.schemas.base import Answer, Money, Page, UnixTime, is_none


class Group(Answer):
    """Scale sets or resources of one standing."""

    scale_sets: int | None = Field(default=None, exclude_if=is_none)
    resources: int | None = Field(default=None, exclude_if=is_none)
    machines: int
    per_hour: Money


class AuditSummary(Answer):
    """All resources, by their standing."""

    currency: Literal["USD"]
    groups: dict[str, Group]
    leaks: int
    unpriced_leaks: int
    unseen: str | None
    """Why untracked resources could not be listed; null: they were."""
    unknown_containers: int | None
    """Containers of jobs that the database does not know; null: Blob did not answer."""


class Resource(Answer):
    """A scale set or another resource with Rekindle's tag."""

    id: str
    object: Literal["scale_set", "resource"]
    type: str
    standing: str
    leaks: bool
    region: str
    vm_size: str
    attempt: str | None
    job: str | None
    attempt_state: str | None
    phase: str | None
    machines: int
    since: UnixTime | None
    per_hour: Money | None
    per_hour_if: str | None


class Audit(Page[Resource]):
    """Resources in the cloud, compared with the database."""

    summary: AuditSummary


class Project(Answer):
    """A project in OpenAI's shape."""

    id: str
    object: Literal["organization.project"] = "organization.project"
    name: str
    created_at: UnixTime
    archived_at: None = None
    status: Literal["active"] = "active"


class ProjectList(Page[Project]):
    """A page of projects, newest first."""


class Savings(Answer):
    """Cost, and savings against the same hours on demand."""

    jobs: int
    evictions: int
    spent: Money
    on_demand_equivalent: Money
    saved: Money
    saved_percent: float


class ProjectSavings(Savings):
    """The savings of one project."""

    id: str
    object: Literal["project"] = "project"
    name: str


class ProjectSavingsList(Page[ProjectSavings]):
    """A page of projects, highest cost first."""

    since: UnixTime
    until: UnixTime
    currency: Literal["USD"]
    projects: int
    whole: Savings


class Amount(Answer):
    """An amount in OpenAI's shape."""

    value: float
    currency: str


LineItem = Literal["machines", "storage"]


class CostResult(Answer):
    """One line item of a bucket."""

    object: Literal["organization.costs.result"] = "organization.costs.result"
    amount: Amount
    line_item: LineItem
    project_id: str


class CostBucket(Answer):
    """The costs of one hour or day."""

    object: Literal["bucket"] = "bucket"
    start_time: UnixTime
    end_time: UnixTime
    results: list[CostResult]
    on_demand_equivalent: Money
    saved: Money


class Costs(Answer):
    """The costs of the key's project by time, in OpenAI's shape."""

    object: Literal["page"] = "page"
    data: list[CostBucket]
    has_more: Literal[False] = False
    next_page: None = None
    total: Money
    on_demand_equivalent: Money
    saved: Money
    saved_percent: float
    currency: Literal["USD"]


class Difference(Answer):
    """A part of the difference between the ledger and the bill."""

    cause: str
    amount: Money
    why: str


class ReconciledLine(Answer):
    """The ledger against the bill."""

    metered: Money
    billed: Money
    difference: Money
    differences: list[Difference]


class ReconciledAttempt(ReconciledLine):
    """The same for one attempt."""

    id: str


class BillingTrouble(Answer):
    """Why Azure's bill could not be read."""

    at: UnixTime
    message: str


class Unassigned(Answer):
    """A cost of no project."""

    cause: Literal["untagged", "unknown_attempt"]
    category: str
    billed: Money
    why: str


class Reconciliation(Answer):
    """The ledger of the key's project against Azure's bill."""

    object: Literal["organization.costs.reconciliation"] = "organization.costs.reconciliation"
    since: str
    until: str
    told_at: UnixTime | None
    """When Azure's bill was read."""
    told_since: str | None
    told_until: str | None
    trouble: BillingTrouble | None
    currency: Literal["USD"]
    whole: ReconciledLine
    of_nobody: list[Unassigned]
    attempts: list[ReconciledAttempt]
    has_more: bool


class AvailabilityTrace(Answer):
    """Spot capacity of one region and VM size over time."""

    id: str
    object: Literal["availability_trace"] = "availability_trace"
    region: str
    vm_size: str
    seen_percent: float
    trace: dict[str, JsonValue] | None
    """The trace file; null without data."""


class TraceList(Page[AvailabilityTrace]):
    """A page of traces by region and VM size."""

    until: UnixTime
