"""Engine, cloud and store of one replica, with a hook at every effect and every commit.

Each of these is a point. Points are numbered in the order of a life, so that a later run can inject
a fault at the same one. Reads and read-only transactions are not points: a kill there equals one
after the previous effect.
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
_REAL_TIME = "_renew"  # renews a lease every two real seconds, so it is not part of the script


Restart = Callable[[], Awaitable[None]]


async def _no_server() -> None:
    raise AssertionError("this hook has no server to restart")


class Killed(BaseException):
    """The replica is killed (kill -9); the service must not catch it."""


class Harm(StrEnum):
    """The fault that a replica suffers at a point."""

    BEFORE = "killed before it"
    AFTER = "killed after it"
    FAILS = "fails"
    LOST = "done, its answer lost"
    LATE = "stalls before it until after its lease"
    BELATED = "stalls before it until the life is over"
    SLOW = "takes longer than its lease"
    RESTART = "PostgreSQL killed and restarted before it"
    DEADLOCK = "PostgreSQL reports a deadlock"


STALLS = (Harm.LATE, Harm.BELATED)
SLOW_SECONDS = LEASE.total_seconds() + 2


@dataclass(frozen=True)
class Point:
    """One effect or commit."""

    what: str  # e.g. "create reconciler/attempts/attempts.py _create"
    transaction: int = 0  # of a commit: the number of its transaction
    batch: bool = False  # whether several items share that transaction
    nth: int = 1  # among the points with this name and the same ``batch``


@dataclass
class Hook:
    """Numbered points of one replica, with a fault at number ``at`` (0: at none)."""

    at: int = 0
    harm: Harm = Harm.AFTER
    second_harm: Harm | None = None  # after a deadlock: the fault of the second item done alone
    second: object = None  # that item, once its batch had the deadlock
    at_transaction: int = 0  # instead of ``at``: the number of a transaction, at its begin
    aim: Point | None = None  # instead of both: a point by name, where numbers vary between lives
    aim_count: int = 0  # points with the name of the aim so far
    clock: Clock = field(default_factory=Clock)  # the world's, which a slow commit advances
    restart: Restart = _no_server  # restarts PostgreSQL
    commit_delay: float = 0.0  # s, of each commit
    struck: bool = False
    points: list[Point] = field(default_factory=list)
    transactions: int = 0
    dead: bool = False
    unreachable: set[str] = field(default_factory=set)  # of "azure", "blob", "postgres"
    stalled: asyncio.Event = field(default_factory=asyncio.Event)
    released: asyncio.Event = field(default_factory=asyncio.Event)
    stopped: asyncio.Event = field(default_factory=asyncio.Event)  # dead or stalled

    async def check_alive(self) -> None:
        """Raise Killed, or wait, if the replica was struck in another task."""
        if self.dead:
            raise Killed
        if self.stalled.is_set():
            await self.released.wait()

    async def reach(self, name: str) -> None:
        """Check before a call that ``name`` is reachable. Raises ConnectionLost."""
        await self.check_alive()
        if name in self.unreachable:
            raise ConnectionLost

    def restore(self) -> None:
        """Make everything reachable and commits fast again."""
        self.unreachable.clear()
        self.commit_delay = 0.0

    async def begin_point(self, name: str, transaction: int = 0) -> int:
        """Begin a point; return its number."""
        await self.check_alive()
        batch = len(served()) > 1
        before = sum((p.what, p.batch) == (name, batch) for p in self.points)
        self.points.append(Point(name, transaction, batch, before + 1))
        number = len(self.points)
        if self._is_aim(name, at_transaction=False):
            self.at = number
        if transaction and self.commit_delay:
            self.clock.advance(seconds=self.commit_delay)
        if self._is_second():
            self.at, self.second = number, None
        if number == self.at:
            await self._before()
        return number

    async def end_point(self, number: int) -> None:
        """End a point, after its effect or commit."""
        if number != self.at:
            return
        self.struck = True
        if self.harm is Harm.AFTER:
            self.dead = True
            self.stopped.set()
            raise Killed
        if self.harm is Harm.LOST:
            raise ConnectionLost

    async def begin_transaction(self, name: str = "") -> int:
        """Begin a transaction and return its number; a stall here holds no lock yet."""
        await self.check_alive()
        self.transactions += 1
        if self._is_aim(f"commit {name}", at_transaction=True):
            self.at_transaction = self.transactions
        if self.transactions == self.at_transaction or (self.harm in STALLS and self._is_second()):
            self.second = None
            await self._before()
        return self.transactions

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
        """Aim at the second item of this batch; without one, nothing is struck."""
        if self.second_harm is None:
            return
        self.harm, self.second_harm, self.struck, self.at = self.second_harm, None, False, 0
        self.second = next(iter(served()[1:]), None)

    def _is_aim(self, name: str, *, at_transaction: bool) -> bool:
        """Return whether this is the aim; a stall across a commit aims at its transaction."""
        if self.aim is None or at_transaction != bool(self.harm in STALLS and self.aim.transaction):
            return False
        if (name, len(served()) > 1) != (self.aim.what, self.aim.batch):
            return False
        self.aim_count += 1
        return self.aim_count == self.aim.nth

    def _is_second(self) -> bool:
        return self.second is not None and any(item is self.second for item in served())


class ConnectionLost(Exception):
    """Each seam turns it into its own error."""


class Deadlock(ConnectionLost):
    """A deadlock of PostgreSQL, which is reachable."""

    sqlstate = "40P01"


class HookedEngine(AsyncEngine):
    """One replica's view of the database."""

    def __init__(self, engine: AsyncEngine, hook: Hook) -> None:
        super().__init__(engine.sync_engine)
        self.hook = hook

    @asynccontextmanager
    async def connect(self) -> AsyncIterator[AsyncConnection]:  # type: ignore[override] # as it is used
        """Open a connection to read: not a point, but it fails for a dead or cut off replica."""
        await self._reach()
        async with super().connect() as conn:
            yield conn

    @asynccontextmanager
    async def begin(self) -> AsyncIterator[AsyncConnection]:
        name = caller()
        await self._reach()
        if name.endswith(_REAL_TIME):
            async with super().connect() as conn, conn.begin():
                yield conn
            return
        transaction = await self.hook.begin_transaction(name)
        try:
            number = 0
            async with super().connect() as conn, conn.begin():
                yield conn
                await self.hook.check_alive()
                xid = await conn.execute(text("select pg_current_xact_id_if_assigned()"))
                if xid.scalar_one() is not None:  # the transaction has written
                    number = await self.hook.begin_point(f"commit {name}", transaction)
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
    """One replica's view of the cloud or the store, which outlive it."""

    dependency = ""  # its name in `Hook.unreachable`
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
                await self._hook.reach(self.dependency)
                if name not in self.points:
                    return await method(*args, **kwargs)
                number = await self._hook.begin_point(f"{name} {caller()}")
                answer = await method(*args, **kwargs)
                await self._hook.end_point(number)
            except ConnectionLost as fault:
                raise self.lost("The connection broke before the answer came.") from fault
            return answer

        return call


class HookedCloud(Hooked):
    """One replica's view of the cloud."""

    dependency, points, lost = "azure", frozenset({"create", "refill", "delete"}), CloudError

    async def list_owned(self) -> list[ScaleSet]:
        scale_sets: list[ScaleSet] = await self.__getattr__("list_owned")()
        _report_low_limit()
        return scale_sets

    async def close(self) -> None:
        """Close nothing: the cloud outlives the replica."""


def _report_low_limit() -> None:
    """Report a low remaining rate limit, as if others in the subscription also listed."""
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
    """One replica's view of Blob."""

    dependency, points, lost = "blob", WRITES, StorageError


def served() -> Sequence[object]:
    """Return the items that share the current transaction: a batch, one item, or none."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        if frame.f_code is Batcher._serve.__code__:
            batch: Sequence[object] = frame.f_locals["batch"]
            return batch
        frame = frame.f_back
    return ()


def caller() -> str:
    """Return the calling function of the service: "reconciler/attempts/attempts.py _create"."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        _, separator, path = frame.f_code.co_filename.rpartition("/service/")
        if separator:
            return f"{path} {frame.f_code.co_name}"
        frame = frame.f_back
    return "outside"
