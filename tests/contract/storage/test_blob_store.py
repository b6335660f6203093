"""Contract of BlobStore: the fake, and the Azure adapter with a real Azurite."""

import asyncio
import time
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from uuid import uuid4

import pytest

from service.storage.azure import BLOCK_BYTES
from service.storage.fake import MemoryStore
from service.storage.store import (
    Blob,
    BlobNotFound,
    BlobStore,
    BlobTooLarge,
    PreconditionFailed,
    StagedPart,
    StorageError,
)
from tests.waiting import until


async def chunks(*parts: bytes) -> AsyncIterator[bytes]:
    for part in parts:
        yield part


def soon() -> datetime:
    """Return an expiry one hour from now in real time, which Azurite uses."""
    return datetime.fromtimestamp(time.time(), UTC) + timedelta(hours=1)


async def collected(stream: AsyncIterator[bytes]) -> bytes:
    return b"".join([chunk async for chunk in stream])


async def test_what_was_written_is_read_with_its_etag(store: BlobStore, container: str) -> None:
    etag = await store.write(container, "a/HEAD", b"one")

    assert await store.read(container, "a/HEAD") == (b"one", etag)
    assert await store.properties(container, "a/HEAD") == Blob(name="a/HEAD", size=3, etag=etag)
    assert '"' not in etag


@pytest.mark.parametrize("most", [0, 3, 4])
async def test_a_blob_longer_than_its_reader_allows_is_not_read(
    store: BlobStore, container: str, most: int
) -> None:
    await store.write(container, "HEAD", b"fore"[:most])
    await store.write(container, "longer", b"longer"[: most + 1])

    assert (await store.read(container, "HEAD", most=most))[0] == b"fore"[:most]
    with pytest.raises(BlobTooLarge, match=f"longer than {most} bytes"):
        await store.read(container, "longer", most=most)


async def test_a_blob_that_was_written_again_is_not_streamed_as_the_one_that_was(
    store: BlobStore, container: str
) -> None:
    old_etag = await store.write(container, "a", b"same")
    new = await store.write(container, "a", b"same")

    assert await collected(store.stream(container, "a", if_match=new)) == b"same"
    with pytest.raises(PreconditionFailed):
        await collected(store.stream(container, "a", if_match=old_etag))


async def test_only_over_the_version_that_was_read(store: BlobStore, container: str) -> None:
    old_etag = await store.write(container, "HEAD", b"1")
    new_etag = await store.write(container, "HEAD", b"2", if_match=old_etag)

    with pytest.raises(PreconditionFailed):
        await store.write(container, "HEAD", b"3", if_match=old_etag)
    assert await store.read(container, "HEAD") == (b"2", new_etag)


async def test_exactly_one_of_many_writers_over_one_version_wins(
    store: BlobStore, container: str
) -> None:
    etag = await store.write(container, "HEAD", b"start")
    tries = [
        store.write(container, "HEAD", f"writer {i}".encode(), if_match=etag) for i in range(8)
    ]
    results = await asyncio.gather(*tries, return_exceptions=True)
    winners = [i for i, result in enumerate(results) if isinstance(result, str)]
    losers = [result for result in results if isinstance(result, PreconditionFailed)]
    (winner,) = winners

    assert len(losers) == 7
    assert await store.read(container, "HEAD") == (f"writer {winner}".encode(), results[winner])


async def test_a_stream_of_odd_pieces_comes_back_whole(store: BlobStore, container: str) -> None:
    parts = (b"x" * (BLOCK_BYTES - 7), b"", b"y" * (BLOCK_BYTES + 100), b"z" * 9)
    blob = await store.upload(container, "models/weights", chunks(*parts))

    assert blob.size == sum(len(part) for part in parts)
    assert blob == await store.properties(container, "models/weights")
    assert await collected(store.stream(container, "models/weights")) == b"".join(parts)


async def test_a_stream_may_start_anywhere(store: BlobStore, container: str) -> None:
    data = bytes(range(256)) * 40_000
    await store.upload(container, "log", chunks(data))

    assert await collected(store.stream(container, "log", offset=9_000_000)) == data[9_000_000:]
    assert await collected(store.stream(container, "log", offset=len(data))) == b""
    assert await collected(store.stream(container, "log", offset=len(data) + 5)) == b""


async def test_creating_one_twice_keeps_its_blobs(store: BlobStore, container: str) -> None:
    await store.write(container, "a", b"1")
    await store.create_container(container)

    assert [blob.name for blob in await store.list_blobs(container)] == ["a"]


