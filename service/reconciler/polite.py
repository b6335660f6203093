"""Asking the cloud politely: by tokens, never too many at once, and not where it is ill.

Tokens and circuits are all replicas' (service/db/cloud/politeness.py). Nobody waits here: who may not
ask now gets Throttled at once and comes again, so a slow region takes no slot from another one.
"""

import asyncio
import logging
import random
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import partial
from time import perf_counter
from typing import TypeVar

from sqlalchemy.ext.asyncio import AsyncEngine

from service.cloud import engines, remaining
from service.cloud.provider import CloudError, CloudProvider, Throttled
from service.db.cloud import politeness
from service.db.cloud.scale_set_cache import ALL
from service.db.core import leases
from service.db.core.leases import Claim
from service.domain.cloud.fleet import Resource, ScaleSet, ScaleSetSpec, SpotCores
from service.domain.cloud.politeness import FAILURES, KEPT, LIMITS, Circuit, Kind
from service.instruments import AZURE_CALL, AZURE_DEFERRED, AZURE_REMAINING

log = logging.getLogger(__name__)
T = TypeVar("T")
AT_ONCE = 50  # calls to one region under way, of the loop's 200 steps
_LOOK_AGAIN = timedelta(seconds=1)  # at a region's circuit
_CROWD_SECONDS = 1.0  # also a call's length until some are measured
_NEWEST = 0.1  # of all calls' mean length is the last one's
_EVERYTHING = "resources"  # another part of Azure: its failures say nothing of scale sets
_LONGEST_TURN = timedelta(minutes=5)  # for tokens
_SHORTEST_WAIT = 2.0  # seconds, for a place
_LONGEST_WAIT = timedelta(seconds=28)  # for a place: calls that hung may answer again
_LOW = 0.5  # of a bucket: what Azure says is left is written down from there on


class CircuitOpen(Throttled):
    """It was not asked: the region fails, and is left alone for a while."""


class NoPlace(Throttled):
    """It was not asked: too many calls are under way here, or the row's turn has not come."""


@dataclass
class _Block:
    left: int
    until: datetime


@dataclass(frozen=True)
class _Turn:
    until: datetime
    hints: int  # of the row as it was looked at
    kinds: frozenset[Kind] | None = None  # of the calls that may be asked then; None: for a place


@dataclass
class Call:
    """One operation, for the metrics: how long Azure took, or why it was not asked."""

    operation: str
    region: str
    asked: bool = False

    @contextmanager
    def deferred(self) -> Iterator[None]:
        """Count a refusal of our own."""
        try:
            yield
        except Throttled as refusal:
            if not self.asked:
                reason = _REASONS.get(type(refusal), "rate_limit")
                AZURE_DEFERRED.add(self.operation, self.region, reason)
            raise

    async def time(self, call: Callable[[], Awaitable[T]]) -> T:
        """Do it."""
        self.asked, began, result = True, perf_counter(), "unexpected"
        try:
            answer = await call()
        except CloudError as fault:
            result = type(fault).__name__
            raise
        else:
            result = "ok"
            return answer
        finally:
            seconds = perf_counter() - began
            AZURE_CALL.observe(self.operation, self.region, result, value=seconds)


_REASONS: dict[type[Throttled], str] = {NoPlace: "concurrency", CircuitOpen: "circuit"}


