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
_SIGNALS_WEIGHT = 5.0  # moves on a signal that the prior counts for ...
_SIGNAL_PRECISION = 0.8  # ... and how many of them find Spot
_STAYS_ON_DEMAND = "Stays on demand: no sign of Spot capacity is worth a move."
_PROBABILITY_STEPS = 8  # probabilities are rounded to multiples of 1/8


def choose(state: PolicyState) -> Decision:
    """Return the next action; the same state always gives the same decision."""
    net = _deadline_fallback(state)
    if state.left_s is None or net is None:
        return _cheapest(state)
    decided = choose_for_deadline(state)
    if decided is not None:
        return decided
    current = state.holding
    if current is not None and current.spot:
        return _stay_or_move(state, current)
    return _choose_with_slack(state, net, _slack(state, state.left_s, net))


def choose_for_deadline(state: PolicyState) -> Decision | None:
    """Return what the deadline demands at any cost; None if there is slack."""
    net = _deadline_fallback(state)
    if state.left_s is None or net is None:
        return None
    return _deadline_decision(state, net, _slack(state, state.left_s, net))


def rank_spot(state: PolicyState) -> list[Candidate]:
    """Return Spot candidates by dollars per hour of useful work, cheapest first."""
    spots = [c for c in state.candidates if c.spot]
    return sorted(spots, key=lambda c: useful_price(state, c)) if len(spots) > 1 else spots


def useful_price(state: PolicyState, spot: Candidate) -> float:
    """Return dollars per hour of work, with cold start, losses and egress over the hold."""
    horizon = min(state.work_s / spot.speed + spot.cold_start_s, _MAX_HOLD_SECONDS)
    lifetime = mean_residual_life(_rates(state, spot), spot.up_s / HOUR, horizon / HOUR) * HOUR
    useful = lifetime - min(spot.cold_start_s + state.lost_s, 0.9 * lifetime)
    return (spot.hourly * lifetime / HOUR + spot.move_dollars) / (spot.speed * useful / HOUR)


def _rates(state: PolicyState, spot: Candidate) -> tuple[float, ...]:
    return hold_rates(spot.holds, state.pooled, spot.evictions_per_hour, spot.evicted_s)


def _deadline_fallback(state: PolicyState) -> Candidate | None:
    """Return the cheapest on-demand candidate that still meets the deadline."""
    paid = [c for c in state.candidates if not c.spot and c.again]
    if not paid or state.left_s is None:
        return None
    remaining_s = state.left_s - state.margin_s - state.step_s
    in_time = [c for c in paid if c.cold_start_s + state.work_s / c.speed <= remaining_s]
    soonest = min(paid, key=lambda c: c.cold_start_s + state.work_s / c.speed)
    return min(in_time, key=lambda c: c.price, default=soonest)


def _slack(state: PolicyState, remaining_s: float, net: Candidate) -> float:
    """Return the hours left beyond the work at the speed of the on-demand fallback."""
    cold = state.held.cold_left_s if state.held else 0.0
    return (remaining_s - state.margin_s - state.work_s / net.speed - cold) / HOUR


def _deadline_decision(state: PolicyState, net: Candidate, slack: float) -> Decision | None:
    """Return the decision that the deadline demands at any cost; None if none."""
    current, start, step = state.holding, net.cold_start_s / HOUR, state.step_s / HOUR
    too_late = slack + state.margin_s / HOUR < start - _TOLERANCE  # even with what was kept in hand
    if current is None:
        if slack - step >= start - _TOLERANCE:  # on demand can still begin a step later
            return None
        why = "The deadline cannot be met any more; on demand is the soonest."
        return _run(state, net, why if too_late else f"From now on only {net} meets the deadline.")
    if not current.spot:
        return None
    slower = max(0.0, 1 - current.speed / net.speed) * step
    if slack - slower >= start + state.lost_s / HOUR - _TOLERANCE:
        return None
    if too_late:
        return _stay(state, "A change to on demand would come too late; this may still be in time.")
    return _run(state, net, f"After another eviction {net} would be too late for the deadline.")


