"""Choose where a job runs next: wait, Spot, another Spot offering, or on demand. Pure.

The reconciler calls it between attempts and while one runs; the simulator calls the same
function. A job without a deadline takes Spot whenever it is available. With one, `cost_to_go`
gives the remaining cost of each action, and a rule that no estimate overrules holds the deadline
(ADR 0033): nothing is started or kept from which on demand could not finish in time. If on demand
is feasible at the start, and granted on request, the deadline is certain.
"""

import math
from dataclasses import replace

from service.domain.humanize import format_duration
from service.domain.placement import capacity_outages
from service.domain.placement.cost_to_go import CostModel, solve
from service.domain.placement.policy_state import (
    UNSEEN_OUTAGE_S,
    Candidate,
    Decision,
    DecisionKind,
    MoveMode,
    PolicyState,
)
from service.domain.spot.age_hazard import HOLD_PRIOR, OUTAGE_PRIOR, bucket_of, mean_residual_life
from service.domain.spot.eviction_hazard import hold_rates

HOUR = 3600.0
_ROUNDING_STEP = 1.25  # of the solution's inputs, so that it is seldom redone
_RATE_STEP = 1.5  # the same of rates, on which a choice hangs less
_TOLERANCE = 1e-6  # hours: sums of floats
_MIN_SAVING = 0.1  # of what staying costs: by a move between Spot candidates, beyond its cost
_MAX_HOLD_SECONDS = 24 * HOUR  # a hold is not counted on for longer
_SHORTEST_START = 1.0  # second: the grid of the solution is made of cold starts
_LOST_STEPS = 12  # of a cold start: what an eviction undoes is rounded up to such steps
_SIGNALS_WEIGHT = 5.0  # moves on a sign that the prior counts for ...
_SIGNAL_PRECISION = 0.8  # ... and how many of them find Spot
_STAYS_ON_DEMAND = "Stays on demand: no sign of Spot capacity is worth a move."
_PROBABILITY_STEPS = 8  # probabilities are rounded to multiples of 1/8


def choose(now: PolicyState) -> Decision:
    """Return the next action; the same situation always gives the same decision."""
    net = _deadline_fallback(now)
    if now.left_s is None or net is None:
        return _cheapest(now)
    decided = choose_for_deadline(now)
    if decided is not None:
        return decided
    current = now.holding
    if current is not None and current.spot:
        return _stay_or_move(now, current)
    return _choose_with_slack(now, net, _slack(now, now.left_s, net))


def choose_for_deadline(now: PolicyState) -> Decision | None:
    """Return what the deadline demands at any cost; None if there is slack."""
    net = _deadline_fallback(now)
    if now.left_s is None or net is None:
        return None
    return _deadline_decision(now, net, _slack(now, now.left_s, net))


def rank_spot(now: PolicyState) -> list[Candidate]:
    """Return Spot candidates by dollars per hour of useful work, cheapest first."""
    spots = [c for c in now.candidates if c.spot]
    return sorted(spots, key=lambda c: useful_price(now, c)) if len(spots) > 1 else spots


def useful_price(now: PolicyState, spot: Candidate) -> float:
    """Return dollars per hour of work, with cold start, losses and egress over the hold."""
    horizon = min(now.work_s / spot.speed + spot.cold_start_s, _MAX_HOLD_SECONDS)
    lifetime = mean_residual_life(_rates(now, spot), spot.up_s / HOUR, horizon / HOUR) * HOUR
    useful = lifetime - min(spot.cold_start_s + now.lost_s, 0.9 * lifetime)
    return (spot.hourly * lifetime / HOUR + spot.move_dollars) / (spot.speed * useful / HOUR)


def _rates(now: PolicyState, spot: Candidate) -> tuple[float, ...]:
    return hold_rates(spot.holds, now.pooled, spot.evictions_per_hour, spot.evicted_s)


def _deadline_fallback(now: PolicyState) -> Candidate | None:
    """Return the cheapest on-demand candidate that still meets the deadline."""
    paid = [c for c in now.candidates if not c.spot and c.again]
    if not paid or now.left_s is None:
        return None
    remaining_s = now.left_s - now.margin_s - now.step_s
    in_time = [c for c in paid if c.cold_start_s + now.work_s / c.speed <= remaining_s]
    soonest = min(paid, key=lambda c: c.cold_start_s + now.work_s / c.speed)
    return min(in_time, key=lambda c: c.price, default=soonest)


def _slack(now: PolicyState, remaining_s: float, net: Candidate) -> float:
    """Return the hours left beyond the work at the speed of the on-demand fallback."""
    cold = now.held.cold_left_s if now.held else 0.0
    return (remaining_s - now.margin_s - now.work_s / net.speed - cold) / HOUR


