"""Where a job runs next: wait, Spot here, Spot elsewhere, or on demand. Pure.

The reconciler asks between attempts and while one runs; the simulator asks the same function.
A job without a deadline takes Spot whenever it can be had. With one, `cost_to_go` says what each
course still costs, and a rule that no estimate overrules holds the deadline (ADR 0033): nothing is
begun or kept from which on demand could not finish in time. With on demand from the beginning
feasible, and on demand granted when asked for, the deadline is certain.
"""

import math
from dataclasses import replace

from service.domain.humanize import duration
from service.domain.placement import capacity_outages
from service.domain.placement.cost_to_go import Terms, solve
from service.domain.placement.policy_state import (
    UNSEEN_DROUGHT_S,
    Candidate,
    Decision,
    Kind,
    Moves,
    Situation,
)
from service.domain.spot.age_hazard import DROUGHT_PRIOR, HOLD_PRIOR, bucket, expected_rest
from service.domain.spot.eviction_hazard import hold_rates

HOUR = 3600.0
_STEP = 1.25  # inputs of the solution are rounded to such steps, so that it is seldom redone
_COARSE = 1.5  # the same of rates, on which a choice hangs less
_SURE = 1e-6  # hours: sums of floats
_MOVE = 0.1  # of what staying costs: what a move between Spot candidates must save beyond its cost
_FAR = 24 * HOUR  # a hold is not counted on for longer
_SHORTEST_START = 1.0  # second: the grid of the solution is made of cold starts
_LOST_STEPS = 12  # of a cold start: what an eviction undoes is rounded up to such steps
_SIGNS_WEIGHT = 5.0  # moves on a sign that the prior counts for ...
_SIGNS_RIGHT = 0.8  # ... and how many of them find Spot
_GOES_ON = "On demand goes on: no sign of Spot is worth leaving it."
_PARTS = 8  # odds are rounded to so many parts


def choose(now: Situation) -> Decision:
    """The next thing to do; the same situation always gives the same choice."""
    net = _net(now)
    if now.left_s is None or net is None:
        return _cheapest(now)
    decided = demanded(now)
    if decided is not None:
        return decided
    held = now.holding
    if held is not None and held.spot:
        return _between_spots(now, held)
    return _weigh(now, net, _slack(now, now.left_s, net))


def demanded(now: Situation) -> Decision | None:
    """What the deadline demands whatever it costs; None: there is room, or nothing to hold it."""
    net = _net(now)
    if now.left_s is None or net is None:
        return None
    return _safety(now, net, _slack(now, now.left_s, net))


def ranked(now: Situation) -> list[Candidate]:
    """Spot candidates by dollars for an hour of work, the cheapest first."""
    spots = [c for c in now.candidates if c.spot]
    return sorted(spots, key=lambda c: useful_price(now, c)) if len(spots) > 1 else spots


def useful_price(now: Situation, spot: Candidate) -> float:
    """Dollars for an hour of work there: cold start, loss and egress spread over a likely hold."""
    horizon = min(now.work_s / spot.speed + spot.cold_start_s, _FAR)
    lasts = expected_rest(_rates(now, spot), spot.up_s / HOUR, horizon / HOUR) * HOUR
    useful = lasts - min(spot.cold_start_s + now.lost_s, 0.9 * lasts)
    return (spot.hourly * lasts / HOUR + spot.move_dollars) / (spot.speed * useful / HOUR)


def _rates(now: Situation, spot: Candidate) -> tuple[float, ...]:
    return hold_rates(spot.holds, now.pooled, spot.evictions_per_hour, spot.evicted_s)


def _net(now: Situation) -> Candidate | None:
    """The on-demand candidate that the deadline rests on: the cheapest that still makes it."""
    paid = [c for c in now.candidates if not c.spot and c.again]
    if not paid or now.left_s is None:
        return None
    left = now.left_s - now.margin_s - now.step_s
    in_time = [c for c in paid if c.cold_start_s + now.work_s / c.speed <= left]
    soonest = min(paid, key=lambda c: c.cold_start_s + now.work_s / c.speed)
    return min(in_time, key=lambda c: c.price, default=soonest)


def _slack(now: Situation, left_s: float, net: Candidate) -> float:
    """Hours that can still go into anything but work at the speed of the safety net."""
    cold = now.held.cold_left_s if now.held else 0.0
    return (left_s - now.margin_s - now.work_s / net.speed - cold) / HOUR


