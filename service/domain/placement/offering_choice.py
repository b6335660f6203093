"""Choose which of a plan's offerings to request next, or explain why none. Pure.

`policy.choose` decides; this module builds its input: what the user allows, which offerings are
in backoff, how much work is left and until when.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any
from zlib import crc32

from contract.choices import OnRisk
from service.domain import humanize
from service.domain.cloud.fleet import Offering, Price
from service.domain.lifecycle.constraints import JobConstraints
from service.domain.performance.vm_catalogue import lookup
from service.domain.placement import policy
from service.domain.placement.capacity_history import NO_HISTORY, CapacityHistory
from service.domain.placement.policy_state import (
    Candidate,
    CurrentHold,
    Decision,
    DecisionKind,
    MoveMode,
    PolicyState,
)
from service.domain.planning import forecast
from service.domain.planning.option import Option
from service.domain.spot.age_hazard import NO_EXPOSURE, Exposure
from service.domain.spot.capacity_backoff import FIRST_BACKOFF, RECHECK_INTERVAL, Shortage
from service.domain.states import CapacityType

_SPREAD = timedelta(seconds=10)  # of jobs that wait for the same moment


@dataclass(frozen=True, kw_only=True)
class OfferingExperience:
    """Exposure to evictions that we have had with an offering."""

    holds: Exposure = NO_EXPOSURE
    evicted_s: float | None = None  # since the last eviction there


NO_EXPERIENCE = OfferingExperience()


@dataclass(frozen=True, kw_only=True)
class OfferingState:
    """An offering of the plan with its present price, backoff and capacity signals."""

    option: Option
    price: Price
    shortage: Shortage | None = None
    experience: OfferingExperience = NO_EXPERIENCE
    has_signals: bool = False  # signs of its capacity are read: ...
    likely_since: datetime | None = None  # ... several in a row say that it would accept
    egress: float = 0.0  # dollars that bringing the checkpoint there costs

    @property
    def offering(self) -> Offering:
        """Return the offering."""
        return self.option.offering


@dataclass(frozen=True, kw_only=True)
class WorkLeft:
    """The work left of a job, and the constraints on it."""

    steps: int
    seconds_per_step: float | None  # measured; None: not yet
    terms: JobConstraints
    leave_s: float = 0.0  # to save, upload and stop, at most
    checkpoint_s: float | None = None  # between two saves on Spot; None: as planned

    def seconds(self, chosen: Option) -> float:
        """Return the seconds of training left on the planned machines."""
        pace = self.seconds_per_step or chosen.seconds_per_step
        return max(max(self.steps, 0) * pace, 1.0)

    def margin(self, chosen: Option) -> float:
        """Return the seconds kept in reserve for a slower pace than estimated."""
        measured = self.seconds_per_step is not None
        spread = forecast.MEASURED_SPREAD if measured else forecast.PLANNED_SPREAD
        return spread * self.seconds(chosen)


@dataclass(frozen=True, kw_only=True)
class OfferingChoice:
    """Offerings to request, best first; if there are none, why and until when."""

    places: tuple[OfferingState, ...] = ()
    why: str = ""
    look_at: datetime | None = None
    again_at: datetime | None = None  # the moment that ``why`` names
    record: Mapping[str, Any] | None = None  # what it rests on


def choose(
    places: Sequence[OfferingState],
    work: WorkLeft,
    job_id: str,
    now: datetime,
    most_nodes: int,
    past: CapacityHistory = NO_HISTORY,
) -> OfferingChoice:
    """Choose the offerings to request now; ``places`` are in the order of the plan."""
    forbidden = {p.offering: _why_forbidden(p, work.terms) for p in places}
    allowed = [p for p in places if not forbidden[p.offering]]
    if not allowed:
        why = "; ".join(f"{offering} {fault}" for offering, fault in forbidden.items())
        return OfferingChoice(
            why=f"No offering is available now: {why}.", look_at=now + RECHECK_INTERVAL
        )
    bought = work.terms.buys([p.offering for p in allowed])
    allowed = [p for p in allowed if p.offering in bought]
    free = [p for p in allowed if not _is_in_backoff(p, most_nodes, now)]
    if not free:
        return _choice_in_backoff(allowed, job_id, now)
    found = build_situation(allowed, work, now, most_nodes, past=past)
    decision = policy.choose(found)
    if decision.kind is DecisionKind.WAIT or decision.candidate is None:
        return OfferingChoice(why=decision.why, look_at=now + timedelta(seconds=decision.again_s))
    first = [p for p in free if p.offering == decision.candidate.offering]
    others = sorted((p for p in free if p not in first), key=lambda p: p.price.hourly)
    record = found.as_dict() | {"figures": decision.figures} if len(places) > 1 else None
    return OfferingChoice(places=(*first, *others), why=decision.why, record=record)


def deadline_risk(
    places: Sequence[OfferingState],
    work: WorkLeft,
    held: CurrentHold | None,
    now: datetime,
    nodes: int,
    past: CapacityHistory = NO_HISTORY,
) -> Decision | None:
    """Return what the deadline demands of a job on Spot or waiting for it; None if nothing.

    Where on demand is excluded, the only warning is that Spot will miss the deadline even without
    another eviction; with `on_deadline_risk: cancel` that ends the job.
    """
    terms, here = work.terms, held.key[0] if held else None
    allowed = [p for p in places if not _why_forbidden(p, terms) or p.offering == here]
    bought = [here] if here else terms.buys([p.offering for p in allowed])
    if any(offering.capacity_type is CapacityType.ON_DEMAND for offering in bought):
        return None
    known = allowed or [p for p in places if p.offering.capacity_type is CapacityType.SPOT]
    if terms.deadline is None or not known:
        return None
    found = build_situation(known, work, now, nodes, held, past)
    decision = policy.choose_for_deadline(found)
    ends = terms.on_deadline_risk is OnRisk.CANCEL
    if decision is not None and decision.kind is DecisionKind.RUN and not ends:
        return decision
    return _missed_deadline(found, known, full_price=not ends)


def _missed_deadline(
    found: PolicyState, allowed: Sequence[OfferingState], *, full_price: bool
) -> Decision | None:
    """Return a warning if Spot misses the deadline even without an eviction; else None."""
    starts = min(candidate.cold_start_s for candidate in found.candidates)
    cold = found.held.cold_left_s if found.held else starts
    if found.left_s is None or found.left_s >= found.work_s + found.margin_s + cold:
        return None
    why = "Even without another eviction, Spot is likely to miss it."
    if full_price and all(p.offering.capacity_type is CapacityType.SPOT for p in allowed):
        why = f"{why} The job's plan has no on-demand offering."
    elif full_price and all(c.spot for c in found.candidates):
        why = f"{why} On-demand capacity is sold out."
    return Decision(kind=DecisionKind.STAY, candidate=None, again_s=found.step_s, why=why)


def back_to_spot(
    places: Sequence[OfferingState],
    work: WorkLeft,
    held: CurrentHold,
    now: datetime,
    nodes: int,
    past: CapacityHistory = NO_HISTORY,
) -> Decision | None:
    """Return the decision to move a job from on demand to Spot; None while it stays.

    The present machines are released before Spot is requested, so signals must say that Spot would
    accept. The deadline then relies on other on-demand capacity should Spot refuse.
    """
    if held.key[0].capacity_type is CapacityType.SPOT:
        return None
    terms = work.terms
    allowed = [p for p in places if not _why_forbidden(p, terms) or p.offering == held.key[0]]
    open_ = [p for p in allowed if not _is_in_backoff(p, nodes, now)]
    again = {p.offering for p in open_ if not _why_forbidden(p, terms)}
    found = build_situation(allowed, work, now, nodes, held, past)
    candidates = tuple(replace(c, again=c.offering in again) for c in found.candidates)
    if terms.deadline is not None and not any(c.again and not c.spot for c in candidates):
        return None
    decision = policy.choose(replace(found, candidates=candidates))
    goes = decision.kind is DecisionKind.RUN and decision.candidate and decision.candidate.spot
    return decision if goes else None


def build_situation(
    places: Sequence[OfferingState],
    work: WorkLeft,
    now: datetime,
    nodes: int,
    held: CurrentHold | None = None,
    past: CapacityHistory = NO_HISTORY,
) -> PolicyState:
    """Build the policy's input; on demand in backoff is excluded as a fallback."""
    chosen = places[0].option
    deadline = work.terms.deadline
    return PolicyState(
        work_s=work.seconds(chosen),
        left_s=None if deadline is None else forecast.seconds_until(deadline, now),
        candidates=tuple(
            _candidate(p, chosen, nodes, now, past)
            for p in places
            if p.offering.capacity_type is CapacityType.SPOT
            or (held is not None and p.offering == held.key[0])
            or not _is_in_backoff(p, nodes, now)
        ),
        held=held,
        lost_s=_first_spot_option(places).undone_seconds(work.checkpoint_s),
        margin_s=work.margin(chosen),
        retry_s=FIRST_BACKOFF.total_seconds(),
        outage_s=_outage_seconds(places, nodes, now),
        outage_seen=past.outage_seen,
        outages=past.outages,
        moves=_move_mode(places, past),
        hops=past.hops,
        returned=past.returned,
        leave_s=work.leave_s,
    )


