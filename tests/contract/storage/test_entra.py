"""Blob Storage without account keys: user delegation SAS, with tokens of the emulator."""

from collections.abc import AsyncIterator
from datetime import timedelta
from urllib.parse import parse_qs, urlsplit
from uuid import uuid4

import httpx
import pytest

from service.storage.azure import AzureBlobStore
from service.storage.store import StorageError
from tests.azurite import Azurite
from tests.contract.emulated import blob_sign_in, wall
from tests.emulated.process import Emulator

BLOCK_BLOB = {"x-ms-blob-type": "BlockBlob"}
HOUR = timedelta(hours=1)


@pytest.fixture
async def store(keyless: Azurite, emulator: Emulator) -> AsyncIterator[AzureBlobStore]:
    blob_store = AzureBlobStore(keyless.url, sign_in=blob_sign_in(emulator, keyless))
    yield blob_store
    await blob_store.close()


@pytest.fixture
async def http(keyless: Azurite) -> AsyncIterator[httpx.AsyncClient]:
    async with httpx.AsyncClient(verify=keyless.trust) as client:
        yield client


async def test_a_url_allows_its_letters_its_blob_and_its_time_alone(
    store: AzureBlobStore, container: str, http: httpx.AsyncClient
) -> None:
    other_container = f"job-{uuid4().hex}"
    await store.create_container(other_container)
    for target in (container, other_container):
        await store.write(target, "weights", b"1")
    url = await store.sas_url(container, "weights", permissions="r", expires_at=wall() + HOUR)
    expired_url = await store.sas_url(
        container, "weights", permissions="r", expires_at=wall() - HOUR
    )

    container_url = await store.sas_url(container, permissions="racwdl", expires_at=wall() + HOUR)
    log = container_url.replace("?", "/logs/rank-0?", 1)

    assert (await http.put(log, content=b"hello", headers=BLOCK_BLOB)).status_code == 201
    listed = await http.get(f"{container_url}&restype=container&comp=list")
    assert "<Name>logs/rank-0</Name>" in listed.text
    assert (await http.delete(log)).status_code == 202
    assert (await http.get(url)).content == b"1"
    assert (await http.put(url, content=b"2", headers=BLOCK_BLOB)).status_code == 403
    assert (await http.get(url.replace(container, other_container))).status_code == 403
    assert (await http.get(expired_url)).status_code == 403


async def test_the_key_names_its_times_and_outlives_the_url(
    store: AzureBlobStore, container: str
) -> None:
    url = await store.sas_url(container, permissions="r", expires_at=wall() + HOUR)
    params = {name: values[0] for name, values in parse_qs(urlsplit(url).query).items()}

    assert params["skt"] <= params["st"] < params["se"] < params["ske"]
    assert params["spr"] == "https"


async def test_an_account_without_a_known_key_has_no_access_policies(
    store: AzureBlobStore, container: str
) -> None:
    assert not store.has_access_policies
    with pytest.raises(StorageError, match="AccountKey"):
        store.policy_url(container, "attempt-1")


async def test_a_url_of_an_account_needs_a_sign_in() -> None:
    with pytest.raises(ValueError, match="sign-in"):
        AzureBlobStore("https://account.blob.core.windows.net")
