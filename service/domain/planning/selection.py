"""Select the layout and offering of a job: the cheapest that keeps its deadline and budget."""

from collections.abc import Sequence
from dataclasses import dataclass

from service.domain.humanize import format_duration
from service.domain.money.cost import CURRENCY, cents
from service.domain.planning.option import Option
from service.domain.planning.option_ranking import WeighedLayout, by_cost
from service.domain.planning.plan_limits import PlanLimits, seconds_p90

_CONFIDENCE = "nine times in ten"


@dataclass(frozen=True, kw_only=True)
class Selection:
    """The selected option, with the cheapest and the fastest for comparison."""

    best: WeighedLayout
    cheapest: WeighedLayout
    fastest: WeighedLayout
    is_sure: bool  # it keeps all limits nine times in ten


def select(candidates: Sequence[WeighedLayout], limits: PlanLimits) -> Selection:
    """Select from ``candidates``, cheapest first and not empty.

    The cheapest that keeps the limits at P90; else the surest that may keep them without an
    eviction; else the fastest or cheapest, whichever limit is missed.
    """
    offerings = limits.buys([w.option.offering for w in candidates])
    bought = [w for w in candidates if w.option.offering in offerings]
    if not limits.are_set:
        best = bought[0]
        return Selection(best=best, cheapest=best, fastest=best, is_sure=True)
    cheapest, fastest = bought[0], min(bought, key=lambda w: seconds_p90(w.option))
    sure = [w for w in bought if _meets_limits(limits, w)]
    best = sure[0] if sure else _surest(bought, limits)
    return Selection(best=best, cheapest=cheapest, fastest=fastest, is_sure=bool(sure))


def _meets_limits(limits: PlanLimits, candidate: WeighedLayout) -> bool:
    return limits.meets_deadline(candidate.option) and limits.fits_budget(candidate.option)


def _surest(bought: Sequence[WeighedLayout], limits: PlanLimits) -> WeighedLayout:
    """Return the option that most likely keeps the limits."""
    may_meet = [w for w in bought if limits.may_meet_deadline(w.option)]
    within_limits = [w for w in may_meet if limits.may_fit_budget(w.option)]
    if not within_limits and not limits.is_deadline_binding:
        within_limits = [w for w in bought if limits.may_fit_budget(w.option)]
    pool = within_limits or may_meet or bought
    in_time = [w for w in pool if limits.meets_deadline(w.option)]
    if in_time:
        return min(in_time, key=lambda w: w.option.cost_p90 + limits.reserve(w.option))
    return min(pool, key=lambda w: seconds_p90(w.option))


def why(selected: Selection, limits: PlanLimits) -> str:
    """Return how deadline and budget affected the choice; "" without limits."""
    if not limits.are_set:
        return ""
    best, cheapest = selected.best.option, selected.cheapest.option
    limits_text = " and ".join(_limit_phrases(limits))
    if not selected.is_sure:
        return (
            f"No layout keeps {limits_text} {_CONFIDENCE}. This one is the surest: at P90 it takes "
            f"{format_duration(seconds_p90(best))} and costs {best.cost_p90} {CURRENCY}"
            f"{_reserved(best, limits)}."
        )
    sentence = (
        f"It keeps {limits_text} {_CONFIDENCE}: at P90 it takes "
        f"{format_duration(seconds_p90(best))} and costs {best.cost_p90} {CURRENCY}."
    )
    if by_cost(best) == by_cost(cheapest) and best.nodes == cheapest.nodes:
        return sentence
    return (
        f"{sentence} The cheapest of all, {cheapest.nodes} x {cheapest.offering}, does not: it "
        f"takes {format_duration(seconds_p90(cheapest))} and costs {cheapest.cost_p90} {CURRENCY}."
    )


def _reserved(option: Option, limits: PlanLimits) -> str:
    """Return the reserve of the budget, for the end of a sentence."""
    if limits.budget is None:
        return ""
    reserve = cents(limits.reserve(option))
    return f"; the budget keeps {reserve} {CURRENCY} more to save the job and delete its machines"


def _limit_phrases(limits: PlanLimits) -> Sequence[str]:
    phrases = []
    if limits.deadline_seconds is not None:
        phrases.append(f"the deadline ({limits.deadline_text})")
    if limits.budget is not None:
        phrases.append(f"the budget ({limits.budget} {CURRENCY})")
    return phrases
