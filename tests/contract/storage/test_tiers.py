"""Contract of access tiers in BlobStore: the fake, and the Azure adapter with Azurite."""

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


async def test_a_new_blob_is_hot_and_is_listed_with_its_size(
    store: BlobStore, container: str
) -> None:
    await store.write(container, "models/a", b"12345")
    await store.write(container, "other", b"1")

    (blob,) = await store.list_stored(container, "models/")

    assert (blob.name, blob.size, blob.tier, blob.movable) == ("models/a", 5, AccessTier.HOT, True)
    assert folder_presence([blob]) is Presence.ONLINE


@pytest.mark.parametrize("tier", [AccessTier.COOL, AccessTier.COLD])
async def test_a_blob_in_a_cooler_tier_is_the_same_blob(
    store: BlobStore, container: str, tier: AccessTier
) -> None:
    etag = await store.write(container, "a", b"1")
    await store.set_tier(container, "a", tier)
    await store.set_tier(container, "a", tier)  # again: no harm

    assert [b.tier for b in await store.list_stored(container)] == [tier]
    assert await store.read(container, "a") == (b"1", etag)


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


@pytest.mark.parametrize("priority", list(ArchivePriority))
async def test_what_comes_back_from_the_archive_is_the_same_blob(
    store: BlobStore, container: str, priority: ArchivePriority
) -> None:
    etag = await store.write(container, "a", b"1")
    await store.set_tier(container, "a", AccessTier.ARCHIVE)
    await store.set_tier(container, "a", AccessTier.HOT, priority)

    assert [b.tier for b in await store.list_stored(container)] == [AccessTier.HOT]
    assert await store.read(container, "a") == (b"1", etag)


async def test_a_blob_that_is_gone_has_no_tier(store: BlobStore, container: str) -> None:
    with pytest.raises(BlobNotFound):
        await store.set_tier(container, "a", AccessTier.COOL)
    assert await store.list_stored("job-that-never-was") == []


async def test_all_that_is_billed_can_be_listed(store: BlobStore, container: str) -> None:
    await store.write(container, "a", b"123")

    assert [(b.name, b.size) for b in await store.list_stored(container, everything=True)] == [
        ("a", 3)
    ]


@pytest.fixture(params=["memory", "azurite"])
async def store(request: pytest.FixtureRequest) -> AsyncIterator[BlobStore]:
    """Yield the stores with access policies."""
    made: BlobStore = MemoryStore()
    if request.param == "azurite":
        made = AzureBlobStore(request.getfixturevalue("azurite").connection_string)
    yield made
    await made.close()


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
