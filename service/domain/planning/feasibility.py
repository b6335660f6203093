"""Refuse jobs that cannot meet their deadline or budget, before the first machine."""

from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from decimal import ROUND_UP, Decimal

from service.domain.errors import BudgetTooSmall, InvalidRequest
from service.domain.humanize import format_duration
from service.domain.money.cost import CURRENCY
from service.domain.planning.option import Option
from service.domain.planning.plan import Plan
from service.domain.planning.plan_limits import PlanLimits, least_cost

Freed = Callable[[], Plan | None]  # the same job with nodes left to the planner, if it can be
_ROUND_TO = 600  # seconds, up: of the deadline that is proposed


def refuse_infeasible(plan: Plan, limits: PlanLimits, now: datetime, freed: Freed) -> None:
    """Raise InvalidRequest if no luck and no on-demand machine could meet the limits."""
    options = _allowed_options(plan.options, limits)
    candidates = (*options, *_allowed_options(plan.alternatives, limits))
    binding = limits.is_deadline_binding and limits.deadline_seconds is not None
    if binding and not any(map(limits.may_meet_deadline, candidates)):
        raise _deadline_error(candidates, limits, now, freed)
    if not any(map(limits.may_fit_budget, candidates)):
        raise _budget_error(candidates, limits)
    if binding and not any(
        limits.may_meet_deadline(option) and limits.may_fit_budget(option) for option in candidates
    ):
        raise _both_limits_error(candidates, limits, now)


def _allowed_options(options: Sequence[Option], limits: PlanLimits) -> list[Option]:
    """Return the options whose machines may be requested."""
    bought = limits.buys([option.offering for option in options])
    return [option for option in options if option.offering in bought]


def _deadline_error(
    options: Sequence[Option], limits: PlanLimits, now: datetime, freed: Freed
) -> InvalidRequest:
    fastest = min(options, key=limits.seconds_at_best)
    cheapest = min(options, key=lambda o: o.cost_p50)
    nodes = _sufficient_nodes(limits, freed)
    remedy = f", or infrastructure.nodes {nodes}" if nodes else ""
    return InvalidRequest(
        f"The deadline is {limits.deadline_text}. Even without evictions the fastest option takes "
        f"{_describe(fastest, limits)}; the cheapest takes {_describe(cheapest, limits)}. Set the "
        f"deadline to {_earliest_deadline(fastest, limits, now)} or later{remedy}, or "
        "on_deadline_risk to notify.",
        code="deadline_too_soon",
        param="infrastructure.deadline",
    )


def _budget_error(options: Sequence[Option], limits: PlanLimits) -> InvalidRequest:
    cheapest = min(options, key=lambda o: least_cost(o) + limits.reserve(o))
    least, reserve = least_cost(cheapest), limits.reserve(cheapest)
    reserved = limits.allowance.of_job(cheapest.save_seconds)
    return BudgetTooSmall(
        f"The budget of {limits.budget} {CURRENCY} is too small: the job costs at least "
        f"{_round_up(least)} on {cheapest.nodes} x {cheapest.offering}, and {_round_up(reserve)} "
        f"are reserved to stop its machines ({reserved.as_phrase()}). Set a budget of "
        f"{_round_up(cheapest.cost_p90 + reserve)}, which nine of ten such jobs keep.",
        param="infrastructure.budget.amount",
    )


def _both_limits_error(
    options: Sequence[Option], limits: PlanLimits, now: datetime
) -> InvalidRequest:
    timely = [option for option in options if limits.may_meet_deadline(option)]
    paid = [option for option in options if limits.may_fit_budget(option)]
    inside = min(timely, key=lambda o: least_cost(o) + limits.reserve(o))
    fastest = min(paid, key=limits.seconds_at_best)
    enough = _round_up(inside.cost_p90 + limits.reserve(inside))
    return BudgetTooSmall(
        f"No option keeps both the deadline ({limits.deadline_text}) and the budget "
        f"({limits.budget} {CURRENCY}): the cheapest in time takes {_describe(inside, limits)}; "
        f"the fastest within the budget takes {_describe(fastest, limits)}. "
        f"Set a budget of {enough}, or a deadline of {_earliest_deadline(fastest, limits, now)} "
        "or later.",
        param="infrastructure.budget.amount",
    )


def _sufficient_nodes(limits: PlanLimits, freed: Freed) -> int | None:
    """Return the nodes that would meet the deadline, where the user fixed fewer."""
    if (limits.deadline_seconds or 0) <= 0 or (plan := freed()) is None:
        return None
    return plan.chosen.nodes if limits.may_meet_deadline(plan.chosen) else None


def _describe(option: Option, limits: PlanLimits) -> str:
    time = format_duration(limits.seconds_at_best(option))
    return f"about {time} and {option.cost_p50} {CURRENCY} on {option.nodes} x {option.offering}"


def _earliest_deadline(option: Option, limits: PlanLimits, now: datetime) -> str:
    """Return the earliest deadline that this option meets, for the API and for people."""
    moment = now + timedelta(seconds=limits.seconds_at_best(option))
    seconds = -(-moment.timestamp() // _ROUND_TO) * _ROUND_TO
    at = datetime.fromtimestamp(seconds, UTC)
    return f"{int(seconds)} ({at:%Y-%m-%d %H:%M} UTC)"


def _round_up(amount: Decimal) -> Decimal:
    return amount.quantize(Decimal("0.01"), ROUND_UP)
