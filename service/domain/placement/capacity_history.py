"""Summarise the outcomes of all jobs' requests for Spot, as input of the placement policy. Pure.

An outcome is dated by its request. An outage is the time in which every offering of a job
refuses; it is assumed to last until one accepts.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Self

from service.domain.cloud.fleet import Offering
from service.domain.placement.policy_state import UNSEEN_OUTAGE_S
from service.domain.spot.age_hazard import NO_EXPOSURE, Exposure

_HOUR = 3600.0
_AT_ONCE = timedelta(minutes=10)  # so soon after an eviction another offering makes it good
APART = timedelta(minutes=10)  # between two signals that are two, and not one reported twice
_FRESH = timedelta(minutes=45)  # an older signal says nothing of now


@dataclass(frozen=True, kw_only=True)
class RequestOutcome:
    """One request for Spot that Azure granted or refused."""

    offering: Offering
    job_id: str
    nodes: int
    at: datetime
    granted: bool
    evicted_at: datetime | None = None
    outlived_at: datetime | None = None  # the last eviction that it went on after


@dataclass(frozen=True, kw_only=True)
class CapacityHistory:
    """What a choice between some offerings knows of earlier requests."""

    outages: Exposure = NO_EXPOSURE
    is_outage_start_observed: bool = True  # the beginning of the one that lasts, if any does
    refused_at: datetime | None = None  # the last time that any was
    hops: tuple[int, int] = (0, 0)  # evictions, and those that another offering made good
    regrants: tuple[int, int] = (0, 0)  # the same, of those that were asked again after one
    returned: tuple[int, int] = (0, 0)  # moves from on demand to Spot, and those it accepted
    # Last refusal or eviction.
    last_unavailable: Mapping[Offering, datetime] = field(default_factory=dict)
    granted_since: Mapping[Offering, datetime] = field(default_factory=dict)  # again and again
    bands: Mapping[Offering, float] = field(default_factory=dict)  # evictions of a machine per hour

    @classmethod
    def of(
        cls,
        answers: Sequence[RequestOutcome],
        offerings: Collection[Offering],
        nodes: int,
        now: datetime,
        returned: tuple[int, int] = (0, 0),
    ) -> Self:
        """Summarise the ``answers`` of these offerings, in any order."""
        ordered = sorted(answers, key=lambda a: a.at)
        outages, is_start_observed = _outage_exposure(ordered, len(offerings), now)
        down_at = _last_unavailable(ordered)
        return cls(
            outages=outages,
            is_outage_start_observed=is_start_observed,
            refused_at=max((a.at for a in ordered if not a.granted), default=None),
            hops=_failovers(ordered),
            regrants=_regrants(ordered),
            returned=returned,
            last_unavailable=down_at,
            granted_since=_granted_since(ordered, down_at, nodes, now),
        )


NO_HISTORY = CapacityHistory()


def _outage_exposure(
    ordered: Sequence[RequestOutcome], many: int, now: datetime
) -> tuple[Exposure, bool]:
    """Return the exposure of all outages, and whether the present one's start was seen."""
    refusing: set[Offering] = set()
    since, accepted, exposure = None, False, NO_EXPOSURE
    for answer in ordered:
        if answer.granted:
            if since is not None:
                exposure += _one_outage(since, answer.at, accepted, ended=True)
            refusing, since, accepted = set(), None, True
            continue
        refusing.add(answer.offering)
        if since is None and len(refusing) == many:
            since = answer.at
    if since is not None:
        exposure += _one_outage(since, now, accepted, ended=False)
    return exposure, accepted or since is None


def _one_outage(
    since: datetime, until: datetime, is_start_observed: bool, *, ended: bool
) -> Exposure:
    hours = (until - since).total_seconds() / _HOUR
    return Exposure.of(
        [(hours, ended)], start_age=0.0 if is_start_observed else UNSEEN_OUTAGE_S / _HOUR
    )


def _failovers(ordered: Sequence[RequestOutcome]) -> tuple[int, int]:
    evicted = [answer for answer in ordered if answer.evicted_at is not None]
    return len(evicted), sum(_is_failed_over(answer, ordered) for answer in evicted)


def _is_failed_over(eviction: RequestOutcome, ordered: Sequence[RequestOutcome]) -> bool:
    assert eviction.evicted_at is not None
    return any(
        answer.granted
        and answer.job_id == eviction.job_id
        and answer.offering != eviction.offering
        and timedelta(0) <= answer.at - eviction.evicted_at <= _AT_ONCE
        for answer in ordered
    )


def _regrants(ordered: Sequence[RequestOutcome]) -> tuple[int, int]:
    """Count evictions followed by a new request, and those granted again within minutes."""
    of_job: dict[str, list[RequestOutcome]] = {}
    for answer in ordered:
        of_job.setdefault(answer.job_id, []).append(answer)
    evictions = regrants = 0
    for outcome in ordered:
        if (at := outcome.evicted_at) is not None:
            later = [a for a in of_job[outcome.job_id] if a.at >= at]
            evictions += bool(later)
            regrants += any(a.granted and a.at - at <= _AT_ONCE for a in later)
    return evictions, regrants


def _last_unavailable(ordered: Sequence[RequestOutcome]) -> dict[Offering, datetime]:
    unavailable_at: dict[Offering, datetime] = {}
    for answer in ordered:
        downs = (answer.evicted_at, answer.outlived_at) if answer.granted else (answer.at,)
        for down in filter(None, downs):
            unavailable_at[answer.offering] = max(down, unavailable_at.get(answer.offering, down))
    return unavailable_at


def _granted_since(
    ordered: Sequence[RequestOutcome],
    down_at: Mapping[Offering, datetime],
    nodes: int,
    now: datetime,
) -> dict[Offering, datetime]:
    """Return offerings that granted as many machines repeatedly and refused none since."""
    granted_at: dict[Offering, list[datetime]] = {}
    for answer in ordered:
        down = down_at.get(answer.offering)
        if answer.granted and answer.nodes >= nodes and (down is None or answer.at > down):
            granted_at.setdefault(answer.offering, []).append(answer.at)
    return {
        offering: times[0]
        for offering, times in granted_at.items()
        if times[-1] - times[0] >= APART and now - times[-1] <= _FRESH
    }