def _deadline_decision(now: PolicyState, net: Candidate, slack: float) -> Decision | None:
    """Return the decision that the deadline demands at any cost; None if none."""
    current, start, step = now.holding, net.cold_start_s / HOUR, now.step_s / HOUR
    too_late = slack + now.margin_s / HOUR < start - _TOLERANCE  # even with what was kept in hand
    if current is None:
        if slack - step >= start - _TOLERANCE:  # on demand can still begin a step later
            return None
        why = "The deadline cannot be met any more; on demand is the soonest."
        return _run(now, net, why if too_late else f"From now on only {net} meets the deadline.")
    if not current.spot:
        return None
    slower = max(0.0, 1 - current.speed / net.speed) * step
    if slack - slower >= start + now.lost_s / HOUR - _TOLERANCE:
        return None
    if too_late:
        return _stay(now, "A change to on demand would come too late; this may still be in time.")
    return _run(now, net, f"After another eviction {net} would be too late for the deadline.")


def _cheapest(now: PolicyState) -> Decision:
    """Decide without a deadline, or without on demand to meet it: take available Spot."""
    if now.holding is not None:
        return _stay_or_move(now, now.holding)
    spot = _best_requestable(now)
    if spot is not None:
        return _run(now, spot, f"{spot} costs least for an hour of work.")
    if any(c.spot for c in now.candidates):
        return _wait(now, "No Spot capacity; it is requested again.")
    paid = min(now.candidates, key=lambda c: c.price)
    return _run(now, paid, f"{paid} is the cheapest allowed offering.")


def _best_requestable(now: PolicyState) -> Candidate | None:
    """Return the best Spot candidate that may be requested now and is not held."""
    if now.held is not None and now.moves is MoveMode.STAYS:
        return None
    blind = now.held is not None and now.moves is MoveMode.LEAVES_FIRST
    if blind and now.holding is not None and now.holding.spot:
        return None  # a saving is no reason to give up what trains
    for spot in rank_spot(now):
        is_backoff_over = spot.refused_s is None or spot.refused_s >= now.retry_s
        is_held = now.held is not None and now.held.key == spot.key
        if is_backoff_over and not is_held and not (blind and not _is_likely(spot)):
            return spot
    return None


def _is_likely(spot: Candidate) -> bool:
    """Return whether signals since its last refusal say that the candidate would accept."""
    if spot.likely_s is None:
        return False
    return spot.down_s is None or spot.likely_s < spot.down_s


def _return_probability(now: PolicyState) -> float:
    """Return the probability that a move back to Spot is granted."""
    if now.moves is not MoveMode.LEAVES_FIRST:
        return float(now.moves is MoveMode.ASKS_FIRST)
    moved, granted = now.returned
    right = (_SIGNALS_WEIGHT * _SIGNAL_PRECISION + granted) / (_SIGNALS_WEIGHT + moved)
    return max(round(right * _PROBABILITY_STEPS), 1) / _PROBABILITY_STEPS


def _stay_or_move(now: PolicyState, current: Candidate) -> Decision:
    """Stay, or move where the rest of the job is cheaper by more than the move costs."""
    target = (
        _best_requestable(now) if current.price > min(c.price for c in now.candidates) else None
    )
    if target is not None and _saving(now, current, target) > 0:
        return _run(now, target, f"{target} is cheaper by more than the move to it costs.")
    return _stay(now, f"Stays on {current}: no allowed offering is worth a move.")


def _saving(now: PolicyState, current: Candidate, target: Candidate) -> float:
    """Return the dollars that a move saves beyond the required minimum."""
    horizon = min(now.work_s / target.speed, _MAX_HOLD_SECONDS) / HOUR
    hours = mean_residual_life(_rates(now, target), target.up_s / HOUR, horizon)
    stay_cost, move_cost = current.price * hours, target.price * hours
    cold = target.hourly * target.cold_start_s / HOUR
    return stay_cost * (1 - _MIN_SAVING) - move_cost - cold - target.move_dollars


def _choose_with_slack(now: PolicyState, net: Candidate, slack: float) -> Decision:
    """Decide while nothing or on demand is held, and the deadline leaves slack."""
    best = next(iter(rank_spot(now)), None)
    if best is None:
        return (
            _stay(now, "") if now.held else _run(now, net, f"{net} is the only allowed offering.")
        )
    terms = _cost_model(now, net, best)
    enters = slack - _hours_until_answer(now) >= terms.to_enter - _TOLERANCE
    candidate = _best_requestable(now) if enters else None
    if now.held is not None:
        return (
            _stay(now, _STAYS_ON_DEMAND)
            if candidate is None
            else _return_or_stay(now, candidate, terms, net, slack)
        )
    if candidate is not None:
        return _run(now, candidate, f"{candidate} costs least for an hour of work.")
    if not enters:
        return _run(now, net, f"{_spare_time(slack)} of slack is too little to try Spot again.")
    return _wait_or_pay(now, terms, net, slack)