def _safety(now: Situation, net: Candidate, slack: float) -> Decision | None:
    """What the deadline demands whatever it costs; None: there is room for a choice."""
    held, start, step = now.holding, net.cold_start_s / HOUR, now.step_s / HOUR
    too_late = slack + now.margin_s / HOUR < start - _SURE  # even with what was kept in hand
    if held is None:
        if slack - step >= start - _SURE:  # on demand can still begin a step later
            return None
        why = "The deadline cannot be met any more; on demand is the soonest."
        return _run(now, net, why if too_late else f"From now on only {net} meets the deadline.")
    if not held.spot:
        return None
    slower = max(0.0, 1 - held.speed / net.speed) * step
    if slack - slower >= start + now.lost_s / HOUR - _SURE:
        return None
    if too_late:
        return _stay(now, "A change to on demand would come too late; this may still be in time.")
    return _run(now, net, f"After another eviction {net} would be too late for the deadline.")


def _cheapest(now: Situation) -> Decision:
    """No deadline, or nothing on demand to hold it: Spot whenever it can be had."""
    if now.holding is not None:
        return _between_spots(now, now.holding)
    spot = _askable(now)
    if spot is not None:
        return _run(now, spot, f"{spot} costs least for an hour of work.")
    if any(c.spot for c in now.candidates):
        return _wait(now, "No Spot capacity was to be had; it is asked for again.")
    paid = min(now.candidates, key=lambda c: c.price)
    return _run(now, paid, f"{paid} is the cheapest of what this job may use.")


def _askable(now: Situation) -> Candidate | None:
    """The best Spot candidate that may be asked now and is not held."""
    if now.held is not None and now.moves is Moves.STAYS:
        return None
    blind = now.held is not None and now.moves is Moves.LEAVES_FIRST
    if blind and now.holding is not None and now.holding.spot:
        return None  # a saving is no reason to give up what trains
    for spot in ranked(now):
        rested = spot.refused_s is None or spot.refused_s >= now.retry_s
        taken = now.held is not None and now.held.key == spot.key
        if rested and not taken and not (blind and not _is_likely(spot)):
            return spot
    return None


def _is_likely(spot: Candidate) -> bool:
    """Whether signs say that it would accept, all of them since it last refused."""
    if spot.likely_s is None:
        return False
    return spot.down_s is None or spot.likely_s < spot.down_s


def _sure(now: Situation) -> float:
    """The odds that a move back to Spot finds some."""
    if now.moves is not Moves.LEAVES_FIRST:
        return float(now.moves is Moves.ASKS_FIRST)
    moved, found = now.returned
    right = (_SIGNS_WEIGHT * _SIGNS_RIGHT + found) / (_SIGNS_WEIGHT + moved)
    return max(round(right * _PARTS), 1) / _PARTS


def _between_spots(now: Situation, held: Candidate) -> Decision:
    """Stay, or go where the rest is so much cheaper that it pays for the move."""
    other = _askable(now) if held.price > min(c.price for c in now.candidates) else None
    if other is not None and _saving(now, held, other) > 0:
        return _run(now, other, f"{other} is cheaper by more than the move to it costs.")
    return _stay(now, f"{held} goes on; nothing that may be used is worth a move.")


def _saving(now: Situation, held: Candidate, other: Candidate) -> float:
    """Dollars that a move saves beyond what makes it worth while."""
    horizon = min(now.work_s / other.speed, _FAR) / HOUR
    hours = expected_rest(_rates(now, other), other.up_s / HOUR, horizon)
    stays, goes = held.price * hours, other.price * hours
    cold = other.hourly * other.cold_start_s / HOUR
    return stays * (1 - _MOVE) - goes - cold - other.move_dollars


def _weigh(now: Situation, net: Candidate, slack: float) -> Decision:
    """Nothing or on demand is held, and there is time to choose."""
    best = next(iter(ranked(now)), None)
    if best is None:
        return _stay(now, "") if now.held else _run(now, net, f"{net} is all this job may use.")
    terms = _terms(now, net, best)
    enters = slack - _until_asked(now) >= terms.to_enter - _SURE
    asked = _askable(now) if enters else None
    if now.held is not None:
        return _stay(now, _GOES_ON) if asked is None else _back(now, asked, terms, net, slack)
    if asked is not None:
        return _run(now, asked, f"{asked} costs least for an hour of work.")
    if not enters:
        return _run(now, net, f"{_spare(slack)} to spare are too few to try Spot again.")
    return _wait_or_pay(now, terms, net, slack)


