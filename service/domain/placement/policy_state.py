"""What a choice of where to run rests on, and what it is: stored together. Times are seconds."""

from dataclasses import asdict, dataclass, field
from enum import StrEnum
from functools import cached_property
from typing import Any

from service.domain.cloud.fleet import Offering
from service.domain.spot.age_hazard import NOTHING, Ages
from service.domain.states import CapacityType

UNSEEN_UP_S = 12 * 3600.0  # capacity that was never seen to be gone is not new
UNSEEN_DROUGHT_S = 4 * 3600.0  # nor is a drought whose beginning was not seen

Key = tuple[Offering, int]  # an offering and the number of nodes


class Moves(StrEnum):
    """How a job gets from what it holds to Spot."""

    ASKS_FIRST = "asks_first"  # what is held is left once something else is granted
    LEAVES_FIRST = "leaves_first"  # one hold at a time: it is left, on a sign, and then asked
    STAYS = "stays"  # not at all


@dataclass(frozen=True, kw_only=True)
class Candidate:
    """One place to run and what is known of it. Only what the user allows is a candidate."""

    offering: Offering
    nodes: int = 1
    hourly: float  # dollars, all nodes
    cold_start_s: float  # from asking for it to the next training step
    speed: float = 1.0  # seconds of work done in a second
    move_dollars: float = 0.0  # what bringing the checkpoint there costs
    evictions_per_hour: float | None = None  # of the whole hold, by Azure's band; None: not known
    holds: Ages = NOTHING  # own experience there
    refused_s: float | None = None  # since it refused; None: it has not since it last accepted
    down_s: float | None = (
        None  # since it last refused or evicted, whatever came after; None: never
    )
    evicted_s: float | None = None  # since anything of ours was evicted from that size there
    likely_s: float | None = None  # since when each of several signs says that it would accept
    again: bool = True  # it may be asked for; what is held and sold out or not allowed may not

    @property
    def spot(self) -> bool:
        """Whether it can be taken away."""
        return self.offering.capacity_type is CapacityType.SPOT

    @property
    def key(self) -> Key:
        """What tells candidates apart."""
        return self.offering, self.nodes

    @property
    def up_s(self) -> float:
        """How long it is likely to have had capacity, should it accept now."""
        return UNSEEN_UP_S if self.down_s is None else self.down_s / 2

    @property
    def price(self) -> float:
        """Dollars for an hour of work at speed 1, evictions not counted."""
        return self.hourly / self.speed

    def __str__(self) -> str:
        return f"{self.nodes} x {self.offering}" if self.nodes > 1 else str(self.offering)


@dataclass(frozen=True, kw_only=True)
class Held:
    """What the job runs on."""

    key: Key
    age_s: float  # since it was granted
    cold_left_s: float = 0.0  # until it trains


@dataclass(frozen=True, kw_only=True)
class Situation:
    """A job with work left, and the market as far as we have seen it."""

    work_s: float  # training at speed 1 that no committed checkpoint holds; None is not possible
    left_s: float | None  # to the deadline; None: there is none
    candidates: tuple[Candidate, ...]
    held: Held | None = None
    lost_s: float = 0.0  # work that an eviction undoes
    step_s: float = 60.0  # the next choice comes no later than this
    margin_s: float = 0.0  # of the time left, kept for what is slower than expected
    retry_s: float = 60.0  # a candidate that refused is not asked again before
    drought_s: float = 0.0  # since every Spot candidate refuses; 0: not so
    drought_seen: bool = True  # its beginning: Spot was held before; else it is older than we know
    droughts: Ages = NOTHING  # how long that lasted before, for candidates like these
    hops: tuple[int, int] = (0, 0)  # evictions, and how many of them another candidate made good
    moves: Moves = Moves.ASKS_FIRST
    returned: tuple[int, int] = (0, 0)  # moves from on demand back to Spot, and those it accepted
    leave_s: float = 0.0  # what is held takes so long to save and stop

    @cached_property
    def holding(self) -> Candidate | None:
        """The candidate that is held."""
        if self.held is None:
            return None
        return next((c for c in self.candidates if c.key == self.held.key), None)

    @cached_property
    def pooled(self) -> Ages:
        """What was seen of holds on all the candidates."""
        return sum((c.holds for c in self.candidates if c.spot), NOTHING)

    def as_dict(self) -> dict[str, Any]:
        """JSON-able, for the record."""
        return asdict(self)


class Kind(StrEnum):
    """What to do now."""

    WAIT = "wait"  # nothing is held, and nothing is asked for yet
    STAY = "stay"  # keep what is held
    RUN = "run"  # ask for it; in production what is held is left first (ADR 0033)


@dataclass(frozen=True, kw_only=True)
class Decision:
    """What to do, why, and when to ask again at the latest."""

    kind: Kind
    candidate: Candidate | None  # RUN: ask for it; STAY: what is held
    again_s: float
    why: str  # one sentence for the user
    figures: dict[str, float] = field(default_factory=dict)  # what was weighed
    net: Candidate | None = None  # what the deadline rests on where on demand is left for Spot
