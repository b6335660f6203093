"""Random lives of HEAD: commits, fences, broken checkpoints, and a collector killed at any call.

The world is harsher than the code: generations commit many times while a node still loads, dead
ones go on writing blobs, and a collector goes on with what it read long before.
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from datetime import timedelta
from random import Random

import pytest

from service.db.storage.retention import RetentionTask
from service.reconciler.sweeps.retention import CLOCK_SKEW, GRACE, collect_garbage
from service.storage.fake import MemoryStore
from service.storage.store import SMALL_BYTES, PreconditionFailed
from tests.clock import Clock
from tests.nodes.scripted_node import committed
from trainer.contract import HEAD, MANIFEST, Committed, Head, Retention

JOB = "job"
LIVES = 200
EVENTS = 80


class Killed(BaseException):
    """The collector's process ends here."""


@dataclass
class Interrupted(MemoryStore):
    """Counts down the calls of who may be killed, and lets others act between any two of them."""

    calls_left: int | None = None
    meanwhile: Callable[[], Awaitable[None]] | None = None

    async def read(
        self, container: str, name: str, *, most: int = SMALL_BYTES
    ) -> tuple[bytes, str]:
        await self._call()
        return await super().read(container, name, most=most)

    async def delete(self, container: str, name: str) -> None:
        await self._call()
        await super().delete(container, name)

    async def _call(self) -> None:
        if self.calls_left is None:
            return
        self.calls_left -= 1
        calls_left, self.calls_left = self.calls_left, None
        if self.meanwhile is not None:
            await self.meanwhile()
        self.calls_left = calls_left
        if calls_left < 0:
            raise Killed


@dataclass
class Life:
    """One job: its container, the row of its newest generation, and what became of its folders."""

    rng: Random
    clock: Clock = field(default_factory=Clock)
    retention: Retention = field(init=False)
    store: Interrupted = field(init=False)
    number: int = 0
    opened: dict[int, tuple[object, str]] = field(default_factory=dict)  # when; what it loads
    step: int = 0
    folders: int = 0
    given_up: set[str] = field(default_factory=set)
    under_way: tuple[int, int, str] = (0, 0, "")  # generation, step and folder of a slow save
    freed: int = 0
    is_over: bool = False

    async def begin(self) -> None:
        every = self.rng.choice((0, 0, 3, 10))
        self.retention = Retention(newest=self.rng.randint(1, 4), milestone_every=every)
        self.store = Interrupted(now=self.clock)
        await self.store.create_container(JOB)
        await self.store.write(JOB, HEAD, Head(generation=0).to_json().encode())
        await self.fence()

    async def head(self) -> tuple[Head, str]:
        data, etag = await MemoryStore.read(self.store, JOB, HEAD)
        return Head.from_json(data), etag

    async def save(self) -> str:
        """Write a checkpoint folder of any generation, complete except for its manifest."""
        self.folders += 1
        path = f"checkpoints/step-{self.step:08d}-{self.folders:08x}"
        for rank in range(2):
            await self.store.write(JOB, f"{path}/rank-{rank:05d}.bin", b"bytes")
        return path

    async def commit(self) -> None:
        """Train on and commit a checkpoint, as rank 0's node of the live generation does."""
        head, etag = await self.head()
        if self.is_over or head.generation != self.number:
            return
        if self.under_way[0] != self.number:
            await self.begin_save()
        _, step, path = self.under_way
        self.under_way = (0, 0, "")
        await self.store.write(JOB, f"{path}/{MANIFEST}", b"manifest")
        loss = self.rng.choice((None, self.rng.random()))
        entry = replace(committed(step, self.number), path=path, valid_loss=loss)
        loaded = self.opened[self.number][1]
        new_head = head.with_checkpoint(entry, self.retention, loaded)
        await self.store.write(JOB, HEAD, new_head.to_json().encode(), if_match=etag)
        self.keeps_what_it_must(head, new_head, entry)
        if self.rng.random() < 0.5:  # else its node died before it could delete them
            for dropped in head.paths - new_head.paths:
                await self._drop(dropped)

    def keeps_what_it_must(self, before: Head, after: Head, entry: Committed) -> None:
        k = self.retention.newest
        every = [c.path for c in (*before.checkpoints, entry)]
        assert [c.path for c in after.checkpoints][-k:] == every[-k:]
        assert self.opened[self.number][1] in after.paths | {""}
        assert after.newest is not None
        assert after.newest.path == entry.path
        measured = [c.valid_loss for c in (*before.checkpoints, entry) if c.valid_loss is not None]
        assert not measured or after.best is not None
        assert after.best is None or after.best.valid_loss == min(measured)
        assert {c.path for c in before.checkpoints if c.milestone} <= after.paths

    async def fence(self) -> None:
        """Open the next generation, which may drop the newest checkpoint as broken."""
        if self.is_over:
            return
        self.clock.advance(seconds=self.rng.choice((1.0, 3600.0, 90_000.0)))
        head, etag = await self.head()
        broken = {head.newest.path} if head.newest and self.rng.random() < 0.2 else set()
        self.given_up |= broken
        self.number += 1
        new_head = head.fenced(self.number, broken)
        await self.store.write(JOB, HEAD, new_head.to_json().encode(), if_match=etag)
        loaded = new_head.newest.path if new_head.newest else ""
        self.opened[self.number] = (self.clock(), loaded)
        self.step = new_head.newest.step if new_head.newest else 0

    async def begin_save(self) -> None:
        """Write the live generation's files long before their commit; abandon a save under way."""
        if not self.is_over:
            self.step += self.rng.randint(1, 5)
            self.under_way = (self.number, self.step, await self.save())

    def due(self) -> RetentionTask | None:
        """Return the retention task that the database would return; None if none is due."""
        before = self.clock() - GRACE
        due_generations = [n for n, (at, _) in self.opened.items() if at < before]  # type: ignore[operator]
        if not due_generations and not self.is_over:
            return None
        number = max(due_generations, default=0)
        return RetentionTask(
            job_id=JOB,
            is_over=self.is_over,
            newest=self.number,
            generation=number,
            opened_at=self.opened[max(number, 1)][0],  # type: ignore[arg-type]
            loaded=self.opened[self.number][1],
        )

    async def collect_garbage(self, *, killed: bool) -> None:
        """While others act; ``killed``: between any two of its calls."""
        due = self.due()
        if due is None:
            return
        self.store.meanwhile = self.act if not self.is_over else None
        self.store.calls_left = self.rng.randint(0, 12) if killed else 10_000
        try:
            self.freed += (await collect_garbage(self.store, due, self.clock())).freed_bytes
        except (Killed, PreconditionFailed):
            pass
        finally:
            self.store.calls_left = self.store.meanwhile = None

    async def act(self) -> None:
        """Somebody else's move between two calls of the collector."""
        if self.rng.random() < 0.2:
            await self.rng.choice((self.commit, self.fence, self.begin_save))()

    async def check(self) -> None:
        head, _ = await self.head()
        names = [b.name for b in await self.store.list_blobs(JOB, "checkpoints/")]
        for path in head.paths | ({self.opened[self.number][1]} - {""}):
            assert f"{path}/{MANIFEST}" in names, f"{path} was deleted"
            assert f"{path}/rank-00001.bin" in names, f"{path} was torn"
        assert not head.paths & self.given_up

    async def _drop(self, path: str) -> None:
        for blob in await self.store.list_blobs(JOB, f"{path}/"):
            await self.store.delete(JOB, blob.name)


