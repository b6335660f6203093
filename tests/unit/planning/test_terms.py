"""What a user allows: cost, time and regions."""

from datetime import UTC, datetime
from decimal import Decimal

import pytest

from contract.choices import OnExhausted, OnRisk, Priority
from service.domain.lifecycle.constraints import JobConstraints
from tests.world import PRICE, SPOT

DEAR = "costs 1.06 USD per GPU-hour, more than max_price 1.00"


@pytest.mark.parametrize(
    ("terms", "gpus", "fault"),
    [
        (JobConstraints(), 8, ""),
        (JobConstraints(max_price=Decimal("1.10")), 8, ""),
        (JobConstraints(max_price=Decimal("1.00")), 8, DEAR),
        (
            JobConstraints(max_price=Decimal("1.00")),
            0,
            "costs 8.44 USD per hour, more than max_price 1.00",
        ),
        (JobConstraints(regions=("eastus",)), 8, ""),
        (JobConstraints(regions=("westeurope", "uksouth")), 8, "is not in westeurope or uksouth"),
    ],
)
def test_an_offering_may_be_too_dear_or_in_the_wrong_place(
    terms: JobConstraints, gpus: int, fault: str
) -> None:
    assert terms.forbids(SPOT, PRICE, gpus) == fault


def test_terms_are_kept_as_they_were_given() -> None:
    terms = JobConstraints(
        budget=Decimal("120.50"),
        on_exhausted=OnExhausted.CANCEL,
        deadline=datetime(2026, 11, 25, 18, tzinfo=UTC),
        on_deadline_risk=OnRisk.NOTIFY,
        max_price=Decimal("3.90"),
        regions=("eastus",),
        priority=Priority.HIGH,
    )

    assert JobConstraints.from_dict(terms.as_dict()) == terms
    assert JobConstraints.from_dict({}) == JobConstraints()
