"""Engine, cloud and store of one replica, with a hook at every effect and every commit.

Each of these is a point. Points are numbered in the order of a life, so that a later run can be
struck at exactly that one. Reads and transactions that wrote nothing are no points: to die there is
to die after the effect before it.
"""

import asyncio
import inspect
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from enum import StrEnum
from types import FrameType, SimpleNamespace
from typing import Any

from sqlalchemy import text
from sqlalchemy.exc import OperationalError
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from service.cloud.azure.remaining import HEADER, RemainingLimitsPolicy
from service.cloud.provider import CloudError
from service.db.core.batching import Batcher
from service.db.core.leases import LEASE
from service.domain.cloud.fleet import ScaleSet
from service.storage.store import StorageError
from tests.clock import Clock

_LITTLE = "Microsoft.Compute/HighCostGetVMScaleSetSubscriptionMaximum;500"
_BY_THE_WALL_CLOCK = "_renew"  # a lease is renewed every two real seconds: no part of the script


Restart = Callable[[], Awaitable[None]]


async def _no_server() -> None:
    raise AssertionError("this hook was given no server to restart")


class Killed(BaseException):
    """The replica is killed (kill -9): nothing in the service may catch it."""


class Harm(StrEnum):
    """What happens to a replica at a point."""

    BEFORE = "killed before it"
    AFTER = "killed after it"
    FAILS = "it fails"
    LOST = "it is done, and the answer is lost"
    LATE = "stalls before it, does it after its lease"
    BELATED = "stalls before it, does it when all is over"
    SLOW = "it takes longer than its lease"
    RESTART = "PostgreSQL is shot and started before it"
    DEADLOCK = "PostgreSQL ends it as a deadlock"


STALLS = (Harm.LATE, Harm.BELATED)
SLOW_SECONDS = LEASE.total_seconds() + 2


@dataclass(frozen=True)
class Point:
    """One effect or commit."""

    what: str  # e.g. "create reconciler/attempts/attempts.py _create"
    door: int = 0  # of a commit: the number of its transaction, among all that began
    batch: bool = False  # whether many share that transaction
    nth: int = 1  # of those of this name that are in a crowd as this one is, or are not


@dataclass
class Hook:
    """Numbers the points of one replica; harms it at ``at`` (0: at none)."""

    at: int = 0
    harm: Harm = Harm.AFTER
    second_harm: Harm | None = None  # after a deadlock: to the second that is done by itself
    second: object = None  # that one, once its crowd has ended in a deadlock
    at_door: int = 0  # instead: where a transaction begins, by its own number
    aim: Point | None = None  # instead of both: that one, where numbers differ between two lives
    met: int = 0  # of the aim's name
    clock: Clock = field(default_factory=Clock)  # the world's; a slow disk lets it go on
    restart: Restart = _no_server  # PostgreSQL
    drag: float = 0.0  # seconds that each commit takes
    struck: bool = False
    points: list[Point] = field(default_factory=list)
    doors: int = 0
    dead: bool = False
    cut: set[str] = field(default_factory=set)  # "azure", "blob", "postgres": out of reach
    stalled: asyncio.Event = field(default_factory=asyncio.Event)
    released: asyncio.Event = field(default_factory=asyncio.Event)
    stopped: asyncio.Event = field(default_factory=asyncio.Event)  # dead or stalled

    async def alive(self) -> None:
        """Raise Killed, or wait, if the replica was struck in another task."""
        if self.dead:
            raise Killed
        if self.stalled.is_set():
            await self.released.wait()

    async def reach(self, name: str) -> None:
        """Check the way to the outside before a call. Raises ConnectionLost."""
        await self.alive()
        if name in self.cut:
            raise ConnectionLost

    def calm(self) -> None:
        """End every cut and every slow commit."""
        self.cut.clear()
        self.drag = 0.0

    async def come_to(self, name: str, door: int = 0) -> int:
        """Begin a point; return its number."""
        await self.alive()
        batch = len(served()) > 1
        before = sum((p.what, p.batch) == (name, batch) for p in self.points)
        self.points.append(Point(name, door, batch, before + 1))
        number = len(self.points)
        if self._is_aim(name, at_door=False):
            self.at = number
        if door and self.drag:
            self.clock.advance(seconds=self.drag)
        if self._is_second():
            self.at, self.second = number, None
        if number == self.at:
            await self._before()
        return number

    async def end_point(self, number: int) -> None:
        """End a point: its effect is there, or its transaction is committed."""
        if number != self.at:
            return
        self.struck = True
        if self.harm is Harm.AFTER:
            self.dead = True
            self.stopped.set()
            raise Killed
        if self.harm is Harm.LOST:
            raise ConnectionLost

    async def door(self, name: str = "") -> int:
        """Begin a transaction; what stalls here holds no lock yet."""
        await self.alive()
        self.doors += 1
        if self._is_aim(f"commit {name}", at_door=True):
            self.at_door = self.doors
        if self.doors == self.at_door or (self.harm in STALLS and self._is_second()):
            self.second = None
            await self._before()
        return self.doors

    async def _before(self) -> None:
        self.struck = True
        if self.harm is Harm.SLOW:
            self.clock.advance(seconds=SLOW_SECONDS)
        if self.harm is Harm.RESTART:
            await self.restart()
        if self.harm is Harm.BEFORE:
            self.dead = True
            self.stopped.set()
            raise Killed
        if self.harm is Harm.FAILS:
            raise ConnectionLost
        if self.harm is Harm.DEADLOCK:
            self._arm_again()
            raise Deadlock
        if self.harm in STALLS:
            self.stalled.set()
            self.stopped.set()
            await self.released.wait()

    def _arm_again(self) -> None:
        """Wait for the second of this batch; where there is none, nothing is struck."""
        if self.second_harm is None:
            return
        self.harm, self.second_harm, self.struck, self.at = self.second_harm, None, False, 0
        self.second = next(iter(served()[1:]), None)

    def _is_aim(self, name: str, *, at_door: bool) -> bool:
        """Return whether this is the aim; a stall over a commit aims at its door."""
        if self.aim is None or at_door != bool(self.harm in STALLS and self.aim.door):
            return False
        if (name, len(served()) > 1) != (self.aim.what, self.aim.batch):
            return False
        self.met += 1
        return self.met == self.aim.nth

    def _is_second(self) -> bool:
        return self.second is not None and any(item is self.second for item in served())