def _cheapest(state: PolicyState) -> Decision:
    """Decide without a deadline, or without on demand to meet it: take available Spot."""
    if state.holding is not None:
        return _stay_or_move(state, state.holding)
    spot = _best_requestable(state)
    if spot is not None:
        return _run(state, spot, f"{spot} costs least for an hour of work.")
    if any(c.spot for c in state.candidates):
        return _wait(state, "No Spot capacity; it is requested again.")
    paid = min(state.candidates, key=lambda c: c.price)
    return _run(state, paid, f"{paid} is the cheapest allowed offering.")


def _best_requestable(state: PolicyState) -> Candidate | None:
    """Return the best Spot candidate that may be requested now and is not held."""
    if state.held is not None and state.moves is MoveMode.STAYS:
        return None
    blind = state.held is not None and state.moves is MoveMode.LEAVES_FIRST
    if blind and state.holding is not None and state.holding.spot:
        return None  # a saving is no reason to give up what trains
    for spot in rank_spot(state):
        is_backoff_over = spot.refused_s is None or spot.refused_s >= state.retry_s
        is_held = state.held is not None and state.held.key == spot.key
        if is_backoff_over and not is_held and not (blind and not _is_likely(spot)):
            return spot
    return None


def _is_likely(spot: Candidate) -> bool:
    """Return whether signals since its last refusal say that the candidate would accept."""
    if spot.likely_s is None:
        return False
    return spot.down_s is None or spot.likely_s < spot.down_s


def _grant_probability(state: PolicyState) -> float:
    """Return the probability that a move back to Spot is granted."""
    if state.moves is not MoveMode.LEAVES_FIRST:
        return float(state.moves is MoveMode.ASKS_FIRST)
    moved, granted = state.returned
    share = (_SIGNALS_WEIGHT * _SIGNAL_PRECISION + granted) / (_SIGNALS_WEIGHT + moved)
    return max(round(share * _PROBABILITY_STEPS), 1) / _PROBABILITY_STEPS


def _stay_or_move(state: PolicyState, current: Candidate) -> Decision:
    """Stay, or move where the rest of the job is cheaper by more than the move costs."""
    cheapest = min(c.price for c in state.candidates)
    target = _best_requestable(state) if current.price > cheapest else None
    if target is not None and _saving(state, current, target) > 0:
        return _run(state, target, f"{target} is cheaper by more than the move to it costs.")
    return _stay(state, f"Stays on {current}: no allowed offering is worth a move.")


def _saving(state: PolicyState, current: Candidate, target: Candidate) -> float:
    """Return the dollars that a move saves beyond the required minimum."""
    horizon = min(state.work_s / target.speed, _MAX_HOLD_SECONDS) / HOUR
    hours = mean_residual_life(_rates(state, target), target.up_s / HOUR, horizon)
    stay_cost, move_cost = current.price * hours, target.price * hours
    cold = target.hourly * target.cold_start_s / HOUR
    return stay_cost * (1 - _MIN_SAVING) - move_cost - cold - target.move_dollars


def _choose_with_slack(state: PolicyState, net: Candidate, slack: float) -> Decision:
    """Decide while nothing or on demand is held, and the deadline leaves slack."""
    best = next(iter(rank_spot(state)), None)
    if best is None:
        why = f"{net} is the only allowed offering."
        return _stay(state, "") if state.held else _run(state, net, why)
    terms = _cost_model(state, net, best)
    enters = slack - _hours_until_answer(state) >= terms.to_enter - _TOLERANCE
    candidate = _best_requestable(state) if enters else None
    if state.held is not None:
        return (
            _stay(state, _STAYS_ON_DEMAND)
            if candidate is None
            else _return_or_stay(state, candidate, terms, net, slack)
        )
    if candidate is not None:
        return _run(state, candidate, f"{candidate} costs least for an hour of work.")
    if not enters:
        return _run(state, net, f"{_spare_time(slack)} of slack is too little to try Spot again.")
    return _wait_or_pay(state, terms, net, slack)


