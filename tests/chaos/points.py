"""The points of all plays, and one life for each point and kind of fault."""

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial

from sqlalchemy.ext.asyncio import AsyncEngine

from tests.scenario import worlds
from tests.scenario.plays.job_plays import PLAYS
from tests.scenario.scenario import Scenario
from tests.scenario.seams import STALLS, Harm, Hook, Point, Restart

_ALONE = (Harm.BEFORE, Harm.AFTER, Harm.FAILS, Harm.LOST, Harm.LATE, Harm.BELATED)
FEW = 3  # misses of one kind below which their share is not judged


@dataclass(frozen=True)
class Strike:
    """One life with one fault."""

    play: str
    number: int  # of the point
    point: Point
    harm: Harm
    second_harm: Harm | None = None  # after a deadlock: the fault of the second item done alone

    def __str__(self) -> str:
        return f"{self.play}: point {self.number} ({self.point.what}), {self.kind}"

    @property
    def kind(self) -> str:
        """Describe the fault and who suffers it."""
        second = f"; of the second by itself: {self.second_harm}" if self.second_harm else ""
        batch = " (in a batch)" if PLAYS[self.play].jobs > 1 else ""
        return f"{self.harm}{second}{batch}"

    def hook(self, restart: Restart) -> Hook:
        """Return a new hook that strikes here. A stall across a commit begins before it.

        Points of batches occur in any order, so there a point is found by its name.
        """
        if PLAYS[self.play].jobs > 1:
            second = self.second_harm
            return Hook(aim=self.point, harm=self.harm, second_harm=second, restart=restart)
        if self.harm in STALLS and self.point.transaction:
            return Hook(harm=self.harm, at_transaction=self.point.transaction)
        return Hook(at=self.number, harm=self.harm, second_harm=self.second_harm, restart=restart)


@dataclass
class Share:
    """The share of strikes that missed, by kind: such lives prove nothing."""

    lives: Counter[str] = field(default_factory=Counter)
    missed: Counter[str] = field(default_factory=Counter)

    def count(self, strike: Strike, broken: list[str] | None) -> None:
        """Count a strike; ``broken`` is what ``run_struck`` returned."""
        self.lives[strike.kind] += 1
        self.missed[strike.kind] += broken is None

    def add(self, other: "Share") -> None:
        """Add the counts of another process."""
        self.lives.update(other.lives)
        self.missed.update(other.missed)

    def describe_misses(self) -> list[str]:
        """Return a line for each kind with misses."""
        misses = self.missed.items()
        return [f"missed {n} of {self.lives[kind]}: {kind}" for kind, n in misses if n]

    def failures(self) -> list[str]:
        """Return a line for each kind whose strikes mostly missed, so it was hardly tested."""
        most = [kind for kind, n in self.missed.items() if n >= FEW and 2 * n > self.lives[kind]]
        return [f"most strikes missed: {kind}" for kind in most]


async def points_of(engine: AsyncEngine, url: str, play: str) -> list[Point]:
    """Return the points of a life without faults in order; it must keep every promise."""
    async with worlds.a_world(engine, url) as world:
        scenario = Scenario(world, PLAYS[play])
        broken = await scenario.run()
        assert not broken, f"{play}, undisturbed: {broken}"
        return scenario.hook.points


async def run_struck(engine: AsyncEngine, url: str, strike: Strike) -> list[str] | None:
    """Run a life with this strike; return the broken promises, or None if it missed.

    Jobs of a batch take turns in any order, and requeue delays are random: the last points may not
    be reached.
    """
    async with worlds.a_world(engine, url) as world:
        hook = strike.hook(partial(worlds.restart, world.engine))
        scenario = Scenario(world, PLAYS[strike.play], hook)
        broken = await scenario.run()
        return broken if scenario.hook.struck else broken or None


def strikes(play: str, points: Iterable[tuple[int, Point]], harm: Harm) -> Iterator[Strike]:
    """Yield a strike at each point; only a transaction can be a deadlock."""
    for number, point in points:
        if harm is not Harm.DEADLOCK or point.transaction:
            yield Strike(play, number, point, harm)
        if harm is Harm.DEADLOCK and PLAYS[play].jobs > 1 and point.batch:
            yield from (Strike(play, number, point, harm, second_harm) for second_harm in _ALONE)


async def enumerated(url: str, plays: Iterable[str]) -> dict[str, list[tuple[int, Point]]]:
    """Return the numbered points of each play, without a beginning shared with an earlier play."""
    earlier: list[list[str]] = []
    by_play: dict[str, list[tuple[int, Point]]] = {}
    async with worlds.an_engine(url) as engine:
        for play in plays:
            points = await points_of(engine, url, play)
            names = [p.what for p in points]
            shared = max((_shared(names, names_before) for names_before in earlier), default=0)
            by_play[play] = [(n, p) for n, p in enumerate(points, 1) if n > shared]
            earlier.append(names)
    return by_play


def _shared(first: list[str], second: list[str]) -> int:
    """Return the length of the common beginning."""
    same = 0
    for a, b in zip(first, second, strict=False):
        if a != b:
            break
        same += 1
    return same
