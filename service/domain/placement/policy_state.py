"""State and decision of the placement policy, stored together. Times are in seconds."""

from dataclasses import asdict, dataclass, field
from enum import StrEnum
from functools import cached_property
from typing import Any

from service.domain.cloud.fleet import Offering
from service.domain.spot.age_hazard import NO_EXPOSURE, Exposure
from service.domain.states import CapacityType

UNSEEN_UP_S = 12 * 3600.0  # capacity that was never seen to be gone is not new
UNSEEN_OUTAGE_S = 4 * 3600.0  # nor is an outage whose beginning was not seen

Key = tuple[Offering, int]  # an offering and the number of nodes


class MoveMode(StrEnum):
    """How a job moves from what it holds to Spot."""

    ASKS_FIRST = "asks_first"  # what is held is left once something else is granted
    LEAVES_FIRST = "leaves_first"  # one hold at a time: it is left, on a signal, and then requested
    STAYS = "stays"  # not at all


@dataclass(frozen=True, kw_only=True)
class Candidate:
    """One offering to run on and what is known of it; the user allows every candidate."""

    offering: Offering
    nodes: int = 1
    hourly: float  # dollars, all nodes
    cold_start_s: float  # from asking for it to the next training step
    speed: float = 1.0  # seconds of work done in a second
    move_dollars: float = 0.0  # what bringing the checkpoint there costs
    evictions_per_hour: float | None = None  # of the whole hold, by Azure's band; None: not known
    holds: Exposure = NO_EXPOSURE  # own experience there
    refused_s: float | None = None  # since it refused; None: it has not since it last accepted
    # Since it last refused or evicted, whatever came after; None: never.
    down_s: float | None = None
    evicted_s: float | None = None  # since anything of ours was evicted from that size there
    likely_s: float | None = None  # since when each of several signals says that it would accept
    again: bool = True  # it may be asked for; what is held and sold out or not allowed may not

    @property
    def spot(self) -> bool:
        """Return whether it can be evicted."""
        return self.offering.capacity_type is CapacityType.SPOT

    @property
    def key(self) -> Key:
        """Return what identifies the candidate."""
        return self.offering, self.nodes

    @property
    def up_s(self) -> float:
        """Return for how long it has likely had capacity, should it accept now."""
        return UNSEEN_UP_S if self.down_s is None else self.down_s / 2

    @property
    def price(self) -> float:
        """Return dollars per hour of work at speed 1, without evictions."""
        return self.hourly / self.speed

    def __str__(self) -> str:
        return f"{self.nodes} x {self.offering}" if self.nodes > 1 else str(self.offering)


@dataclass(frozen=True, kw_only=True)
class CurrentHold:
    """The machines that the job holds."""

    key: Key
    age_s: float  # since it was granted
    cold_left_s: float = 0.0  # until it trains


@dataclass(frozen=True, kw_only=True)
class PolicyState:
    """A job with work left, and the observed state of the market."""

    work_s: float  # training at speed 1 that no committed checkpoint holds; None is not possible
    left_s: float | None  # to the deadline; None: there is none
    candidates: tuple[Candidate, ...]
    held: CurrentHold | None = None
    lost_s: float = 0.0  # work that an eviction undoes
    step_s: float = 60.0  # the next choice comes no later than this
    margin_s: float = 0.0  # of the time left, kept for what is slower than expected
    retry_s: float = 60.0  # a candidate that refused is not asked again before
    outage_s: float = 0.0  # since every Spot candidate refuses; 0: not so
    outage_seen: bool = True  # its beginning: Spot was held before; else it is older than we know
    outages: Exposure = NO_EXPOSURE  # how long that lasted before, for candidates like these
    hops: tuple[int, int] = (0, 0)  # evictions, and how many of them another candidate made good
    moves: MoveMode = MoveMode.ASKS_FIRST
    returned: tuple[int, int] = (0, 0)  # moves from on demand back to Spot, and those it accepted
    leave_s: float = 0.0  # what is held takes so long to save and stop

    @cached_property
    def holding(self) -> Candidate | None:
        """Return the candidate that is held."""
        if self.held is None:
            return None
        return next((c for c in self.candidates if c.key == self.held.key), None)

    @cached_property
    def pooled(self) -> Exposure:
        """Return the exposure of all Spot candidates together."""
        return sum((c.holds for c in self.candidates if c.spot), NO_EXPOSURE)

    def as_dict(self) -> dict[str, Any]:
        """Return a JSON-able record."""
        return asdict(self)


class DecisionKind(StrEnum):
    """What to do now."""

    WAIT = "wait"  # nothing is held, and nothing is asked for yet
    STAY = "stay"  # keep what is held
    RUN = "run"  # ask for it; in production what is held is left first (ADR 0033)


@dataclass(frozen=True, kw_only=True)
class Decision:
    """What to do, why, and when to decide again at the latest."""

    kind: DecisionKind
    candidate: Candidate | None  # RUN: ask for it; STAY: what is held
    again_s: float
    why: str  # one sentence for the user
    figures: dict[str, float] = field(default_factory=dict)  # what was weighed
    net: Candidate | None = None  # what the deadline rests on where on demand is left for Spot
