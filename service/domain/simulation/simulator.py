"""Simulate single runs of a job under the production policy and a capacity trace. Pure.

The trace has the capacity of each zone per tick. The job learns only what production learns: the
outcome of its requests, and evictions. A request is answered at once and nothing is billed before
it is granted; a hold ends at the first tick without capacity; a start bills its cold start; an
eviction undoes ``lost`` ticks of work.
"""

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Self

from service.domain.placement.policy import HOUR, choose
from service.domain.placement.policy_state import (
    UNSEEN_OUTAGE_S,
    Candidate,
    CurrentHold,
    DecisionKind,
    MoveMode,
    PolicyState,
)
from service.domain.spot.age_hazard import NO_EXPOSURE, Exposure

CapacityByTick = Sequence[Sequence[bool]]  # by zone and tick: would a request be granted


@dataclass(frozen=True, kw_only=True)
class AvailabilitySignals:
    """Signals of Spot capacity besides requests, such as a placement score."""

    every_s: float = 1200.0  # it is read so often
    true_positive_rate: float = 0.8  # odds that it says yes where a request would be granted
    false_positive_rate: float = 0.1  # odds that it says yes where none would be


@dataclass(frozen=True, kw_only=True)
class SimulationCase:
    """One job and the rules of its simulation; times in ticks."""

    tick_s: float
    work: int
    deadline: int | None
    cold: int
    lost: int = 0
    zones: tuple[Candidate, ...]  # Spot, in the order of the capacity trace
    on_demand: Candidate | None
    moves: MoveMode = MoveMode.LEAVES_FIRST  # as production does
    signals: AvailabilitySignals = AvailabilitySignals()


@dataclass
class MarketExperience:
    """What earlier runs observed of the market, as production keeps it in tables."""

    holds: list[Exposure]
    outages: Exposure = NO_EXPOSURE
    evicted: int = 0
    hopped: int = 0
    moved: int = 0  # from on demand back to Spot ...
    moves_granted: int = 0  # ... and granted

    @classmethod
    def empty(cls, zones: int) -> Self:
        """Return the experience before any observation."""
        return cls(holds=[NO_EXPOSURE] * zones)


@dataclass(kw_only=True)
class SimulatedRun:
    """The outcome of one run."""

    dollars: float = 0.0
    finished: int | None = None  # ticks
    spot: int = 0
    on_demand: int = 0
    evictions: int = 0
    starts: int = 0
    moves: list[str] = field(default_factory=list)


def simulate(
    case: SimulationCase, capacity: CapacityByTick, begin: int, experience: MarketExperience
) -> SimulatedRun:
    """Simulate from tick ``begin`` to the end of the work or trace; adds to ``experience``."""
    return _Run(case, capacity, begin, experience).simulate()


