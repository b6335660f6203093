"""Jobs that cannot do what they are asked: refused before the first machine, with what would do."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from decimal import ROUND_UP, Decimal

from service.domain import forecast
from service.domain.budget import Allowance
from service.domain.cost import CURRENCY, cost_of
from service.domain.errors import InvalidRequest
from service.domain.option import Option
from service.domain.plan import Plan
from service.domain.plan_request import MAX_NODES
from service.domain.terms import OnRisk, Terms
from service.domain.wording import duration

WithNodes = Callable[[int], Plan | None]  # the same job planned on so many nodes, if it can be
_AT_BEST = Decimal(1) - Decimal(str(forecast.PLANNED_SPREAD))  # of what is computed
_ROUND_TO = 600  # seconds, up: of the deadline that is proposed


def refuse_hopeless(
    plan: Plan, terms: Terms, allowance: Allowance, now: datetime, with_nodes: WithNodes
) -> None:
    """Raise InvalidRequest where neither luck nor on-demand machines could do it."""
    _refuse_deadline(plan, terms, now, with_nodes)
    if terms.budget is not None:
        _refuse_budget(plan, terms.budget, allowance)


def least_cost(option: Option) -> Decimal:
    """What the job costs there without any eviction, if steps are as fast as they may turn out."""
    seconds = forecast.without_evictions(option)
    whole = cost_of(seconds=seconds, nodes=option.nodes, hourly=option.price.hourly)
    return whole * _AT_BEST


def _refuse_deadline(plan: Plan, terms: Terms, now: datetime, with_nodes: WithNodes) -> None:
    if terms.deadline is None or terms.on_deadline_risk is OnRisk.NOTIFY:
        return
    left = forecast.left_until(terms.deadline, now)
    best = min(_bought(plan, terms), key=forecast.without_evictions)
    takes = _takes(best, terms)
    if takes <= left:
        return
    soonest = _rounded(now + timedelta(seconds=takes))
    nodes = _enough(best.nodes, left, terms, with_nodes)
    more = f", or infrastructure.nodes {nodes}" if nodes else ""
    when = f"{duration(left)} away" if left > 0 else "in the past"
    raise InvalidRequest(
        f"The deadline is {when}, and even without any eviction this takes about "
        f"{duration(takes)} on {best.nodes} x {best.offering.vm_size}. Give a deadline of "
        f"{int(soonest.timestamp())} ({soonest:%Y-%m-%d %H:%M} UTC) or later{more}; or set "
        "on_deadline_risk to notify, to run it all the same.",
        code="deadline_too_soon",
        param="infrastructure.deadline",
    )


def _refuse_budget(plan: Plan, cap: Decimal, allowance: Allowance) -> None:
    cheapest = min(plan.options, key=lambda o: least_cost(o) + _kept(o, allowance))
    least, kept = least_cost(cheapest), _kept(cheapest, allowance)
    if cap >= least + kept:
        return
    enough = (cheapest.cost_p90 + kept).quantize(Decimal("0.01"), ROUND_UP)
    raise InvalidRequest(
        f"A budget of {cap} {CURRENCY} is too small: at best this costs {_money(least)} on "
        f"{cheapest.nodes} x {cheapest.offering}, and {_money(kept)} are reserved for the end of "
        f"its machines: {allowance.of_job(cheapest.save_seconds).in_words()}. With a budget of "
        f"{enough} it is done nine times in ten.",
        code="budget_too_small",
        param="infrastructure.budget.amount",
    )


def _kept(option: Option, allowance: Allowance) -> Decimal:
    return allowance.of_job(option.save_seconds).stopping(option.price.hourly * option.nodes)


def _bought(plan: Plan, terms: Terms) -> list[Option]:
    """Those of its options that machines are asked for of."""
    bought = terms.buys([option.offering for option in plan.options])
    return [option for option in plan.options if option.offering in bought]


def _takes(option: Option, terms: Terms) -> float:
    """Seconds without evictions; at worst, for who has a job cancelled that is likely late."""
    seconds = forecast.without_evictions(option)
    if terms.on_deadline_risk is not OnRisk.CANCEL:
        return seconds
    return seconds + forecast.PLANNED_SPREAD * option.total_steps * option.seconds_per_step


def _enough(nodes: int, left: float, terms: Terms, with_nodes: WithNodes) -> int | None:
    """The smallest doubling of the nodes that makes it."""
    if left <= 0:
        return None
    more = nodes * 2
    while more <= MAX_NODES:
        plan = with_nodes(more)
        if plan and min(_takes(option, terms) for option in _bought(plan, terms)) <= left:
            return more
        more *= 2
    return None


def _rounded(moment: datetime) -> datetime:
    seconds = -(-moment.timestamp() // _ROUND_TO) * _ROUND_TO
    return datetime.fromtimestamp(seconds, UTC)


def _money(amount: Decimal) -> Decimal:
    return amount.quantize(Decimal("0.01"), ROUND_UP)
