"""What a project's jobs do and cost, on one card."""

from typing import Literal

from service.api.schemas.base import Answer, Money, UnixTime
from service.api.schemas.jobs import PhaseGroup


class Month(Answer):
    """Machines and storage since the first of the month (UTC)."""

    since: UnixTime
    spent: Money
    saved: Money
    """Against the same machine hours on demand."""


class Today(Answer):
    """What evictions did since midnight (UTC)."""

    since: UnixTime
    evictions: int
    lost_steps: int
    """Steps that had to be done again."""


class JobsSummary(Answer):
    """The jobs of the key's project."""

    object: Literal["fine_tuning.summary"] = "fine_tuning.summary"
    jobs: int
    phases: dict[PhaseGroup, int]
    """Number of jobs in each group of phases, as `?phase=` filters by."""
    per_hour: Money
    """Of all machines that exist now."""
    on_demand_per_hour: Money
    """The same machines on demand."""
    month: Month
    today: Today
    currency: Literal["USD"]
    as_of: UnixTime