@dataclass
class PoliteCloud:
    """``at(region)`` is the cloud as it may be asked there."""

    engine: AsyncEngine
    cloud: CloudProvider
    now: Callable[[], datetime]
    at_once: int = AT_ONCE
    times: float = 1.0  # the limits of Microsoft's table, of a subscription that has more
    _slots: dict[tuple[str, Kind | None], datetime] = field(default_factory=dict)  # None: places
    _turns: dict[str, _Turn] = field(default_factory=dict)  # by row that was refused
    _blocks: dict[tuple[str, Kind], _Block] = field(default_factory=dict)
    _taking: defaultdict[tuple[str, Kind], asyncio.Lock] = field(
        default_factory=lambda: defaultdict(asyncio.Lock)
    )
    _circuits: dict[str, tuple[Circuit, datetime]] = field(default_factory=dict)
    _looking: defaultdict[str, asyncio.Lock] = field(
        default_factory=lambda: defaultdict(asyncio.Lock)
    )
    _under_way: Counter[str] = field(default_factory=Counter)
    _takes: dict[str, float] = field(default_factory=dict)  # seconds of a call there

    def at(self, region: str, claim: Claim | None = None) -> "At":
        """The cloud in this region; ``claim``: of the row for which it is asked."""
        return At(polite=self, region=region, claim=claim)

    def until_turn(self, claim: Claim) -> timedelta | None:
        """How long until its turn; None: it has come, or there is news of the row."""
        turn = self._turns.get(claim.row_id)
        if turn is None or turn.hints != claim.hints or turn.until <= self.now():
            return None
        return turn.until - self.now()

    def forget(self, row_id: str) -> None:
        """It has moved on and asks for something else now; a place it needs for that as well."""
        if (turn := self._turns.get(row_id)) and turn.kinds is not None:
            del self._turns[row_id]

    async def ask(
        self,
        region: str,
        kinds: Collection[Kind],
        call: Callable[[], Awaitable[T]],
        claim: Claim | None = None,
        *,
        operation: str = "other",
    ) -> T:
        """Do it, if it may be done now. Raises Throttled, and whatever ``call`` raises.

        Who was refused and comes before its turn is refused again, and nothing is spent on it.
        """
        measured = Call(operation, region)
        with measured.deferred():
            return await self._ask(region, kinds, partial(measured.time, call), claim)

    async def _ask(
        self,
        region: str,
        kinds: Collection[Kind],
        call: Callable[[], Awaitable[T]],
        claim: Claim | None,
    ) -> T:
        began = self.now()
        async with self._in_turn(frozenset(kinds), claim), self._place(region, claim):
            probes = await self._admit(region, kinds)
            with remaining.gathered() as left:
                try:
                    answer = await call()
                except CloudError as fault:
                    await self._refused(region, fault, probes=probes)
                    raise
                finally:
                    await self._learn(region, left)
                    self._note(region, began)
        await self._answered(region)
        return answer

    async def _admit(self, region: str, kinds: Collection[Kind]) -> bool:
        """True for the call that finds out whether a shut region answers again."""
        circuit = await self._circuit(region)
        probes = circuit.is_tried and await self._may_probe(region)
        if circuit.is_tried and not probes:
            until = circuit.shut_until or self.now()
            left = max((until - self.now()).total_seconds(), _CROWD_SECONDS)
            raise CircuitOpen(f"Azure fails in {region}; it is asked again later", "", left)
        for kind in kinds:
            await self._spend(region, kind)
        return probes

    async def _spend(self, region: str, kind: Kind) -> None:
        async with self._taking[region, kind]:  # else each of a crowd would take a block
            block = self._blocks.get((region, kind))
            if block is None or not block.left or self.now() > block.until:
                block = self._blocks[region, kind] = await self._take(region, kind)
            block.left -= 1

    async def _take(self, region: str, kind: Kind) -> _Block:
        limit = LIMITS[kind].times(self.times)
        async with self.engine.begin() as conn:
            taken = await politeness.take(conn, region, kind, limit, self.now())
        if not taken.granted:
            wait = self._turn(region, kind, limit.apart, _LONGEST_TURN)
            raise Throttled(f"Our share of {kind} in {region} is used up", "", wait)
        return _Block(taken.granted, self.now() + KEPT)

    def _turn(self, region: str, kind: Kind | None, apart: timedelta, most: timedelta) -> float:
        """Seconds until it is worth coming back: those who wait come one after the other.

        None is given a turn after ``most``: who comes before its turn would take another one.
        """
        now, key = self.now(), (region, kind)
        slot = max(self._slots.get(key, now), now) + apart
        self._slots[key] = min(slot, now + most)
        return (self._slots[key] - now).total_seconds() + random.random()  # noqa: S311 - no secret

    async def _circuit(self, region: str) -> Circuit:
        async with self._looking[region]:  # else each of a crowd would look
            known, until = self._circuits.get(region, (Circuit(), self.now()))
            if until > self.now():
                return known
            async with self.engine.connect() as conn:
                circuit = await politeness.circuit(conn, region)
            self._circuits[region] = (circuit, self.now() + _LOOK_AGAIN)
            return circuit

    async def _may_probe(self, region: str) -> bool:
        async with self.engine.begin() as conn:
            return await politeness.probe(conn, region, self.now())

    async def _refused(self, region: str, fault: CloudError, *, probes: bool) -> None:
        """Only what says that the region is ill counts; a clear answer shows that it is not."""
        if type(fault) not in (CloudError, Throttled):
            await self._answered(region)
            return
        async with self.engine.begin() as conn:
            jitter = random.random()  # noqa: S311 - no secret
            circuit = await politeness.failed(conn, region, self.now(), jitter, probed=probes)
        self._circuits[region] = (circuit, self.now() + _LOOK_AGAIN)
        if circuit.failures == FAILURES:
            log.warning("cloud.region_fails", extra={"region": region, "cause": str(fault)})

    async def _answered(self, region: str) -> None:
        known, _ = self._circuits.get(region, (Circuit(), self.now()))
        if known.failures:
            async with self.engine.begin() as conn:
                await politeness.succeeded(conn, region)
            self._circuits.pop(region, None)  # of many answers at once another one may be first

    async def _learn(self, region: str, left: dict[str, int]) -> None:
        for kind in Kind:
            limit, found = LIMITS[kind].times(self.times), left.get(kind)
            if found is not None:
                AZURE_REMAINING.set(region, kind, value=found)
            if found is not None and found < _LOW * limit.size:
                async with self.engine.begin() as conn:
                    await politeness.answered(conn, region, kind, limit, found, self.now())

    @asynccontextmanager
    async def _in_turn(self, kinds: frozenset[Kind], claim: Claim | None) -> AsyncIterator[None]:
        if claim is None:
            yield
            return
        turn = self._turns.get(claim.row_id)
        if turn and turn.kinds == kinds and (left := self.until_turn(claim)):
            raise NoPlace("Its turn has not come", "", left.total_seconds())
        try:
            yield
        except NoPlace:  # keeps its turn itself
            raise
        except Throttled as refusal:
            now = self.now()
            until = now + timedelta(seconds=refusal.retry_after)
            self._keep(claim.row_id, _Turn(until, claim.hints, kinds), now)
            raise

    @asynccontextmanager
    async def _place(self, region: str, claim: Claim | None) -> AsyncIterator[None]:
        """Taken before anything is awaited: else a crowd would find it free."""
        if self._under_way[region] >= self.at_once:
            raise self._no_place(region, claim)
        self._under_way[region] += 1
        if claim is not None and (turn := self._turns.get(claim.row_id)) and turn.kinds is None:
            del self._turns[claim.row_id]
        try:
            yield
        finally:
            self._under_way[region] -= 1

    def _no_place(self, region: str, claim: Claim | None = None) -> NoPlace:
        """Each is told to come when one is likely to be free for it: a look in vain costs most.

        Who comes before its turn is told the same again, and takes nobody's after it.
        """
        now, before = self.now(), self._turns.get(claim.row_id) if claim else None
        if before is not None and before.kinds is None and before.until > now:
            wait = (before.until - now).total_seconds()
        else:
            apart = timedelta(seconds=self._usually(region) / self.at_once)
            wait = _SHORTEST_WAIT + self._turn(region, None, apart, _LONGEST_WAIT)
        if claim is not None:
            self._keep(claim.row_id, _Turn(now + timedelta(seconds=wait), claim.hints), now)
        return NoPlace(f"{self.at_once} calls to {region} are under way", "", wait)

    def _keep(self, row_id: str, turn: _Turn, now: datetime) -> None:
        """A row whose turn has long come was taken by another replica, or is over."""
        self._turns[row_id] = turn
        while self._turns and self._turns[first := next(iter(self._turns))].until <= now:
            del self._turns[first]

    def _note(self, region: str, began: datetime) -> None:
        """A place was held since then, its tokens and a busy database's time included."""
        took, usual = (self.now() - began).total_seconds(), self._usually(region)
        self._takes[region] = usual + _NEWEST * (took - usual)

    def _usually(self, region: str) -> float:
        """Seconds that a call holds its place there."""
        return self._takes.get(region, _CROWD_SECONDS)