def _back(now: Situation, asked: Candidate, terms: Terms, net: Candidate, slack: float) -> Decision:
    """On demand is held, and Spot may be asked."""
    work, drought = now.work_s / net.speed / HOUR, bucket(_drought_s(now) / HOUR)
    outlay = solve(terms, _reach(work), _reach(slack))
    goes = outlay.of_move(work, slack, drought) + asked.move_dollars / net.hourly
    stays = outlay.of_on_demand(work, slack, drought)
    figures = {"go_dollars": goes * net.hourly, "stay_dollars": stays * net.hourly}
    if goes >= stays:
        return _stay(now, _GOES_ON)
    why = f"There are {_spare(slack)} to spare: {asked} is tried again."
    return replace(_run(now, asked, why, **figures), net=net)


def _wait_or_pay(now: Situation, terms: Terms, net: Candidate, slack: float) -> Decision:
    """Nothing is held, and Spot refuses."""
    work, drought = now.work_s / net.speed / HOUR, bucket(_drought_s(now) / HOUR)
    outlay, start = solve(terms, _reach(work), _reach(slack)), net.cold_start_s / HOUR
    wait = outlay.of_wait(work, slack, drought)
    begin = start + outlay.of_on_demand(work, slack - start, drought)
    figures = {"wait_dollars": wait * net.hourly, "on_demand_dollars": begin * net.hourly}
    if begin < wait:
        why = f"Waiting for Spot is expected to cost more than {net} now: {_spare(slack)} to spare."
        return _run(now, net, why, **figures)
    why = f"There are {_spare(slack)} to spare: waiting for Spot is cheaper."
    return _wait(now, why, **figures)


def _until_asked(now: Situation) -> float:
    """Hours of slack that may go by before Spot answers."""
    if now.held is None:
        return now.step_s / HOUR
    return (now.leave_s + now.step_s) / HOUR if now.moves is Moves.LEAVES_FIRST else 0.0


def _drought_s(now: Situation) -> float:
    """How old the drought is likely to be."""
    return now.drought_s if now.drought_seen else now.drought_s + UNSEEN_DROUGHT_S


def _terms(now: Situation, net: Candidate, best: Candidate) -> Terms:
    """What a solution rests on, rounded, so that jobs alike and the next hours share it."""
    spots = sum(c.spot for c in now.candidates)
    cold = max(net.cold_start_s, _SHORTEST_START)
    unit = cold / _LOST_STEPS
    return Terms(
        ratio=round(best.price / net.price, 2),
        cold_start=cold / HOUR,
        lost=math.ceil(now.lost_s / unit - _SURE) * unit / HOUR,  # upwards: it is a safe distance
        evictions=_alike(_rates(now, best), HOLD_PRIOR),
        returns=_alike(capacity_outages.rates(now.droughts, spots), DROUGHT_PRIOR),
        elsewhere=round(capacity_outages.made_good(now.hops, spots) * _PARTS) / _PARTS
        if spots > 1
        else 0.0,
        sure=_sure(now),
    )


def _alike(rates: tuple[float, ...], shape: tuple[float, ...]) -> tuple[float, ...]:
    """The rates as two multiples of their usual shape, of the young and of the old, rounded."""
    half = len(shape) // 2
    times = [rate / usual for rate, usual in zip(rates, shape, strict=True)]
    young, old = (math.prod(part) ** (1 / half) for part in (times[:half], times[half:]))
    multiples = [_rounded(young, _COARSE)] * half + [_rounded(old, _COARSE)] * half
    return tuple(usual * multiple for usual, multiple in zip(shape, multiples, strict=True))


def _reach(hours: float) -> float:
    """The next power of four: how far a table goes."""
    return 4.0 ** math.ceil(math.log(max(hours, 0.1), 4.0))


def _rounded(value: float, step: float = _STEP) -> float:
    """The nearest power of ``step``.

    >>> _rounded(1.0), _rounded(1.1), _rounded(1.2)
    (1.0, 1.0, 1.25)
    """
    return step ** round(math.log(value, step))


def _run(now: Situation, candidate: Candidate, why: str, **figures: float) -> Decision:
    if now.held is not None and now.held.key == candidate.key:
        return _stay(now, why)
    return Decision(
        kind=Kind.RUN, candidate=candidate, again_s=now.step_s, why=why, figures=figures
    )


def _stay(now: Situation, why: str) -> Decision:
    return Decision(kind=Kind.STAY, candidate=now.holding, again_s=now.step_s, why=why)


def _wait(now: Situation, why: str, **figures: float) -> Decision:
    again = min(now.step_s, now.retry_s)
    return Decision(kind=Kind.WAIT, candidate=None, again_s=again, why=why, figures=figures)


def _spare(slack: float) -> str:
    return duration(max(slack, 0.0) * HOUR)