def _return_or_stay(
    now: PolicyState, candidate: Candidate, terms: CostModel, net: Candidate, slack: float
) -> Decision:
    """Decide whether to leave on demand for a requestable Spot candidate."""
    work, outage = now.work_s / net.speed / HOUR, bucket_of(_outage_age_seconds(now) / HOUR)
    cost_ahead = solve(terms, _table_size(work), _table_size(slack))
    move_cost = cost_ahead.cost_of_move(work, slack, outage) + candidate.move_dollars / net.hourly
    stay_cost = cost_ahead.cost_of_on_demand(work, slack, outage)
    figures = {"go_dollars": move_cost * net.hourly, "stay_dollars": stay_cost * net.hourly}
    if move_cost >= stay_cost:
        return _stay(now, _STAYS_ON_DEMAND)
    why = f"{_spare_time(slack)} of slack remain: {candidate} is tried again."
    return replace(_run(now, candidate, why, **figures), net=net)


def _wait_or_pay(now: PolicyState, terms: CostModel, net: Candidate, slack: float) -> Decision:
    """Decide between waiting for Spot and on demand, while Spot refuses."""
    work, outage = now.work_s / net.speed / HOUR, bucket_of(_outage_age_seconds(now) / HOUR)
    cost_ahead, start = solve(terms, _table_size(work), _table_size(slack)), net.cold_start_s / HOUR
    wait = cost_ahead.cost_of_wait(work, slack, outage)
    begin = start + cost_ahead.cost_of_on_demand(work, slack - start, outage)
    figures = {"wait_dollars": wait * net.hourly, "on_demand_dollars": begin * net.hourly}
    if begin < wait:
        spare = _spare_time(slack)
        why = f"Waiting for Spot is expected to cost more than {net} now, with {spare} of slack."
        return _run(now, net, why, **figures)
    why = f"{_spare_time(slack)} of slack remain: waiting for Spot is cheaper."
    return _wait(now, why, **figures)


def _hours_until_answer(now: PolicyState) -> float:
    """Return the hours of slack that may pass before Spot answers."""
    if now.held is None:
        return now.step_s / HOUR
    return (now.leave_s + now.step_s) / HOUR if now.moves is MoveMode.LEAVES_FIRST else 0.0


def _outage_age_seconds(now: PolicyState) -> float:
    """Return the likely age of the outage in seconds."""
    return now.outage_s if now.outage_seen else now.outage_s + UNSEEN_OUTAGE_S


def _cost_model(now: PolicyState, net: Candidate, best: Candidate) -> CostModel:
    """Return the parameters of the solution, rounded so that similar jobs share it."""
    spots = sum(c.spot for c in now.candidates)
    cold = max(net.cold_start_s, _SHORTEST_START)
    unit = cold / _LOST_STEPS
    return CostModel(
        ratio=round(best.price / net.price, 2),
        cold_start=cold / HOUR,
        # Upwards: it is a safe distance.
        lost=math.ceil(now.lost_s / unit - _TOLERANCE) * unit / HOUR,
        evictions=_round_rates(_rates(now, best), HOLD_PRIOR),
        returns=_round_rates(capacity_outages.outage_end_rates(now.outages, spots), OUTAGE_PRIOR),
        elsewhere=round(capacity_outages.failover_probability(now.hops, spots) * _PROBABILITY_STEPS)
        / _PROBABILITY_STEPS
        if spots > 1
        else 0.0,
        return_probability=_return_probability(now),
    )


def _round_rates(rates: tuple[float, ...], shape: tuple[float, ...]) -> tuple[float, ...]:
    """Return the rates as rounded multiples of the prior, one for young and one for old ages."""
    half = len(shape) // 2
    times = [rate / prior for rate, prior in zip(rates, shape, strict=True)]
    young, old = (math.prod(part) ** (1 / half) for part in (times[:half], times[half:]))
    young, old = _round_to_power(young, _RATE_STEP), _round_to_power(old, _RATE_STEP)
    multiples = [young] * half + [old] * half
    return tuple(prior * multiple for prior, multiple in zip(shape, multiples, strict=True))


def _table_size(hours: float) -> float:
    """Return the next power of four: the extent of a table in hours."""
    return 4.0 ** math.ceil(math.log(max(hours, 0.1), 4.0))


def _round_to_power(value: float, step: float = _ROUNDING_STEP) -> float:
    """Return the nearest power of ``step``.

    >>> [_round_to_power(x) for x in (1.0, 1.1, 1.2)]
    [1.0, 1.0, 1.25]
    """
    return step ** round(math.log(value, step))


def _run(now: PolicyState, candidate: Candidate, why: str, **figures: float) -> Decision:
    if now.held is not None and now.held.key == candidate.key:
        return _stay(now, why)
    return Decision(
        kind=DecisionKind.RUN, candidate=candidate, again_s=now.step_s, why=why, figures=figures
    )


def _stay(now: PolicyState, why: str) -> Decision:
    return Decision(kind=DecisionKind.STAY, candidate=now.holding, again_s=now.step_s, why=why)


def _wait(now: PolicyState, why: str, **figures: float) -> Decision:
    delay_s = min(now.step_s, now.retry_s)
    return Decision(
        kind=DecisionKind.WAIT, candidate=None, again_s=delay_s, why=why, figures=figures
    )


def _spare_time(slack: float) -> str:
    return format_duration(max(slack, 0.0) * HOUR)
