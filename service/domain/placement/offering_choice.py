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
    has_signals: bool = False  # signals of its capacity are read: ...
    likely_since: datetime | None = None  # ... several in a row say that it would accept
    egress: float = 0.0  # dollars that bringing the checkpoint there costs

    @property
    def offering(self) -> Offering:
        """Return the offering."""
        return self.option.offering


@dataclass(frozen=True, kw_only=True)
class RemainingWork:
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

    states: tuple[OfferingState, ...] = ()
    why: str = ""
    check_at: datetime | None = None
    again_at: datetime | None = None  # the moment that ``why`` names
    record: Mapping[str, Any] | None = None  # what it rests on


def choose(
    states: Sequence[OfferingState],
    work: RemainingWork,
    job_id: str,
    now: datetime,
    most_nodes: int,
    history: CapacityHistory = NO_HISTORY,
) -> OfferingChoice:
    """Choose the offerings to request now; ``states`` are in the order of the plan."""
    forbidden = {s.offering: _why_forbidden(s, work.terms) for s in states}
    allowed = [s for s in states if not forbidden[s.offering]]
    if not allowed:
        why = "; ".join(f"{offering} {fault}" for offering, fault in forbidden.items())
        return OfferingChoice(
            why=f"No offering is available now: {why}.", check_at=now + RECHECK_INTERVAL
        )
    bought = work.terms.buys([s.offering for s in allowed])
    allowed = [s for s in allowed if s.offering in bought]
    free = [s for s in allowed if not _is_in_backoff(s, most_nodes, now)]
    if not free:
        return _choice_in_backoff(allowed, job_id, now)
    policy_state = build_policy_state(allowed, work, now, most_nodes, history=history)
    decision = policy.choose(policy_state)
    if decision.kind is DecisionKind.WAIT or decision.candidate is None:
        return OfferingChoice(why=decision.why, check_at=now + timedelta(seconds=decision.again_s))
    first = [s for s in free if s.offering == decision.candidate.offering]
    fallbacks = sorted((s for s in free if s not in first), key=lambda s: s.price.hourly)
    record = policy_state.as_dict() | {"figures": decision.figures} if len(states) > 1 else None
    return OfferingChoice(states=(*first, *fallbacks), why=decision.why, record=record)


def deadline_risk(
    states: Sequence[OfferingState],
    work: RemainingWork,
    hold: CurrentHold | None,
    now: datetime,
    nodes: int,
    history: CapacityHistory = NO_HISTORY,
) -> Decision | None:
    """Return what the deadline demands of a job on Spot or waiting for it; None if nothing.

    Where on demand is excluded, the only warning is that Spot will miss the deadline even without
    another eviction; with `on_deadline_risk: cancel` that ends the job.
    """
    terms, current = work.terms, hold.key[0] if hold else None
    allowed = [s for s in states if not _why_forbidden(s, terms) or s.offering == current]
    bought = [current] if current else terms.buys([s.offering for s in allowed])
    if any(offering.capacity_type is CapacityType.ON_DEMAND for offering in bought):
        return None
    pool = allowed or [s for s in states if s.offering.capacity_type is CapacityType.SPOT]
    if terms.deadline is None or not pool:
        return None
    policy_state = build_policy_state(pool, work, now, nodes, hold, history)
    decision = policy.choose_for_deadline(policy_state)
    ends = terms.on_deadline_risk is OnRisk.CANCEL
    if decision is not None and decision.kind is DecisionKind.RUN and not ends:
        return decision
    return _missed_deadline(policy_state, pool, full_price=not ends)


def _missed_deadline(
    state: PolicyState, allowed: Sequence[OfferingState], *, full_price: bool
) -> Decision | None:
    """Return a warning if Spot misses the deadline even without an eviction; else None."""
    starts = min(candidate.cold_start_s for candidate in state.candidates)
    cold = state.held.cold_left_s if state.held else starts
    if state.left_s is None or state.left_s >= state.work_s + state.margin_s + cold:
        return None
    why = "Even without another eviction, Spot is likely to miss it."
    if full_price and all(s.offering.capacity_type is CapacityType.SPOT for s in allowed):
        why = f"{why} The job's plan has no on-demand offering."
    elif full_price and all(c.spot for c in state.candidates):
        why = f"{why} On-demand capacity is sold out."
    return Decision(kind=DecisionKind.STAY, candidate=None, again_s=state.step_s, why=why)


def back_to_spot(
    states: Sequence[OfferingState],
    work: RemainingWork,
    hold: CurrentHold,
    now: datetime,
    nodes: int,
    history: CapacityHistory = NO_HISTORY,
) -> Decision | None:
    """Return the decision to move a job from on demand to Spot; None while it stays.

    The present machines are released before Spot is requested, so signals must say that Spot would
    accept. The deadline then relies on other on-demand capacity should Spot refuse.
    """
    if hold.key[0].capacity_type is CapacityType.SPOT:
        return None
    terms = work.terms
    allowed = [s for s in states if not _why_forbidden(s, terms) or s.offering == hold.key[0]]
    open_ = [s for s in allowed if not _is_in_backoff(s, nodes, now)]
    requestable = {s.offering for s in open_ if not _why_forbidden(s, terms)}
    policy_state = build_policy_state(allowed, work, now, nodes, hold, history)
    candidates = tuple(replace(c, again=c.offering in requestable) for c in policy_state.candidates)
    if terms.deadline is not None and not any(c.again and not c.spot for c in candidates):
        return None
    decision = policy.choose(replace(policy_state, candidates=candidates))
    goes = decision.kind is DecisionKind.RUN and decision.candidate and decision.candidate.spot
    return decision if goes else None