@dataclass(frozen=True, kw_only=True)
class At:
    """The cloud's verbs, in one region."""

    polite: PoliteCloud
    region: str
    claim: Claim | None = None

    async def create(self, spec: ScaleSetSpec) -> None:
        """As CloudProvider.create; raises Throttled too, and LeaseLost while it got its tokens."""

        async def create() -> None:
            if self.claim is not None:
                async with self.polite.engine.connect() as conn:
                    await leases.check(conn, self.claim)
            await self._cloud.create(spec)

        await self._ask("create", [Kind.CREATE], create)

    async def get(self, name: str) -> ScaleSet:
        """As CloudProvider.get."""
        return await self._ask("get", [Kind.GET, Kind.LIST], lambda: self._cloud.get(name))

    async def list_owned(self) -> list[ScaleSet]:
        """As CloudProvider.list_owned."""
        return await self._ask("list", [Kind.LIST], self._cloud.list_owned)

    async def list_tagged(self) -> list[Resource]:
        """As CloudProvider.list_tagged; it counts against no limit of scale sets."""
        return await self.polite.ask(
            _EVERYTHING, [], self._cloud.list_tagged, operation="list_tagged"
        )

    async def refill(self, name: str, instance_count: int, useless: Collection[str] = ()) -> None:
        """As CloudProvider.refill."""
        kinds = [Kind.GET, Kind.LIST, Kind.UPDATE]
        await self._ask("refill", kinds, lambda: self._cloud.refill(name, instance_count, useless))

    async def delete(self, name: str) -> None:
        """As CloudProvider.delete."""
        await self._ask("delete", [Kind.DELETE], lambda: self._cloud.delete(name))

    async def serial_log(self, name: str, instance_id: str) -> bytes:
        """As CloudProvider.serial_log; rare, so it needs no token, and no turn of a row."""
        call = partial(self._cloud.serial_log, name, instance_id)
        return await self.polite.ask(self.region, [], call, operation="serial_log")

    async def spot_cores(self, region: str) -> SpotCores:
        """As CloudProvider.spot_cores; rare, so it needs no token."""
        return await self.polite.ask(
            region, [], lambda: self._cloud.spot_cores(region), operation="spot_cores"
        )

    async def close(self) -> None:
        """Nothing of its own."""

    async def _ask(
        self, operation: str, kinds: Collection[Kind], call: Callable[[], Awaitable[T]]
    ) -> T:
        return await self.polite.ask(self.region, kinds, call, self.claim, operation=operation)

    @property
    def _cloud(self) -> CloudProvider:
        cloud = self.polite.cloud
        return cloud if self.region == ALL else engines.at(cloud, self.region)