def _first_spot_option(places: Sequence[OfferingState]) -> Option:
    """Return the plan's first Spot option: on demand it saves only once an hour."""
    options = [p.option for p in places]
    spots = (o for o in options if o.offering.capacity_type is CapacityType.SPOT)
    return next(spots, options[0])


def _move_mode(places: Sequence[OfferingState], past: CapacityHistory) -> MoveMode:
    """Return how the job may move to Spot; without any signal it stays."""
    spots = [p for p in places if p.offering.capacity_type is CapacityType.SPOT]
    known = any(p.has_signals or p.offering in past.granted_since for p in spots)
    return MoveMode.LEAVES_FIRST if known else MoveMode.STAYS


def _outage_seconds(places: Sequence[OfferingState], nodes: int, now: datetime) -> float:
    """Return seconds since every Spot offering refuses; 0 if one is untried or accepted.

    An offering that refused more machines counts as untried for fewer.
    """
    spots = [p.shortage for p in places if p.offering.capacity_type is CapacityType.SPOT]
    since = [found.since for found in spots if found is not None and nodes >= found.nodes]
    return (now - max(since)).total_seconds() if since and len(since) == len(spots) else 0.0


def gpus_per_machine(vm_size: str) -> int:
    """Return the GPUs of one machine; 0 for an unknown VM size."""
    sku = lookup(vm_size)
    return sku.gpus if sku else 0


