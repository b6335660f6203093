"""Which deadlines and budgets are refused before anything is begun, and with what that would do."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal

import pytest

from contract.choices import OnRisk
from service.domain.errors import InvalidRequest
from service.domain.lifecycle.constraints import JobConstraints
from service.domain.money.budget import DEFAULT_ALLOWANCE, Allowance
from service.domain.planning.feasibility import refuse_infeasible
from service.domain.planning.option import Option
from service.domain.planning.plan import Plan
from service.domain.planning.plan_limits import PlanLimits
from service.domain.states import CapacityType
from tests.unit.performance.test_simulation import option
from tests.unit.planning.test_recipe import recipe

NOW = datetime(2026, 11, 20, 12, tzinfo=UTC)
TOO_SMALL = "budget_too_small"
SPOT = option("eastus", 1.0)  # ten hours of work, and ten minutes to start
FAST = replace(
    SPOT,
    offering=replace(SPOT.offering, capacity_type=CapacityType.ON_DEMAND),
    seconds_per_step=5.0,
)


def refused(hours: float, wanted: OnRisk, *options: Option) -> str:
    """Return the code of the refusal of a job with such a deadline; "" if it is accepted."""
    terms = JobConstraints(deadline=NOW + timedelta(hours=hours), on_deadline_risk=wanted)
    return refusal(terms, DEFAULT_ALLOWANCE, *options)[0]


def refusal(terms: JobConstraints, allowance: Allowance, *options: Option) -> tuple[str, str]:
    """Code and message of the refusal of a job with such terms; empty when it is taken."""
    plan = Plan(
        recipe=recipe(),
        options=options,
        alternatives=(),
        rejected=(),
        why="",
        warnings=(),
    )
    try:
        refuse_infeasible(plan, PlanLimits.of(terms, allowance, NOW), NOW, lambda: None)
    except InvalidRequest as error:
        return error.code, str(error)
    return "", ""


SOON = "deadline_too_soon"
# As on the local stack: a minute and a half on one machine of 8.44 dollars an hour, for 0.21.
SMALL = replace(
    SPOT,
    price=replace(SPOT.price, hourly=Decimal("8.44")),
    nodes=1,
    total_steps=75,
    seconds_per_step=1.0,
    recovery_seconds=15.0,
    cost_p90=Decimal("0.25"),
    save_seconds=44.0,
)
LOCAL = Allowance(
    delete=timedelta(minutes=1), outage=timedelta(minutes=1), detection=timedelta(seconds=8)
)


@pytest.mark.parametrize(
    ("budget", "allowance", "code"),
    [
        ("1", LOCAL, ""),
        ("0.62", LOCAL, ""),
        ("0.55", LOCAL, TOO_SMALL),
        ("7.60", DEFAULT_ALLOWANCE, ""),
        ("7.30", DEFAULT_ALLOWANCE, TOO_SMALL),
    ],
)
def test_a_small_job_needs_no_more_than_its_cost_and_its_own_end(
    budget: str, allowance: Allowance, code: str
) -> None:
    assert refusal(JobConstraints(budget=Decimal(budget)), allowance, SMALL)[0] == code


def test_a_budget_that_is_too_small_is_refused_with_what_is_reserved_and_why() -> None:
    _, message = refusal(JobConstraints(budget=Decimal("0.50")), LOCAL, SMALL)

    assert message == (
        "The budget of 0.50 USD is too small: the job costs at least 0.16 on 1 x size in eastus "
        "(spot), and 0.45 are reserved to stop its machines (44 s to save, 60 s to delete them, "
        "8 s to confirm it, and 60 s for an outage of the service). "
        "Set a budget of 0.70, which nine of ten such jobs keep."
    )


@pytest.mark.parametrize(
    ("wanted", "hours", "code"),
    [
        (OnRisk.SWITCH, 10.1, SOON),
        (OnRisk.SWITCH, 10.2, ""),
        (OnRisk.CANCEL, 12.6, SOON),
        (OnRisk.CANCEL, 12.7, ""),
        (OnRisk.NOTIFY, 0.0, ""),
    ],
)
def test_a_job_that_is_cancelled_when_likely_late_needs_time_for_slower_steps(
    wanted: OnRisk, hours: float, code: str
) -> None:
    assert refused(hours, wanted, SPOT) == code


def test_machines_that_are_never_bought_meet_no_deadline() -> None:
    assert refused(6, OnRisk.SWITCH, SPOT, FAST) == ""
    assert refused(6, OnRisk.CANCEL, SPOT, FAST) == SOON
