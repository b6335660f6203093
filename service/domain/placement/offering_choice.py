"""Which of a plan's offerings is asked for next, and why none is. Pure.

`policy.choose` decides; here is what it is told: what the user allows, what is known to be sold
out, how much work is left and until when.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any
from zlib import crc32

from contract.choices import OnRisk
from service.domain import humanize
from service.domain.cloud.fleet import Offering, Price
from service.domain.lifecycle.constraints import Terms
from service.domain.performance.vm_catalogue import lookup
from service.domain.placement import policy
from service.domain.placement.capacity_history import NO_PAST, Past
from service.domain.placement.policy_state import Candidate, Decision, Held, Kind, Moves, Situation
from service.domain.planning import forecast
from service.domain.planning.option import Option
from service.domain.spot.age_hazard import NOTHING, Ages
from service.domain.spot.capacity_backoff import FIRST, LOOK_AGAIN, Shortage
from service.domain.states import CapacityType

_SPREAD = timedelta(seconds=10)  # of jobs that wait for the same moment


@dataclass(frozen=True, kw_only=True)
class Lived:
    """Our own experience with an offering."""

    holds: Ages = NOTHING
    evicted_s: float | None = None  # since the last eviction there


NONE_LIVED = Lived()


@dataclass(frozen=True, kw_only=True)
class Place:
    """An offering of the plan as it is now."""

    option: Option
    price: Price
    shortage: Shortage | None = None
    lived: Lived = NONE_LIVED
    watched: bool = False  # signs of its capacity are read: ...
    likely_since: datetime | None = None  # ... several in a row say that it would accept
    egress: float = 0.0  # dollars that bringing the checkpoint there costs

    @property
    def offering(self) -> Offering:
        """Where, what and how it is bought."""
        return self.option.offering


@dataclass(frozen=True, kw_only=True)
class Work:
    """What is left of a job."""

    steps: int
    seconds_per_step: float | None  # measured; None: not yet
    terms: Terms
    leave_s: float = 0.0  # to save, upload and stop, at most
    checkpoint_s: float | None = None  # between two saves on Spot; None: as planned

    def seconds(self, chosen: Option) -> float:
        """On the machines that were planned."""
        pace = self.seconds_per_step or chosen.seconds_per_step
        return max(max(self.steps, 0) * pace, 1.0)

    def margin(self, chosen: Option) -> float:
        """Kept for what is slower than it looks."""
        measured = self.seconds_per_step is not None
        spread = forecast.MEASURED_SPREAD if measured else forecast.PLANNED_SPREAD
        return spread * self.seconds(chosen)


@dataclass(frozen=True, kw_only=True)
class Choice:
    """Offerings that may be asked for, best first; when there are none, why, and until when."""

    places: tuple[Place, ...] = ()
    why: str = ""
    look_at: datetime | None = None
    again_at: datetime | None = None  # the moment that ``why`` names
    record: Mapping[str, Any] | None = None  # what it rests on


def choose(
    places: Sequence[Place],
    work: Work,
    job_id: str,
    now: datetime,
    most_nodes: int,
    past: Past = NO_PAST,
) -> Choice:
    """Where to ask for machines now; ``places`` in the order of the plan."""
    forbidden = {p.offering: _forbidden(p, work.terms) for p in places}
    allowed = [p for p in places if not forbidden[p.offering]]
    if not allowed:
        why = "; ".join(f"{offering} {fault}" for offering, fault in forbidden.items())
        return Choice(why=f"No offering may be taken now: {why}.", look_at=now + LOOK_AGAIN)
    bought = work.terms.buys([p.offering for p in allowed])
    allowed = [p for p in allowed if p.offering in bought]
    free = [p for p in allowed if not _is_short(p, most_nodes, now)]
    if not free:
        return _sold_out(allowed, job_id, now)
    found = situation(allowed, work, now, most_nodes, past=past)
    decision = policy.choose(found)
    if decision.kind is Kind.WAIT or decision.candidate is None:
        return Choice(why=decision.why, look_at=now + timedelta(seconds=decision.again_s))
    first = [p for p in free if p.offering == decision.candidate.offering]
    others = sorted((p for p in free if p not in first), key=lambda p: p.price.hourly)
    record = found.as_dict() | {"figures": decision.figures} if len(places) > 1 else None
    return Choice(places=(*first, *others), why=decision.why, record=record)


def at_risk(
    places: Sequence[Place],
    work: Work,
    held: Held | None,
    now: datetime,
    nodes: int,
    past: Past = NO_PAST,
) -> Decision | None:
    """What the deadline demands of a job on Spot, or that waits for it; None while it may go on.

    Where nothing may be bought on demand, a deadline that Spot will miss even without another
    eviction is all that can be told; and all that a job is cancelled for.
    """
    terms, here = work.terms, held.key[0] if held else None
    allowed = [p for p in places if not _forbidden(p, terms) or p.offering == here]
    bought = [here] if here else terms.buys([p.offering for p in allowed])
    if any(offering.capacity_type is CapacityType.ON_DEMAND for offering in bought):
        return None
    known = allowed or [p for p in places if p.offering.capacity_type is CapacityType.SPOT]
    if terms.deadline is None or not known:
        return None
    found = situation(known, work, now, nodes, held, past)
    decision = policy.demanded(found)
    ends = terms.on_deadline_risk is OnRisk.CANCEL
    if decision is not None and decision.kind is Kind.RUN and not ends:
        return decision
    return _late(found, known, full_price=not ends)


def _late(found: Situation, allowed: Sequence[Place], *, full_price: bool) -> Decision | None:
    """That Spot will miss the deadline even without another eviction; None while it may not."""
    starts = min(candidate.cold_start_s for candidate in found.candidates)
    cold = found.held.cold_left_s if found.held else starts
    if found.left_s is None or found.left_s >= found.work_s + found.margin_s + cold:
        return None
    why = "Even without another eviction, Spot is likely to miss it."
    if full_price and all(p.offering.capacity_type is CapacityType.SPOT for p in allowed):
        why = f"{why} No offering of the job's plan is on demand."
    elif full_price and all(c.spot for c in found.candidates):
        why = f"{why} What is on demand is sold out."
    return Decision(kind=Kind.STAY, candidate=None, again_s=found.step_s, why=why)


def back_to_spot(
    places: Sequence[Place],
    work: Work,
    held: Held,
    now: datetime,
    nodes: int,
    past: Past = NO_PAST,
) -> Decision | None:
    """Where a job that trains on demand is better off on Spot; None while it stays.

    What it holds is left before Spot is asked, so signs must say that Spot would accept. A deadline
    rests on what can be had on demand should Spot refuse: what is held is gone by then.
    """
    if held.key[0].capacity_type is CapacityType.SPOT:
        return None
    terms = work.terms
    allowed = [p for p in places if not _forbidden(p, terms) or p.offering == held.key[0]]
    open_ = [p for p in allowed if not _is_short(p, nodes, now)]
    again = {p.offering for p in open_ if not _forbidden(p, terms)}
    found = situation(allowed, work, now, nodes, held, past)
    candidates = tuple(replace(c, again=c.offering in again) for c in found.candidates)
    if terms.deadline is not None and not any(c.again and not c.spot for c in candidates):
        return None
    decision = policy.choose(replace(found, candidates=candidates))
    goes = decision.kind is Kind.RUN and decision.candidate and decision.candidate.spot
    return decision if goes else None


def situation(
    places: Sequence[Place],
    work: Work,
    now: datetime,
    nodes: int,
    held: Held | None = None,
    past: Past = NO_PAST,
) -> Situation:
    """As the policy wants it. On demand that is sold out is nothing to rest a deadline on."""
    chosen = places[0].option
    deadline = work.terms.deadline
    return Situation(
        work_s=work.seconds(chosen),
        left_s=None if deadline is None else forecast.left_until(deadline, now),
        candidates=tuple(
            _candidate(p, chosen, nodes, now, past)
            for p in places
            if p.offering.capacity_type is CapacityType.SPOT
            or (held is not None and p.offering == held.key[0])
            or not _is_short(p, nodes, now)
        ),
        held=held,
        lost_s=_planned(places).undone_seconds(work.checkpoint_s),
        margin_s=work.margin(chosen),
        retry_s=FIRST.total_seconds(),
        drought_s=_drought(places, nodes, now),
        drought_seen=past.drought_seen,
        droughts=past.droughts,
        moves=_moves(places, past),
        hops=past.hops,
        returned=past.returned,
        leave_s=work.leave_s,
    )


def _planned(places: Sequence[Place]) -> Option:
    """The option on Spot that the plan puts first: on demand it would save once an hour."""
    options = [p.option for p in places]
    spots = (o for o in options if o.offering.capacity_type is CapacityType.SPOT)
    return next(spots, options[0])


def _moves(places: Sequence[Place], past: Past) -> Moves:
    """Without any sign of Spot nothing that trains is left for it."""
    spots = [p for p in places if p.offering.capacity_type is CapacityType.SPOT]
    known = any(p.watched or p.offering in past.given_since for p in spots)
    return Moves.LEAVES_FIRST if known else Moves.STAYS


def _drought(places: Sequence[Place], nodes: int, now: datetime) -> float:
    """Seconds since every Spot offering refuses; 0 while one has not been asked or accepted.

    One that refuses more machines has not been asked for so many.
    """
    spots = [p.shortage for p in places if p.offering.capacity_type is CapacityType.SPOT]
    since = [found.since for found in spots if found is not None and nodes >= found.nodes]
    return (now - max(since)).total_seconds() if since and len(since) == len(spots) else 0.0


def gpus_of(vm_size: str) -> int:
    """Of one machine; 0 for a size that is not in the catalogue."""
    sku = lookup(vm_size)
    return sku.gpus if sku else 0


def _candidate(place: Place, chosen: Option, nodes: int, now: datetime, past: Past) -> Candidate:
    option = place.option
    down_at = past.down_at.get(option.offering)
    given = past.given_since.get(option.offering)
    signs = [since for since in (place.likely_since, given) if since is not None]
    band = past.bands.get(option.offering)  # None: Azure has told none, and the plan's rate holds
    planned = option.expected_evictions / option.duration_p50 if option.duration_p50 > 0 else 0.0
    return Candidate(
        offering=option.offering,
        nodes=nodes,
        hourly=float(place.price.hourly) * nodes,
        cold_start_s=option.recovery_seconds,
        speed=chosen.seconds_per_step / option.seconds_per_step,
        move_dollars=place.egress,
        evictions_per_hour=planned * policy.HOUR if band is None else nodes * band,
        holds=place.lived.holds,
        refused_s=0.0 if _is_short(place, nodes, now) else None,
        down_s=None if down_at is None else (now - down_at).total_seconds(),
        evicted_s=place.lived.evicted_s,
        likely_s=(now - max(signs)).total_seconds() if signs else None,
    )


def _forbidden(place: Place, terms: Terms) -> str:
    return terms.forbids(place.offering, place.price, gpus_of(place.offering.vm_size))


def _is_short(place: Place, nodes: int, now: datetime) -> bool:
    return place.shortage is not None and place.shortage.holds(now, nodes)


def _sold_out(allowed: Sequence[Place], job_id: str, now: datetime) -> Choice:
    known = [p.shortage for p in allowed if p.shortage]
    first = min(known, key=lambda s: s.ends_at)
    later = first.ends_at + _jitter(job_id, first.ends_at)
    look_at = min(later, now + LOOK_AGAIN)
    return Choice(why=_why_sold_out(known, first), look_at=look_at, again_at=first.ends_at)


def _why_sold_out(known: Sequence[Shortage], first: Shortage) -> str:
    if not first.in_a_row:  # it was not asked for: the quota of cores is used up
        again = humanize.clock(first.ends_at)
        return f"{humanize.sentence(first.reason)} It is looked at again at {again}."
    many = "once" if first.in_a_row == 1 else f"{first.in_a_row} times in a row"
    others = len(known) - 1
    more = f", nor for the {others} other offerings of the plan" if others else ""
    size = f"{first.nodes} or more machines of " if first.nodes > 1 else ""
    return (
        f"Azure has no room for {size}{first.offering}{more}: refused {many} since "
        f"{humanize.clock(first.since, first.ends_at)}"
        f" ({humanize.sentence(first.reason).rstrip('.')}). "
        f"It is asked for again at {humanize.clock(first.ends_at)}."
    )


def _jitter(job_id: str, until: datetime) -> timedelta:
    """Each job's own, and another one for each such moment: else one job was always the first."""
    return _SPREAD * (crc32(f"{job_id} {until.timestamp()}".encode()) % 100 / 100)