class _Run:
    """The state of a run between two ticks."""

    def __init__(
        self,
        case: SimulationCase,
        capacity: CapacityByTick,
        begin: int,
        experience: MarketExperience,
    ) -> None:
        self.case, self.capacity, self.begin, self.experience = case, capacity, begin, experience
        self.at = begin
        self.zone_numbers = {zone.key: i for i, zone in enumerate(case.zones)}
        self.end = min(len(zone) for zone in capacity)
        self.done = 0
        self.held: int | None = None  # a zone; -1: on demand
        self.since = 0
        self.cold = 0
        self.refused: list[int | None] = [None] * len(case.zones)  # tick
        self.down: list[int | None] = [None] * len(case.zones)
        self.outage: int | None = None
        self.held_spot = False  # Spot was held before
        self.up_s = 0.0  # how long the held zone is likely to have had capacity when it accepted
        self.hopping = False  # evicted this tick, and not yet taken by another zone
        self.checkpoint_region = case.zones[0].offering.region if case.zones else ""
        self.result = SimulatedRun()

    def simulate(self) -> SimulatedRun:
        while self.done < self.case.work and self.at < self.end:
            self._evict()
            self._decide()
            self._tick()
        if self.done >= self.case.work:
            self.result.finished = self.at - self.begin
        if self.held is not None:
            self._leave(ended=False)
        if self.outage is not None:
            self._is_outage_over(ended=False)
        return self.result

    def _tick(self) -> None:
        hours = self.case.tick_s / HOUR
        if self.held is not None:
            if self.held < 0:
                assert self.case.on_demand is not None
                self.result.on_demand += 1
                self.result.dollars += self.case.on_demand.hourly * hours
            else:
                self.result.spot += 1
                self.result.dollars += self.case.zones[self.held].hourly * hours
            if self.cold > 0:
                self.cold -= 1
            else:
                self.done += 1
        self.at += 1

    def _evict(self) -> None:
        if self.held is None or self.held < 0 or self.capacity[self.held][self.at]:
            return
        self.result.evictions += 1
        self.experience.evicted += 1
        if self.cold == 0:
            self.done = max(0, self.done - self.case.lost)
        zone = self.held
        self._leave(ended=True)
        self.refused[zone] = self.down[zone] = self.at
        self.hopping = True

    def _leave(self, *, ended: bool) -> None:
        assert self.held is not None
        if self.held >= 0:
            hours = (self.at - self.since) * self.case.tick_s / HOUR
            self.experience.holds[self.held] += Exposure.of(
                [(hours, ended)], start_age=self.up_s / HOUR
            )
        self.held = None

    def _is_outage_over(self, *, ended: bool) -> None:
        assert self.outage is not None
        self.experience.outages += self._outage_ages(ended=ended)
        self.outage = None

    def _decide(self) -> None:
        while (decision := choose(self.policy_state())).kind is DecisionKind.RUN:
            assert decision.candidate is not None
            if self._request(decision.candidate):
                break
        self.hopping = False

    def policy_state(self) -> PolicyState:
        """Return what production would know at this tick."""
        case, tick_s = self.case, self.case.tick_s
        elapsed = self.at - self.begin
        return PolicyState(
            work_s=(case.work - self.done) * tick_s,
            left_s=None if case.deadline is None else (case.deadline - elapsed) * tick_s,
            candidates=tuple(self._candidates()),
            held=self._current_hold(),
            lost_s=case.lost * tick_s,
            step_s=tick_s,
            retry_s=tick_s,
            outage_seen=self.held_spot,
            outage_s=0.0 if self.outage is None else (self.at - self.outage) * tick_s,
            outages=self._outages(),
            moves=case.moves,
            returned=(self.experience.moved, self.experience.moves_granted),
            hops=(self.experience.evicted, self.experience.hopped),
        )

    def _candidates(self) -> Iterator[Candidate]:
        for zone, spot in enumerate(self.case.zones):
            refused, down = self.refused[zone], self.down[zone]
            moves = spot.offering.region != self.checkpoint_region
            yield replace(
                spot,
                holds=self.experience.holds[zone],
                down_s=None if down is None else (self.at - down) * self.case.tick_s,
                refused_s=None if refused is None else (self.at - refused) * self.case.tick_s,
                likely_s=self._likely_s(zone) if self.held == -1 else None,
                move_dollars=spot.move_dollars if moves else 0.0,
            )
        if self.case.on_demand is not None:
            yield self.case.on_demand

    def _likely_s(self, zone: int) -> float | None:
        """Return the seconds since the signal is positive; None without two in a row."""
        interval = max(1, round(self.case.signals.every_s / self.case.tick_s))
        newest = tick = self.begin + (self.at - self.begin) // interval * interval
        while tick >= self.begin and self._is_signal_positive(zone, tick):
            tick -= interval
        since = tick + interval
        return (self.at - since) * self.case.tick_s if since < newest else None

    def _is_signal_positive(self, zone: int, at: int) -> bool:
        signals = self.case.signals
        probability = (
            signals.true_positive_rate if self.capacity[zone][at] else signals.false_positive_rate
        )
        return random.Random(f"{self.begin} {zone} {at}").random() < probability  # noqa: S311 - no secret

    def _outages(self) -> Exposure:
        """Return the exposure of outages, with the present one so far."""
        if self.outage is None:
            return self.experience.outages
        return self.experience.outages + self._outage_ages(ended=False)

    def _outage_ages(self, *, ended: bool) -> Exposure:
        assert self.outage is not None
        hours = (self.at - self.outage) * self.case.tick_s / HOUR
        return Exposure.of(
            [(hours, ended)], start_age=0.0 if self.held_spot else UNSEEN_OUTAGE_S / HOUR
        )

    def _current_hold(self) -> CurrentHold | None:
        if self.held is None:
            return None
        bought = self.case.on_demand if self.held < 0 else self.case.zones[self.held]
        assert bought is not None
        tick_s = self.case.tick_s
        return CurrentHold(
            key=bought.key, age_s=(self.at - self.since) * tick_s, cold_left_s=self.cold * tick_s
        )

    def _request(self, candidate: Candidate) -> bool:
        zone = self.zone_numbers[candidate.key] if candidate.spot else -1
        moved = zone >= 0 and self.held == -1 and self.case.moves is MoveMode.LEAVES_FIRST
        if moved:
            self.experience.moved += 1
            self._leave(ended=False)
        if zone >= 0 and not self.capacity[zone][self.at]:
            self.refused[zone] = self.down[zone] = self.at
            if self.outage is None and None not in self.refused:
                self.outage = self.at
            return False
        if self.held is not None:
            self._leave(ended=False)
        if zone >= 0:
            self.experience.moves_granted += moved
            self._granted(zone)
            self.up_s = candidate.up_s
        self.held, self.since, self.cold = zone, self.at, self.case.cold
        self.result.starts += 1
        return True

    def _granted(self, zone: int) -> None:
        if self.outage is not None:
            self._is_outage_over(ended=True)
        self.held_spot = True
        self.refused = [None] * len(self.refused)
        self.experience.hopped += self.hopping
        where = self.case.zones[zone]
        if where.offering.region != self.checkpoint_region:
            self.result.dollars += where.move_dollars
            self.checkpoint_region = where.offering.region