async def _live(seed: int) -> Life:
    life = Life(Random(seed))
    await life.begin()
    for _ in range(EVENTS):
        chance = life.rng.random()
        if chance < 0.45:
            await life.commit()
        elif chance < 0.6:
            await life.fence()
        elif chance < 0.75:
            await life.begin_save()
        else:
            await life.collect_garbage(killed=life.rng.random() < 0.7)
        life.clock.advance(seconds=life.rng.choice((1.0, 600.0, 30_000.0)))
        await life.check()
    return life


@pytest.mark.parametrize(
    "part", [pytest.param(n, marks=[pytest.mark.long] if n else []) for n in range(4)]
)
def test_whoever_dies_when_nothing_is_deleted_that_is_named_or_loaded(part: int) -> None:
    async def lives() -> int:
        return sum([(await _live(seed)).freed for seed in range(part, LIVES, 4)])

    assert asyncio.run(lives()) > 0


@pytest.mark.parametrize("seed", range(5))
def test_in_the_end_nothing_is_left_but_what_head_names(seed: int) -> None:
    async def ended() -> tuple[set[str], frozenset[str]]:
        life = await _live(seed)
        life.is_over = True
        life.clock.advance(seconds=(GRACE + timedelta(days=1)).total_seconds())
        await life.collect_garbage(killed=True)
        await life.check()
        await life.collect_garbage(killed=False)
        await life.check()
        names = [b.name for b in await life.store.list_blobs(JOB, "checkpoints/")]
        head, _ = await life.head()
        return {name.rpartition("/")[0] for name in names}, head.paths

    remaining, named = asyncio.run(ended())
    assert remaining == named


def test_a_save_under_way_is_never_taken_for_garbage_however_long_it_takes() -> None:
    async def slow() -> list[str]:
        life = Life(Random(1))
        await life.begin()
        await life.fence()
        life.clock.advance(seconds=2 * CLOCK_SKEW.total_seconds())
        path = await life.save()
        life.clock.advance(seconds=10 * GRACE.total_seconds())
        await life.collect_garbage(killed=False)
        return [b.name for b in await life.store.list_blobs(JOB, path)]

    assert len(asyncio.run(slow())) == 2
