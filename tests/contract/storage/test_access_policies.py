"""Contract of access policies in BlobStore; only Azurite shows that they are enforced."""

import time
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta

import pytest

from service.storage.azure import AzureBlobStore
from service.storage.fake import MemoryStore
from service.storage.store import POLICIES, BlobNotFound, BlobStore


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
