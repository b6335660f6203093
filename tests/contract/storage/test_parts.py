"""Contract of uploads in parts to BlobStore, to any replica and in any order."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from service.storage.azure import BLOCK_BYTES
from service.storage.store import BlobNotFound, BlobStore, PreconditionFailed, StagedPart


async def chunks(*pieces: bytes) -> AsyncIterator[bytes]:
    for piece in pieces:
        yield piece


async def content(store: BlobStore, container: str, name: str) -> bytes:
    return b"".join([chunk async for chunk in store.stream(container, name)])


async def test_parts_that_came_at_once_make_the_blob_in_the_order_of_the_commit(
    store: BlobStore, container: str
) -> None:
    data = {"part-1": b"x" * (BLOCK_BYTES + 5), "part-2": b"yy", "part-3": b"z"}
    staged = await asyncio.gather(
        *(store.stage(container, "b", name, chunks(*piece)) for name, piece in _pieces(data))
    )
    one, two, _ = staged

    assert await store.list_blobs(container) == []
    etag = await store.commit(container, "b", [two, one])
    assert await content(store, container, "b") == data["part-2"] + data["part-1"]
    assert (await store.properties(container, "b")).etag == etag


def _pieces(data: dict[str, bytes]) -> list[tuple[str, tuple[bytes, bytes]]]:
    return [(name, (piece[:1], piece[1:])) for name, piece in data.items()]


async def test_a_commit_is_repeated_only_over_the_blob_that_was_seen(
    store: BlobStore, container: str
) -> None:
    one = await store.stage(container, "b", "part-1", chunks(b"1"))
    two = await store.stage(container, "b", "part-2", chunks(b"2"))
    first = await store.commit(container, "b", [one, two])
    three = await store.stage(container, "b", "part-3", chunks(b"3"))

    with pytest.raises(PreconditionFailed):
        await store.commit(container, "b", [two])
    second = await store.commit(container, "b", [three, one], if_match=first)
    with pytest.raises(PreconditionFailed):
        await store.commit(container, "b", [one], if_match=first)
    assert second != first
    assert await content(store, container, "b") == b"31"


async def test_a_part_that_was_not_named_is_dropped(store: BlobStore, container: str) -> None:
    one = await store.stage(container, "b", "part-1", chunks(b"1"))
    two = await store.stage(container, "b", "part-2", chunks(b"2"))
    etag = await store.commit(container, "b", [one])

    with pytest.raises(BlobNotFound):
        await store.commit(container, "b", [one, two], if_match=etag)
    with pytest.raises(BlobNotFound):
        await store.commit(container, "other", [StagedPart(name="part-1", blocks=1)])


async def test_nothing_is_left_of_a_blob_that_was_discarded(
    store: BlobStore, container: str
) -> None:
    one = await store.stage(container, "b", "part-1", chunks(b"1"))
    await store.commit(container, "b", [one])
    two = await store.stage(container, "b", "part-2", chunks(b"2"))
    for _ in range(2):
        await store.discard(container, "b")
        await store.discard("no-such-container", "b")

    for part in (one, two):
        with pytest.raises(BlobNotFound):
            await store.commit(container, "b", [part])
    assert await store.list_blobs(container) == []


async def test_a_part_that_breaks_off_is_not_in_the_way_of_the_others(
    store: BlobStore, container: str
) -> None:
    async def breaking_off() -> AsyncIterator[bytes]:
        yield b"x" * BLOCK_BYTES
        raise ConnectionResetError

    with pytest.raises(ConnectionResetError):
        await store.stage(container, "b", "part-1", breaking_off())
    two = await store.stage(container, "b", "part-2", chunks(b"2"))

    await store.commit(container, "b", [two])
    assert await content(store, container, "b") == b"2"
