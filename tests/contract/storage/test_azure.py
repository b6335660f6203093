"""Behaviour of the Azure blob store only: real SAS URLs, flat memory, append blobs, outages."""

import time
import tracemalloc
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from uuid import uuid4

import httpx
import pytest
from azure.storage.blob import BlobServiceClient

from service.storage.azure import BLOCK_BYTES, AzureBlobStore
from service.storage.store import PreconditionFailed, StorageError
from tests.azurite import Azurite

BLOCK_BLOB = {"x-ms-blob-type": "BlockBlob"}


@pytest.fixture
async def store(azurite: Azurite) -> AsyncIterator[AzureBlobStore]:
    blob_store = AzureBlobStore(azurite.connection_string)
    yield blob_store
    await blob_store.close()


@pytest.fixture
async def container(store: AzureBlobStore) -> str:
    name = f"job-{uuid4().hex}"
    await store.create_container(name)
    return name


@pytest.fixture
async def http() -> AsyncIterator[httpx.AsyncClient]:
    async with httpx.AsyncClient() as client:
        yield client


def soon() -> datetime:
    """Return an expiry one hour from now in real time, which Azurite uses."""
    return datetime.fromtimestamp(time.time(), UTC) + timedelta(hours=1)


async def test_a_url_of_a_policy_opens_the_container_until_the_policy_is_deleted(
    store: AzureBlobStore, container: str, http: httpx.AsyncClient
) -> None:
    names = ("attempt-1", "attempt-2")
    first, second = (_below(store.policy_url(container, name), "HEAD") for name in names)
    before = await http.put(first, content=b"0", headers=BLOCK_BLOB)
    policies = dict.fromkeys(names, soon())
    await store.set_access_policies(container, policies, permissions="racwdl")
    written = await http.put(first, content=b"1", headers=BLOCK_BLOB)
    del policies["attempt-1"]
    await store.set_access_policies(container, policies, permissions="racwdl")
    after = await http.put(first, content=b"2", headers=BLOCK_BLOB)

    assert [a.status_code for a in (before, written, after)] == [403, 201, 403]
    assert (await http.get(first)).status_code == 403
    assert (await http.get(second)).content == b"1"
    listed = await http.get(
        f"{store.policy_url(container, 'attempt-2')}&restype=container&comp=list"
    )
    assert "<Name>HEAD</Name>" in listed.text


async def test_a_url_allows_its_letters_its_blob_and_its_time_alone(
    store: AzureBlobStore, container: str, http: httpx.AsyncClient
) -> None:
    other_container, name = f"job-{uuid4().hex}", "data/train 1.jsonl"
    await store.create_container(other_container)
    for target in (container, other_container):
        await store.write(target, name, b"1")
    await store.write(container, "data/other", b"1")
    url = await store.sas_url(container, permissions="r", expires_at=soon())
    of_blob, expired = [
        await store.sas_url(
            container, name, permissions="r", expires_at=soon() - timedelta(hours=h)
        )
        for h in (0, 2)
    ]
    blob = _below(url, "data/train%201.jsonl")
    refused = [
        await http.put(blob, content=b"2", headers=BLOCK_BLOB),
        await http.delete(blob),
        await http.get(f"{url}&restype=container&comp=list"),
        await http.get(blob.replace(container, other_container)),
        await http.get(of_blob.replace("train%201.jsonl", "other")),
        await http.get(expired),
    ]

    assert (await http.get(blob)).content == (await http.get(of_blob)).content == b"1"
    assert [answer.status_code for answer in refused] == [403] * 6
    assert (await store.read(container, name))[0] == b"1"


async def test_without_an_account_key_none_can_be_signed(azurite: Azurite) -> None:
    fields = azurite.connection_string.split(";")
    keyless = ";".join(f for f in fields if not f.startswith("AccountKey="))
    store = AzureBlobStore(keyless)
    with pytest.raises(StorageError, match="AccountKey"):
        await store.sas_url("job", permissions="r", expires_at=soon())
    await store.close()


async def test_an_upload_takes_no_more_memory_the_larger_it_is(
    store: AzureBlobStore, container: str
) -> None:
    piece = b"x" * (1024 * 1024)

    async def chunks() -> AsyncIterator[bytes]:
        for _ in range(96):
            yield piece

    tracemalloc.start()
    blob = await store.upload(container, "weights", chunks())
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    assert blob.size == 96 * len(piece)
    assert peak < 6 * BLOCK_BYTES


async def test_a_log_that_grows_while_it_is_read_is_read_to_its_end(
    store: AzureBlobStore, container: str, azurite: Azurite
) -> None:
    with BlobServiceClient.from_connection_string(azurite.connection_string) as service:
        log = service.get_blob_client(container, "logs/rank-0")
        log.create_append_blob()
        for _ in range(3):
            log.append_block(b"x" * (BLOCK_BYTES // 2))
        size = 0
        async for chunk in store.stream(container, "logs/rank-0"):
            if size == 0:
                log.append_block(b"the last line\n")
            size += len(chunk)

    assert size == 3 * (BLOCK_BYTES // 2) + len(b"the last line\n")


async def test_a_blob_that_is_replaced_while_it_is_read_is_never_mixed(
    store: AzureBlobStore, container: str
) -> None:
    async def content(letter: bytes) -> AsyncIterator[bytes]:
        for _ in range(2):
            yield letter * BLOCK_BYTES

    await store.upload(container, "weights", content(b"a"))
    stream = store.stream(container, "weights")
    await anext(stream)
    await store.upload(container, "weights", content(b"b"))

    with pytest.raises(PreconditionFailed):
        await anext(stream)


async def test_an_account_that_does_not_answer_is_a_storage_error() -> None:
    store = AzureBlobStore(
        "DefaultEndpointsProtocol=http;AccountName=a;AccountKey=a2V5;"
        "BlobEndpoint=http://127.0.0.1:9/a;",
        retries=0,
    )
    with pytest.raises(StorageError, match="cannot be reached"):
        await store.read("job", "HEAD")
    await store.close()


def _below(container_url: str, name: str) -> str:
    path, query = container_url.split("?", 1)
    return f"{path}/{name}?{query}"