def build_policy_state(
    states: Sequence[OfferingState],
    work: RemainingWork,
    now: datetime,
    nodes: int,
    hold: CurrentHold | None = None,
    history: CapacityHistory = NO_HISTORY,
) -> PolicyState:
    """Build the policy's input; on demand in backoff is excluded as a fallback."""
    chosen = states[0].option
    deadline = work.terms.deadline
    return PolicyState(
        work_s=work.seconds(chosen),
        left_s=None if deadline is None else forecast.seconds_until(deadline, now),
        candidates=tuple(
            _candidate(s, chosen, nodes, now, history)
            for s in states
            if s.offering.capacity_type is CapacityType.SPOT
            or (hold is not None and s.offering == hold.key[0])
            or not _is_in_backoff(s, nodes, now)
        ),
        held=hold,
        lost_s=_first_spot_option(states).undone_seconds(work.checkpoint_s),
        margin_s=work.margin(chosen),
        retry_s=FIRST_BACKOFF.total_seconds(),
        outage_s=_outage_seconds(states, nodes, now),
        outage_seen=history.is_outage_start_observed,
        outages=history.outages,
        moves=_move_mode(states, history),
        hops=history.hops,
        returned=history.returned,
        leave_s=work.leave_s,
    )


def _first_spot_option(states: Sequence[OfferingState]) -> Option:
    """Return the plan's first Spot option: on demand it saves only once an hour."""
    options = [s.option for s in states]
    spots = (o for o in options if o.offering.capacity_type is CapacityType.SPOT)
    return next(spots, options[0])


def _move_mode(states: Sequence[OfferingState], history: CapacityHistory) -> MoveMode:
    """Return how the job may move to Spot; without any signal it stays."""
    spots = [s for s in states if s.offering.capacity_type is CapacityType.SPOT]
    has_signals = any(s.has_signals or s.offering in history.granted_since for s in spots)
    return MoveMode.LEAVES_FIRST if has_signals else MoveMode.STAYS


def _outage_seconds(states: Sequence[OfferingState], nodes: int, now: datetime) -> float:
    """Return seconds since every Spot offering refuses; 0 if one is untried or accepted.

    An offering that refused more machines counts as untried for fewer.
    """
    spots = [s.shortage for s in states if s.offering.capacity_type is CapacityType.SPOT]
    since = [
        shortage.since for shortage in spots if shortage is not None and nodes >= shortage.nodes
    ]
    return (now - max(since)).total_seconds() if since and len(since) == len(spots) else 0.0


def gpus_per_machine(vm_size: str) -> int:
    """Return the GPUs of one machine; 0 for an unknown VM size."""
    sku = lookup(vm_size)
    return sku.gpus if sku else 0


def _candidate(
    state: OfferingState, chosen: Option, nodes: int, now: datetime, history: CapacityHistory
) -> Candidate:
    option = state.option
    down_at = history.last_unavailable.get(option.offering)
    granted_since = history.granted_since.get(option.offering)
    signals = [since for since in (state.likely_since, granted_since) if since is not None]
    band = history.bands.get(option.offering)  # None: Azure reported none; the plan's rate holds
    planned = option.expected_evictions / option.duration_p50 if option.duration_p50 > 0 else 0.0
    return Candidate(
        offering=option.offering,
        nodes=nodes,
        hourly=float(state.price.hourly) * nodes,
        cold_start_s=option.recovery_seconds,
        speed=chosen.seconds_per_step / option.seconds_per_step,
        move_dollars=state.egress,
        evictions_per_hour=planned * policy.HOUR if band is None else nodes * band,
        holds=state.experience.holds,
        refused_s=0.0 if _is_in_backoff(state, nodes, now) else None,
        down_s=None if down_at is None else (now - down_at).total_seconds(),
        evicted_s=state.experience.evicted_s,
        likely_s=(now - max(signals)).total_seconds() if signals else None,
    )


def _why_forbidden(state: OfferingState, terms: JobConstraints) -> str:
    return terms.forbids(state.offering, state.price, gpus_per_machine(state.offering.vm_size))


def _is_in_backoff(state: OfferingState, nodes: int, now: datetime) -> bool:
    return state.shortage is not None and state.shortage.covers(now, nodes)


def _choice_in_backoff(
    allowed: Sequence[OfferingState], job_id: str, now: datetime
) -> OfferingChoice:
    shortages = [state.shortage for state in allowed if state.shortage]
    first = min(shortages, key=lambda s: s.ends_at)
    later = first.ends_at + _jitter(job_id, first.ends_at)
    check_at = min(later, now + RECHECK_INTERVAL)
    return OfferingChoice(
        why=_why_sold_out(shortages, first), check_at=check_at, again_at=first.ends_at
    )


def _why_sold_out(shortages: Sequence[Shortage], first: Shortage) -> str:
    if not first.in_a_row:  # it was not asked for: the quota of cores is used up
        next_check = humanize.format_time(first.ends_at)
        return f"{humanize.as_sentence(first.reason)} The next check is at {next_check}."
    many = "once" if first.in_a_row == 1 else f"{first.in_a_row} times in a row"
    other_count = len(shortages) - 1
    scope = f", nor for the {other_count} other offerings of the plan" if other_count else ""
    size = f"{first.nodes} or more machines of " if first.nodes > 1 else ""
    return (
        f"Azure has no capacity for {size}{first.offering}{scope}: refused {many} since "
        f"{humanize.format_time(first.since, first.ends_at)}"
        f" ({humanize.as_sentence(first.reason).rstrip('.')}). "
        f"The next request is at {humanize.format_time(first.ends_at)}."
    )


def _jitter(job_id: str, until: datetime) -> timedelta:
    """Return a delay by job and moment, so that no job is always the first to retry."""
    return _SPREAD * (crc32(f"{job_id} {until.timestamp()}".encode()) % 100 / 100)
