"""Which deadlines are refused before anything is begun, and with what that would do."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from contract.choices import OnRisk
from service.domain.budget import USUAL
from service.domain.errors import InvalidRequest
from service.domain.feasibility import refuse_hopeless
from service.domain.limits import Limits
from service.domain.option import Option
from service.domain.plan import Plan
from service.domain.states import CapacityType
from service.domain.terms import Terms
from tests.unit.test_recipe import recipe
from tests.unit.test_trial import option

NOW = datetime(2026, 11, 20, 12, tzinfo=UTC)
SPOT = option("eastus", 1.0)  # ten hours of work, and ten minutes to start
FAST = replace(
    SPOT,
    offering=replace(SPOT.offering, capacity_type=CapacityType.ON_DEMAND),
    seconds_per_step=5.0,
)


def refused(hours: float, wanted: OnRisk, *options: Option) -> str:
    """The code of the refusal of a job with such a deadline; "" when it is taken."""
    plan = Plan(
        recipe=recipe(),
        options=options,
        alternatives=(),
        rejected=(),
        why="",
        warnings=(),
    )
    terms = Terms(deadline=NOW + timedelta(hours=hours), on_deadline_risk=wanted)
    try:
        refuse_hopeless(plan, Limits.of(terms, USUAL, NOW), NOW, lambda: None)
    except InvalidRequest as refusal:
        return refusal.code
    return ""


SOON = "deadline_too_soon"


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