def _candidate(
    place: OfferingState, chosen: Option, nodes: int, now: datetime, past: CapacityHistory
) -> Candidate:
    option = place.option
    down_at = past.last_unavailable.get(option.offering)
    given = past.granted_since.get(option.offering)
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
        holds=place.experience.holds,
        refused_s=0.0 if _is_in_backoff(place, nodes, now) else None,
        down_s=None if down_at is None else (now - down_at).total_seconds(),
        evicted_s=place.experience.evicted_s,
        likely_s=(now - max(signs)).total_seconds() if signs else None,
    )


def _why_forbidden(place: OfferingState, terms: JobConstraints) -> str:
    return terms.forbids(place.offering, place.price, gpus_per_machine(place.offering.vm_size))


def _is_in_backoff(place: OfferingState, nodes: int, now: datetime) -> bool:
    return place.shortage is not None and place.shortage.covers(now, nodes)


def _choice_in_backoff(
    allowed: Sequence[OfferingState], job_id: str, now: datetime
) -> OfferingChoice:
    known = [p.shortage for p in allowed if p.shortage]
    first = min(known, key=lambda s: s.ends_at)
    later = first.ends_at + _jitter(job_id, first.ends_at)
    look_at = min(later, now + RECHECK_INTERVAL)
    return OfferingChoice(why=_why_sold_out(known, first), look_at=look_at, again_at=first.ends_at)


def _why_sold_out(known: Sequence[Shortage], first: Shortage) -> str:
    if not first.in_a_row:  # it was not asked for: the quota of cores is used up
        again = humanize.format_time(first.ends_at)
        return f"{humanize.as_sentence(first.reason)} The next check is at {again}."
    many = "once" if first.in_a_row == 1 else f"{first.in_a_row} times in a row"
    others = len(known) - 1
    more = f", nor for the {others} other offerings of the plan" if others else ""
    size = f"{first.nodes} or more machines of " if first.nodes > 1 else ""
    return (
        f"Azure has no capacity for {size}{first.offering}{more}: refused {many} since "
        f"{humanize.format_time(first.since, first.ends_at)}"
        f" ({humanize.as_sentence(first.reason).rstrip('.')}). "
        f"The next request is at {humanize.format_time(first.ends_at)}."
    )


def _jitter(job_id: str, until: datetime) -> timedelta:
    """Return a delay by job and moment, so that no job is always the first to retry."""
    return _SPREAD * (crc32(f"{job_id} {until.timestamp()}".encode()) % 100 / 100)
