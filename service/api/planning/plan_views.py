"""How the API shows a plan: the stored plan, judged by the request's limits."""

import json
from datetime import datetime
from typing import Any

from contract.job import JobRequest
from service.api.jobs.job_requests import terms_of
from service.api.jobs.job_views import seconds
from service.api.schemas.plans import OfferedOption, OfferedPlan, StoredPlan, Suggestion
from service.db.jobs.plans import PlanRow
from service.domain.money.budget import Allowance
from service.domain.money.cost import cents
from service.domain.performance.vm_catalogue import lookup
from service.domain.planning import forecast, option
from service.domain.planning.plan import Plan
from service.domain.planning.plan_limits import PlanLimits, seconds_p90


def judged_plan(plan: Plan, limits: PlanLimits) -> dict[str, Any]:
    """Return the plan, with what each option means for budget and deadline."""
    members = plan.as_dict()
    for name, options in (("options", plan.options), ("alternatives", plan.alternatives)):
        members[name] = [option.as_dict() | _verdict(option, limits) for option in options]
    return members


def stored_plan(row: PlanRow, allowance: Allowance, now: datetime) -> StoredPlan:
    """Return a stored plan: the chosen option, the next ones, and suggestions."""
    plan = row.parsed_plan
    terms = terms_of(JobRequest.model_validate_json(json.dumps(row.request)))
    members = judged_plan(plan, PlanLimits.of(terms, allowance, now))
    return StoredPlan(
        id=row.id,
        created_at=seconds(row.created_at),
        expires_at=seconds(row.expires_at),
        model=row.model,
        chosen=OfferedOption(**members["options"][0]),
        next=[OfferedOption(**option) for option in members["options"][1:4]],
        suggestions=[Suggestion(**suggestion) for suggestion in row.plan.get("suggestions", [])],
        plan=OfferedPlan(**members),
    )


def _verdict(option: option.Option, limits: PlanLimits) -> dict[str, Any]:
    """Return what the option means for budget and deadline; null for a limit that was not set."""
    to_come = forecast.forecast_job(option)
    remaining_s, sku = limits.deadline_seconds, lookup(option.offering.vm_size)
    return {
        "gpu_memory_gib": sku.gpu_memory_gib if sku else None,
        "eta_seconds": {"p50": round(to_come.p50), "p90": round(to_come.p90)},
        "cost": {"p50": str(cents(option.cost_p50)), "p90": str(cents(option.cost_p90))},
        "budget_needed": str(limits.budget_needed(option)),
        "seconds_needed": seconds_p90(option),
        "fits_budget": None if limits.budget is None else limits.fits_budget(option),
        "meets_deadline": None if remaining_s is None else to_come.probability_within(remaining_s),
    }