class ConnectionLost(Exception):
    """Becomes each seam's own error."""


class Deadlock(ConnectionLost):
    """Of PostgreSQL: a fault of the transaction, and none of its being away."""

    sqlstate = "40P01"


class HookedEngine(AsyncEngine):
    """The same database, for one replica."""

    def __init__(self, engine: AsyncEngine, hook: Hook) -> None:
        super().__init__(engine.sync_engine)
        self.hook = hook

    @asynccontextmanager
    async def connect(self) -> AsyncIterator[AsyncConnection]:  # type: ignore[override] # as it is used
        """Open a connection to read: no point, but impossible for a dead or cut off replica."""
        await self._reach()
        async with super().connect() as conn:
            yield conn

    @asynccontextmanager
    async def begin(self) -> AsyncIterator[AsyncConnection]:
        name = caller()
        await self._reach()
        if name.endswith(_BY_THE_WALL_CLOCK):
            async with super().connect() as conn, conn.begin():
                yield conn
            return
        door = await self.hook.door(name)
        try:
            number = 0
            async with super().connect() as conn, conn.begin():
                yield conn
                await self.hook.alive()
                xid = await conn.execute(text("select pg_current_xact_id_if_assigned()"))
                if xid.scalar_one() is not None:  # it has written something
                    number = await self.hook.come_to(f"commit {name}", door)
            if number:
                await self.hook.end_point(number)
        except ConnectionLost as fault:
            raise OperationalError(None, None, fault) from fault

    async def _reach(self) -> None:
        try:
            await self.hook.reach("postgres")
        except ConnectionLost as fault:
            raise OperationalError(None, None, fault) from fault


class Hooked:
    """One replica's view of the cloud or the store, which outlives it."""

    way = ""  # what a hook cuts
    points = frozenset[str]()  # methods with an effect
    lost: type[Exception] = ConnectionLost  # the seam's own error

    def __init__(self, seam: Any, hook: Hook) -> None:  # noqa: ANN401 - a fake of either
        self._seam, self._hook = seam, hook

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - whatever the seam can do
        method = getattr(self._seam, name)
        if not inspect.iscoroutinefunction(method):
            return method

        async def call(*args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 - the same again
            try:
                await self._hook.reach(self.way)
                if name not in self.points:
                    return await method(*args, **kwargs)
                number = await self._hook.come_to(f"{name} {caller()}")
                answer = await method(*args, **kwargs)
                await self._hook.end_point(number)
            except ConnectionLost as fault:
                raise self.lost("The connection broke before the answer came.") from fault
            return answer

        return call


class HookedCloud(Hooked):
    """That of the cloud."""

    way, points, lost = "azure", frozenset({"create", "refill", "delete"}), CloudError

    async def list_owned(self) -> list[ScaleSet]:
        scale_sets: list[ScaleSet] = await self.__getattr__("list_owned")()
        _tell_that_little_is_left()
        return scale_sets

    async def close(self) -> None:
        """Close nothing: the cloud outlives the replica."""


def _tell_that_little_is_left() -> None:
    """Say that little of the rate limit is left, as where others in the subscription list too."""
    answer = SimpleNamespace(http_response=SimpleNamespace(headers={HEADER: _LITTLE}))
    RemainingLimitsPolicy().on_response(None, answer)  # type: ignore[arg-type] # the SDK's own


WRITES = frozenset(
    {
        "create_container",
        "delete_container",
        "write",
        "upload",
        "stage",
        "commit",
        "discard",
        "copy",
    }
    | {"delete", "set_tier", "set_access_policies"}
)


class HookedStore(Hooked):
    """That of Blob."""

    way, points, lost = "blob", WRITES, StorageError


def served() -> Sequence[object]:
    """Return who shares the transaction at hand: a batch, one of it by itself, or nobody known."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        if frame.f_code is Batcher._serve.__code__:
            batch: Sequence[object] = frame.f_locals["batch"]
            return batch
        frame = frame.f_back
    return ()


def caller() -> str:
    """Return the function of the service that calls: "reconciler/attempts/attempts.py _create"."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        _, separator, path = frame.f_code.co_filename.rpartition("/service/")
        if separator:
            return f"{path} {frame.f_code.co_name}"
        frame = frame.f_back
    return "outside"
