"""All points of all plays, each struck in every way, one life per strike."""

import asyncio
import logging
from collections import Counter
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from alembic import command
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine

from rekindle.local import postgres
from service.db.core.engine import make_engine
from tests import postgres as test_postgres
from tests.chaos.life import Life
from tests.chaos.plays import PLAYS
from tests.chaos.seams import STALLS, Harm, Hook, Point, Restart
from tests.clock import Clock
from tests.world import World, open_world

_ALONE = (Harm.BEFORE, Harm.AFTER, Harm.FAILS, Harm.LOST, Harm.LATE, Harm.BELATED)
FEW = 3  # misses of a kind: from so many on it is judged by its share


@dataclass(frozen=True)
class Strike:
    """One life to be lived."""

    play: str
    number: int  # of the point
    point: Point
    harm: Harm
    then: Harm | None = None  # what befalls the second that is done by itself after a deadlock

    def __str__(self) -> str:
        return f"{self.play}: point {self.number} ({self.point.what}), {self.kind}"

    @property
    def kind(self) -> str:
        """What befalls whom."""
        second = f"; of the second by itself: {self.then}" if self.then else ""
        crowd = " (in a crowd)" if PLAYS[self.play].jobs > 1 else ""
        return f"{self.harm}{second}{crowd}"

    def hook(self, restart: Restart) -> Hook:
        """A fresh hook that does it. What stalls over a commit does so before it begins.

        Crowds come in any order, and so do their points: there it is known by its name.
        """
        if PLAYS[self.play].jobs > 1:
            return Hook(aim=self.point, harm=self.harm, then=self.then, restart=restart)
        if self.harm in STALLS and self.point.door:
            return Hook(harm=self.harm, at_door=self.point.door)
        return Hook(at=self.number, harm=self.harm, then=self.then, restart=restart)


@dataclass
class Share:
    """How many of each kind of strike have missed: such a life has shown nothing."""

    lives: Counter[str] = field(default_factory=Counter)
    missed: Counter[str] = field(default_factory=Counter)

    def count(self, strike: Strike, broken: list[str] | None) -> None:
        """``broken``: what ``lived`` said."""
        self.lives[strike.kind] += 1
        self.missed[strike.kind] += broken is None

    def add(self, other: "Share") -> None:
        """As if those had been counted here."""
        self.lives.update(other.lives)
        self.missed.update(other.missed)

    def told(self) -> list[str]:
        """A line for each kind of which some missed."""
        found = self.missed.items()
        return [f"missed {n} of {self.lives[kind]}: {kind}" for kind, n in found if n]

    def too_many(self) -> list[str]:
        """The kinds of which most missed: nobody can say that they were tried."""
        most = [kind for kind, n in self.missed.items() if n >= FEW and 2 * n > self.lives[kind]]
        return [f"most strikes missed: {kind}" for kind in most]


@contextmanager
def database() -> Iterator[str]:
    """A PostgreSQL of its own, migrated; its URL. What is committed there outlives the server."""
    with test_postgres.server() as data:
        postgres.create_database(data)
        lasting = f"alter database {postgres.DATABASE} set synchronous_commit = on"
        postgres.psql(data, lasting)
        url = postgres.url(data)
        command.upgrade(test_postgres.migrations(url), "head")
        yield url


async def restart(engine: AsyncEngine) -> None:
    """Shoot the server, with every connection and transaction, and start it again."""
    async with engine.connect() as conn:
        data = Path((await conn.execute(text("show data_directory"))).scalar_one())
    await asyncio.to_thread(postgres.stop, data)
    await asyncio.to_thread(postgres.start, data, *test_postgres.SETTINGS)


@asynccontextmanager
async def a_world(engine: AsyncEngine, url: str) -> AsyncIterator[World]:
    """An empty service; logs of what it was struck with are nobody's news.

    ``world.engine`` is ours, who look on: a connection that the weather ends must not end the life.
    What the replicas have ends in their hands: ``world.parts.engine``.
    """
    logging.disable(logging.CRITICAL)
    try:
        async with engine.begin() as conn:
            await conn.execute(text(test_postgres.EMPTY))
        async with open_world(engine, url, Clock()) as world:
            world.engine = create_async_engine(engine.url, pool_size=1, pool_pre_ping=True)
            try:
                yield world
            finally:
                await world.engine.dispose()
    finally:
        logging.disable(logging.NOTSET)


async def points_of(engine: AsyncEngine, url: str, play: str) -> list[Point]:
    """Those of an undisturbed life, in order; it must keep every promise."""
    async with a_world(engine, url) as world:
        life = Life(world, play, Hook())
        broken = await life.run()
        assert not broken, f"{play}, undisturbed: {broken}"
        return life.hook.points


async def lived(engine: AsyncEngine, url: str, strike: Strike) -> list[str] | None:
    """What of the promises was broken in the life with this strike; None: it missed.

    A crowd's jobs take turns in any order, so that not always the same of them share a transaction,
    and who asks politely comes back after a while that has chance in it: the last points may not be
    come to.
    """
    async with a_world(engine, url) as world:
        life = Life(world, strike.play, strike.hook(partial(restart, world.engine)))
        broken = await life.run()
        if life.hook.struck:
            return broken
        if life.play.jobs > 1 or life.play.rate_limited:
            return broken or None
        return [*broken, "the point was never come to"]


def strikes(play: str, found: Iterable[tuple[int, Point]], harm: Harm) -> Iterator[Strike]:
    """At each of these points; only a transaction can be a deadlock, and then each is alone."""
    for number, point in found:
        if harm is not Harm.DEADLOCK or point.door:
            yield Strike(play, number, point, harm)
        if harm is Harm.DEADLOCK and PLAYS[play].jobs > 1 and point.crowd:
            yield from (Strike(play, number, point, harm, then) for then in _ALONE)


async def enumerated(url: str, plays: Iterable[str]) -> dict[str, list[tuple[int, Point]]]:
    """The points of each play, numbered; what begins like another play is not lived again."""
    known: list[list[str]] = []
    found: dict[str, list[tuple[int, Point]]] = {}
    async with an_engine(url) as engine:
        for play in plays:
            points = await points_of(engine, url, play)
            names = [p.what for p in points]
            shared = max((_shared(names, other) for other in known), default=0)
            found[play] = [(n, p) for n, p in enumerate(points, 1) if n > shared]
            known.append(names)
    return found


def _shared(one: list[str], other: list[str]) -> int:
    """How many points they begin with that are the same."""
    same = 0
    for mine, theirs in zip(one, other, strict=False):
        if mine != theirs:
            break
        same += 1
    return same


@asynccontextmanager
async def an_engine(url: str) -> AsyncIterator[AsyncEngine]:
    """An engine on it, closed at the end."""
    engine = make_engine(url, pool_size=10)
    try:
        yield engine
    finally:
        await engine.dispose()