async def test_blobs_are_listed_by_name_under_a_prefix(store: BlobStore, container: str) -> None:
    for name in ("b/2", "a/1", "b/10", "B/3"):
        await store.write(container, name, name.encode())
    blobs = await store.list_blobs(container, "b/")

    assert [(blob.name, blob.size) for blob in blobs] == [("b/10", 4), ("b/2", 3)]
    assert blobs[1] == await store.properties(container, "b/2")
    assert [b.name for b in await store.list_blobs(container)] == ["B/3", "a/1", "b/10", "b/2"]


@pytest.mark.parametrize("most", [0, 1, 2, 3])
async def test_no_more_blobs_are_listed_than_are_asked_for(
    store: BlobStore, container: str, most: int
) -> None:
    for name in ("b", "a", "c"):
        await store.write(container, name, b"")

    names = [blob.name for blob in await store.list_blobs(container, most=most)]
    assert names == ["a", "b", "c"][:most]
    assert len(await store.list_stored(container, most=most)) == most


async def test_a_list_says_when_each_blob_was_written(store: BlobStore, container: str) -> None:
    now = datetime.fromtimestamp(time.time(), UTC)
    if isinstance(store, MemoryStore):
        store.now = lambda: now
    await store.write(container, "a", b"one")
    (blob,) = await store.list_blobs(container)

    assert blob.modified_at is not None
    assert abs(blob.modified_at - now) < timedelta(minutes=1)
    assert (await store.properties(container, "a")).modified_at == blob.modified_at


async def test_names_may_hold_blanks_and_other_letters(store: BlobStore, container: str) -> None:
    name = "logs/été 100%+#?.log"
    await store.write(container, name, b"1")

    assert [blob.name for blob in await store.list_blobs(container, "logs/é")] == [name]


async def test_a_sas_url_names_the_blob_its_permissions_and_its_end(
    store: BlobStore, container: str
) -> None:
    expires_at = soon()
    of_blob = await store.sas_url(container, "a/b", permissions="r", expires_at=expires_at)
    of_container = await store.sas_url(container, permissions="rl", expires_at=expires_at)

    assert f"{container}/a/b?" in of_blob
    assert f"{container}?" in of_container
    assert "sp=r&" in of_blob.replace("%3A", ":") + "&"
    assert f"se={expires_at:%Y-%m-%dT%H:%M:%SZ}" in of_container.replace("%3A", ":")


async def _breaking_off() -> AsyncIterator[bytes]:
    for _ in range(3):
        yield b"x" * BLOCK_BYTES
    raise ConnectionResetError("the client went away")


async def test_containers_are_listed_by_the_beginning_of_their_names(store: BlobStore) -> None:
    mark = uuid4().hex
    for name in (f"base-{mark}-b", f"base-{mark}-a", f"job-{mark}"):
        await store.create_container(name)

    containers = await store.list_containers(f"base-{mark}")

    assert [c.name for c in containers] == [f"base-{mark}-a", f"base-{mark}-b"]
    assert all(c.modified_at.tzinfo for c in containers)


async def test_an_account_fetches_a_blob_from_another_one(
    store: BlobStore, near: BlobStore, container: str
) -> None:
    await store.write(container, "main-1/weights", b"0" * 100_000)
    await near.create_container(container)

    async def fetched() -> bool:
        return await near.copy(container, "main-1/weights", store, expires_at=soon())

    await until(fetched, bool)

    assert (await near.read(container, "main-1/weights"))[0] == b"0" * 100_000


async def content(store: BlobStore, container: str, name: str) -> bytes:
    return b"".join([chunk async for chunk in store.stream(container, name)])


async def test_parts_that_came_at_once_make_the_blob_in_the_order_of_the_commit(
    store: BlobStore, container: str
) -> None:
    data = {"part-1": b"x" * (BLOCK_BYTES + 5), "part-2": b"yy", "part-3": b"z"}
    staged = await asyncio.gather(
        *(store.stage(container, "b", name, chunks(*piece)) for name, piece in _pieces(data))
    )
    part_1, part_2, _ = staged

    assert await store.list_blobs(container) == []
    etag = await store.commit(container, "b", [part_2, part_1])
    assert await content(store, container, "b") == data["part-2"] + data["part-1"]
    assert (await store.properties(container, "b")).etag == etag


