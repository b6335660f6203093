"""Taking HEAD: of two workers that race for it, one gets the number and none takes it away."""

import asyncio
from dataclasses import dataclass, field

import pytest

from service.operations.attempts import heads
from service.storage.fake import MemoryStore
from service.storage.store import SMALL_BYTES, PreconditionFailed
from tests.integration.db.rows import checkpoint
from trainer.contract import HEAD, Head

WORKERS = 6


@dataclass
class RacingStore(MemoryStore):
    """Nobody goes on from a read before ``readers`` have read."""

    readers: asyncio.Barrier = field(default_factory=lambda: asyncio.Barrier(1))

    async def read(
        self, container: str, name: str, *, most: int = SMALL_BYTES
    ) -> tuple[bytes, str]:
        content = await super().read(container, name, most=most)
        await self.readers.wait()
        return content


async def _store(head: Head, readers: int = 1) -> RacingStore:
    store = RacingStore(readers=asyncio.Barrier(readers))
    await store.create_container("job")
    await store.write("job", HEAD, head.to_json().encode())
    return store


async def _head(store: RacingStore) -> Head:
    data, _ = await MemoryStore.read(store, "job", HEAD)
    return Head.from_json(data)


async def test_one_of_the_workers_that_read_the_same_head_takes_the_number() -> None:
    store = await _store(Head(generation=4, checkpoints=(checkpoint(7, 4),)), readers=WORKERS)

    race = [heads.fence(store, "job", 4) for _ in range(WORKERS)]
    results = await asyncio.gather(*race, return_exceptions=True)

    written = [a for a in results if isinstance(a, Head)]
    assert [h.generation for h in written] == [5]
    assert sum(isinstance(a, PreconditionFailed) for a in results) == WORKERS - 1
    assert (await _head(store)).generation == 5


async def test_a_worker_that_comes_after_a_killed_one_takes_the_same_number() -> None:
    store = await _store(Head(generation=4))

    first = await heads.fence(store, "job", 4)
    second = await heads.fence(store, "job", 4)

    assert first == second == await _head(store)


@pytest.mark.parametrize("after", [0, 3])
async def test_a_worker_that_looked_too_long_ago_is_refused(after: int) -> None:
    store = await _store(Head(generation=5))

    with pytest.raises(PreconditionFailed, match="beyond"):
        await heads.fence(store, "job", after)

    assert (await _head(store)).generation == 5


@pytest.mark.parametrize(("first", "is_taken"), [("", True), ("other", False)])
async def test_a_head_that_names_a_checkpoint_by_another_hash_than_at_first_is_not_taken(
    first: str, is_taken: bool
) -> None:
    entry = checkpoint(10)
    store = await _store(Head(generation=4, checkpoints=(entry,)))

    taking = heads.fence(store, "job", 4, anchors={entry.path: first, "checkpoints/other": "x"})
    (outcome,) = await asyncio.gather(taking, return_exceptions=True)

    assert isinstance(outcome, Head if is_taken else heads.HeadRewritten)
    assert (await _head(store)).generation == 4 + is_taken


@pytest.mark.parametrize("after", [3, 4, 5])
async def test_only_a_head_that_is_ahead_is_asked_whether_its_generation_is_forgotten(
    after: int,
) -> None:
    store, observed = await _store(Head(generation=4)), list[Head]()

    async def forgotten(head: Head) -> bool:
        observed.append(head)
        return True

    fenced = await heads.fence(store, "job", after, forgotten=forgotten)

    assert observed == ([Head(generation=4)] if after < 4 else [])
    assert fenced.generation == max(after, 4) + 1
    assert await _head(store) == fenced


async def test_a_head_ahead_of_a_complete_database_is_refused() -> None:
    store = await _store(Head(generation=5))

    async def forgotten(_: Head) -> bool:
        return False

    with pytest.raises(PreconditionFailed, match="beyond"):
        await heads.fence(store, "job", 3, forgotten=forgotten)
    assert (await heads.fence(store, "job", 4, forgotten=forgotten)).generation == 5


async def test_a_number_that_is_taken_again_loses_no_commit() -> None:
    head = Head(generation=5)
    store = await _store(head)
    committed = head.with_checkpoint(checkpoint(8, 5))

    async def forgotten(_: Head) -> bool:
        await store.write("job", HEAD, committed.to_json().encode())
        return False

    with pytest.raises(PreconditionFailed):
        await heads.fence(store, "job", 4, forgotten=forgotten)
    assert await _head(store) == committed


@pytest.mark.parametrize("damage", [b"", b"{}", b"not json"])
async def test_an_invalid_head_is_not_read_as_an_empty_one(damage: bytes) -> None:
    store = await _store(Head(generation=4))
    await store.write("job", HEAD, damage)

    with pytest.raises(heads.HeadUnreadable, match="restore HEAD"):
        await heads.fence(store, "job", 4)


async def test_a_head_that_is_gone_is_never_made_anew() -> None:
    store = RacingStore()
    await store.create_container("job")

    with pytest.raises(heads.HeadUnreadable, match="is gone"):
        await heads.fence(store, "job", 4)
    assert await store.list_blobs("job") == []