def _return_or_stay(
    state: PolicyState, candidate: Candidate, terms: CostModel, net: Candidate, slack: float
) -> Decision:
    """Decide whether to leave on demand for a requestable Spot candidate."""
    work, outage = state.work_s / net.speed / HOUR, bucket_of(_outage_age_seconds(state) / HOUR)
    cost_ahead = solve(terms, _table_size(work), _table_size(slack))
    move_cost = cost_ahead.cost_of_move(work, slack, outage) + candidate.move_dollars / net.hourly
    stay_cost = cost_ahead.cost_of_on_demand(work, slack, outage)
    figures = {"go_dollars": move_cost * net.hourly, "stay_dollars": stay_cost * net.hourly}
    if move_cost >= stay_cost:
        return _stay(state, _STAYS_ON_DEMAND)
    why = f"{_spare_time(slack)} of slack remain: {candidate} is tried again."
    return replace(_run(state, candidate, why, **figures), net=net)


def _wait_or_pay(state: PolicyState, terms: CostModel, net: Candidate, slack: float) -> Decision:
    """Decide between waiting for Spot and on demand, while Spot refuses."""
    work, outage = state.work_s / net.speed / HOUR, bucket_of(_outage_age_seconds(state) / HOUR)
    cost_ahead, start = solve(terms, _table_size(work), _table_size(slack)), net.cold_start_s / HOUR
    wait = cost_ahead.cost_of_wait(work, slack, outage)
    begin = start + cost_ahead.cost_of_on_demand(work, slack - start, outage)
    figures = {"wait_dollars": wait * net.hourly, "on_demand_dollars": begin * net.hourly}
    if begin < wait:
        spare = _spare_time(slack)
        why = f"Waiting for Spot is expected to cost more than {net} now, with {spare} of slack."
        return _run(state, net, why, **figures)
    why = f"{_spare_time(slack)} of slack remain: waiting for Spot is cheaper."
    return _wait(state, why, **figures)


def _hours_until_answer(state: PolicyState) -> float:
    """Return the hours of slack that may pass before Spot answers."""
    if state.held is None:
        return state.step_s / HOUR
    return (state.leave_s + state.step_s) / HOUR if state.moves is MoveMode.LEAVES_FIRST else 0.0


def _outage_age_seconds(state: PolicyState) -> float:
    """Return the likely age of the outage in seconds."""
    return state.outage_s if state.outage_seen else state.outage_s + UNSEEN_OUTAGE_S


def _cost_model(state: PolicyState, net: Candidate, best: Candidate) -> CostModel:
    """Return the parameters of the solution, rounded so that similar jobs share it."""
    spots = sum(c.spot for c in state.candidates)
    cold = max(net.cold_start_s, _SHORTEST_START)
    unit = cold / _LOST_STEPS
    outage_ends = capacity_outages.outage_end_rates(state.outages, spots)
    failover = capacity_outages.failover_probability(state.hops, spots)
    return CostModel(
        ratio=round(best.price / net.price, 2),
        cold_start=cold / HOUR,
        # Upwards: it is a safe distance.
        lost=math.ceil(state.lost_s / unit - _TOLERANCE) * unit / HOUR,
        eviction_rates=_round_rates(_rates(state, best), HOLD_PRIOR),
        return_rates=_round_rates(outage_ends, OUTAGE_PRIOR),
        failover_probability=_round_probability(failover) if spots > 1 else 0.0,
        grant_probability=_grant_probability(state),
    )


def _round_probability(probability: float) -> float:
    return round(probability * _PROBABILITY_STEPS) / _PROBABILITY_STEPS


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


def _run(state: PolicyState, candidate: Candidate, why: str, **figures: float) -> Decision:
    if state.held is not None and state.held.key == candidate.key:
        return _stay(state, why)
    return Decision(
        kind=DecisionKind.RUN, candidate=candidate, again_s=state.step_s, why=why, figures=figures
    )


def _stay(state: PolicyState, why: str) -> Decision:
    return Decision(kind=DecisionKind.STAY, candidate=state.holding, again_s=state.step_s, why=why)


def _wait(state: PolicyState, why: str, **figures: float) -> Decision:
    delay_s = min(state.step_s, state.retry_s)
    return Decision(
        kind=DecisionKind.WAIT, candidate=None, again_s=delay_s, why=why, figures=figures
    )


def _spare_time(slack: float) -> str:
    return format_duration(max(slack, 0.0) * HOUR)
