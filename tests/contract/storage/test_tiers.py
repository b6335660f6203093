"""Contract of access tiers and access policies in BlobStore."""

import time
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta

import pytest

from service.domain.storage.access_tiers import (
    AccessTier,
    ArchivePriority,
    Presence,
    folder_presence,
)
from service.storage.azure import AzureBlobStore
from service.storage.fake import MemoryStore
from service.storage.store import POLICIES, BlobArchived, BlobNotFound, BlobStore


async def test_what_is_archived_is_listed_and_cannot_be_read(
    store: BlobStore, container: str
) -> None:
    await store.write(container, "a", b"1")
    await store.set_tier(container, "a", AccessTier.ARCHIVE)

    assert folder_presence(await store.list_stored(container)) is Presence.ARCHIVED
    with pytest.raises(BlobArchived, match="bring it back"):
        await store.read(container, "a")
    with pytest.raises(BlobArchived):
        await anext(store.stream(container, "a"))
    assert (await store.properties(container, "a")).size == 1


async def test_a_blob_that_is_gone_has_no_tier(store: BlobStore, container: str) -> None:
    with pytest.raises(BlobNotFound):
        await store.set_tier(container, "a", AccessTier.COOL)
    assert await store.list_stored("job-that-never-was") == []


@pytest.fixture(params=["memory", "azurite"])
async def store(request: pytest.FixtureRequest) -> AsyncIterator[BlobStore]:
    """Yield the stores with access policies."""
    blob_store: BlobStore = MemoryStore()
    if request.param == "azurite":
        blob_store = AzureBlobStore(request.getfixturevalue("azurite").connection_string)
    yield blob_store
    await blob_store.close()


def soon() -> datetime:
    """Return an expiry one hour from now in real time, which Azurite uses."""
    return datetime.fromtimestamp(time.time(), UTC) + timedelta(hours=1)


async def test_a_url_names_the_policy_that_it_hangs_on_and_nothing_more(
    store: BlobStore, container: str
) -> None:
    url = store.policy_url(container, "attempt-1")

    assert f"/{container}?" in url
    assert "si=attempt-1" in url
    assert "se=" not in url
    assert "sp=" not in url


async def test_a_container_has_as_many_as_azure_allows_and_no_more(
    store: BlobStore, container: str
) -> None:
    many = {f"attempt-{n}": soon() for n in range(POLICIES + 1)}
    with pytest.raises(ValueError, match=str(POLICIES)):
        await store.set_access_policies(container, many, permissions="r")
    many.popitem()

    await store.set_access_policies(container, many, permissions="r")
    await store.set_access_policies(container, {}, permissions="r")


async def test_a_container_that_is_not_there_has_none(store: BlobStore) -> None:
    with pytest.raises(BlobNotFound):
        await store.set_access_policies("no-such-container", {}, permissions="r")


async def test_a_blob_is_the_same_in_each_tier(store: BlobStore, container: str) -> None:
    etag = await store.write(container, "models/a", b"12345")
    await store.write(container, "other", b"1")
    (new,) = await store.list_stored(container, "models/")
    assert (new.name, new.size, new.tier, new.movable) == ("models/a", 5, AccessTier.HOT, True)
    assert folder_presence([new]) is Presence.ONLINE
    blobs = await store.list_stored(container, everything=True)
    assert [(b.name, b.size) for b in blobs] == [("models/a", 5), ("other", 1)]

    back = [(AccessTier.HOT, priority) for priority in ArchivePriority]
    for tier, priority in ((AccessTier.COOL, None), (AccessTier.COLD, None), *back):
        if priority:
            await store.set_tier(container, "models/a", AccessTier.ARCHIVE)
        for _ in range(1 if priority else 2):  # again: no harm
            await store.set_tier(container, "models/a", tier, *([priority] if priority else []))
        assert [b.tier for b in await store.list_stored(container, "models/")] == [tier]
        assert await store.read(container, "models/a") == (b"12345", etag)
