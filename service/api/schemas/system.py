"""The state of the service, for operators."""

from typing import Literal

from service.api.schemas.base import Answer, UnixTime


class Work(Answer):
    """Rows that reconcilers process."""

    name: Literal["jobs", "attempts"]
    due: int
    """Rows that wait for a reconciler."""
    lag_seconds: float
    """How long the oldest of them has waited."""
    leased: int
    """Rows that a reconciler works on now."""


class Turn(Answer):
    """Work that one replica does for all."""

    what: str
    holder: str
    ends_at: UnixTime
    """Renewed while the replica lives; in the past: no replica does this work."""
    is_held: bool


class Reading(Answer):
    """Data that one replica reads from Azure regularly, for all."""

    what: str
    read_at: UnixTime | None
    due_at: UnixTime
    lag_seconds: float
    """Seconds overdue; 0: not overdue."""
    trouble: str | None
    trouble_at: UnixTime | None


class RateBudget(Answer):
    """Requests that Azure still allowed in a region."""

    region: str
    request: str
    left: float
    """Remaining calls; negative: the number of deferred ones."""

    at: UnixTime
    """When they were counted; some have been restored since."""


class Circuit(Answer):
    """A region whose requests fail."""

    region: str
    failures: int
    """In a row."""
    closed_until: UnixTime | None
    """End of the pause without requests; null: requests are sent."""


class HelpWanted(Answer):
    """A job that needs an operator."""

    job: str
    job_name: str | None
    project: str
    attempt: str | None
    since: UnixTime
    message: str


class Replica(Answer):
    """A process of the service that is connected to the database."""

    name: str
    command: str
    """Command that it runs: `api`, `reconciler` or `all`."""
    version: str | None
    """Null in images: see the image's tag."""
    connected_at: UnixTime
    """When it connected to the database; later than its start after an outage of the database."""
    leads: list[str]
    """Loops that it runs for all replicas; `turns` says until when."""


class ThisReplica(Answer):
    """The process that answers this request."""

    name: str
    version: str | None
    """Null in images: see the image's tag."""
    runs_loops: bool
    late_loops: list[str]
    """Its loops that have not turned for too long."""
    hears_notices: bool


class System(Answer):
    """The state of the service, by its database."""

    object: Literal["organization.system"] = "organization.system"
    replicas: list[Replica]
    """By their connections to the database, the oldest first."""
    this_replica: ThisReplica
    work: list[Work]
    turns: list[Turn]
    readings: list[Reading]
    rate_budgets: list[RateBudget]
    circuits: list[Circuit]
    help_wanted: list[HelpWanted]
    """Oldest first, at most 200."""
    schema_revision: str
    postgres_version: str
    as_of: UnixTime