def _pieces(data: dict[str, bytes]) -> list[tuple[str, tuple[bytes, bytes]]]:
    return [(name, (piece[:1], piece[1:])) for name, piece in data.items()]


async def test_a_commit_is_repeated_only_over_the_blob_that_was_seen(
    store: BlobStore, container: str
) -> None:
    part_1 = await store.stage(container, "b", "part-1", chunks(b"1"))
    part_2 = await store.stage(container, "b", "part-2", chunks(b"2"))
    first_etag = await store.commit(container, "b", [part_1, part_2])
    part_3 = await store.stage(container, "b", "part-3", chunks(b"3"))

    with pytest.raises(PreconditionFailed):
        await store.commit(container, "b", [part_2])
    second_etag = await store.commit(container, "b", [part_3, part_1], if_match=first_etag)
    with pytest.raises(PreconditionFailed):
        await store.commit(container, "b", [part_1], if_match=first_etag)
    assert second_etag != first_etag
    assert await content(store, container, "b") == b"31"


async def test_a_part_that_was_not_named_is_dropped(store: BlobStore, container: str) -> None:
    part_1 = await store.stage(container, "b", "part-1", chunks(b"1"))
    part_2 = await store.stage(container, "b", "part-2", chunks(b"2"))
    etag = await store.commit(container, "b", [part_1])

    with pytest.raises(BlobNotFound):
        await store.commit(container, "b", [part_1, part_2], if_match=etag)
    with pytest.raises(BlobNotFound):
        await store.commit(container, "other", [StagedPart(name="part-1", blocks=1)])


async def test_nothing_is_left_of_a_blob_that_was_discarded(
    store: BlobStore, container: str
) -> None:
    part_1 = await store.stage(container, "b", "part-1", chunks(b"1"))
    await store.commit(container, "b", [part_1])
    part_2 = await store.stage(container, "b", "part-2", chunks(b"2"))
    for _ in range(2):
        await store.discard(container, "b")
        await store.discard("no-such-container", "b")

    for part in (part_1, part_2):
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


async def test_an_upload_that_breaks_off_leaves_the_old_blob_and_harms_no_later_one(
    store: BlobStore, container: str
) -> None:
    etag = await store.write(container, "file", b"old")
    for name in ("file", "new"):
        with pytest.raises(ConnectionResetError):
            await store.upload(container, name, _breaking_off())
    assert await store.read(container, "file") == (b"old", etag)
    assert [blob.name for blob in await store.list_blobs(container)] == ["file"]
    await store.upload(container, "file", chunks(b"second"))

    assert (await store.read(container, "file"))[0] == b"second"


async def test_a_copy_needs_a_blob_and_a_container_and_leaves_what_is_there(
    store: BlobStore, near: BlobStore, container: str
) -> None:
    await store.write(container, "weights", b"1")
    with pytest.raises(BlobNotFound):
        await near.copy(container, "weights", store, expires_at=soon())
    await near.create_container(container)
    with pytest.raises(StorageError):
        await near.copy(container, "missing", store, expires_at=soon())
    etag = await near.write(container, "weights", b"staged by hand")

    assert await near.copy(container, "weights", store, expires_at=soon())
    assert await near.read(container, "weights") == (b"staged by hand", etag)


async def test_what_is_missing_is_not_found_and_deleting_it_does_no_harm(
    store: BlobStore, container: str
) -> None:
    etag = await store.write(container, "a", b"", if_absent=True)
    with pytest.raises(PreconditionFailed):
        await store.write(container, "a", b"2", if_absent=True)
    assert await store.read(container, "a") == (b"", etag)
    assert await collected(store.stream(container, "a")) == b""
    await store.delete(container, "a")
    await store.delete(container, "a")
    with pytest.raises(PreconditionFailed):
        await store.write(container, "a", b"1", if_match="0x8DEADBEEF")
    for where in (container, "no-such-container"):
        for missing in (store.read, store.properties):
            with pytest.raises(BlobNotFound):
                await missing(where, "a")
        with pytest.raises(BlobNotFound):
            await collected(store.stream(where, "a"))
    with pytest.raises(BlobNotFound):
        await store.write("no-such-container", "a", b"")
    with pytest.raises(BlobNotFound):
        await store.upload("no-such-container", "a", chunks(b"data"))
    await store.write(container, "a", b"1")
    await store.delete_container(container)
    await store.delete_container(container)
    await store.delete(container, "a")
    assert await store.list_blobs(container) == []
