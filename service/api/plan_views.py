"""How a plan is shown before it is taken: what was stored, and what the user's terms make of it."""

from datetime import datetime
from typing import Any

from service.domain import forecast
from service.domain.cost import cents
from service.domain.option import Option
from service.domain.plan import Plan
from service.domain.terms import Terms


def judged(plan: Plan, terms: Terms, now: datetime) -> dict[str, Any]:
    """The plan, with what each option means for budget and deadline."""
    shown = plan.as_dict()
    for name, options in (("options", plan.options), ("alternatives", plan.alternatives)):
        shown[name] = [option.as_dict() | _verdict(option, terms, now) for option in options]
    return shown


def _verdict(option: Option, terms: Terms, now: datetime) -> dict[str, Any]:
    """None where nothing was asked for."""
    to_come = forecast.whole(option)
    left = forecast.left_until(terms.deadline, now) if terms.deadline else None
    return {
        "eta_seconds": {"p50": round(to_come.p50), "p90": round(to_come.p90)},
        "cost": {"p50": str(cents(option.cost_p50)), "p90": str(cents(option.cost_p90))},
        "fits_budget": None if terms.budget is None else option.cost_p90 <= terms.budget,
        "meets_deadline": None if left is None else to_come.odds(left),
    }
