"""Fixtures of the contract suites: each seam's real adapter and its fake."""

from collections.abc import AsyncIterator, Iterator
from uuid import uuid4

import pytest

from service.storage.azure import AzureBlobStore
from service.storage.fake import MemoryStore
from service.storage.store import BlobStore
from tests import azurite as blob_emulator
from tests.azurite import Azurite
from tests.clock import Clock
from tests.contract import emulated
from tests.contract.cloud.clouds import World, azure_world, fake_world
from tests.contract.emulated import blob_sign_in
from tests.emulated.process import Emulator
from tests.price_list import PriceList, Reader, serving


@pytest.fixture(scope="session")
def emulator(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Emulator]:
    """Run an Azure emulator for the session; tests use distinct names and owners."""
    with emulated.server(tmp_path_factory.mktemp("emulator")) as running:
        yield running


@pytest.fixture
async def price_list() -> AsyncIterator[PriceList]:
    """Serve a price list of prepared pages."""
    async with serving() as server:
        yield server


@pytest.fixture
async def reader(price_list: PriceList, clock: Clock) -> AsyncIterator[Reader]:
    """Yield the service's reader of the price list."""
    price_reader = Reader(price_list.url, clock)
    yield price_reader
    for prices in price_reader.opened:
        await prices.close()


@pytest.fixture(params=["fake", "azure"])
async def world(request: pytest.FixtureRequest, clock: Clock) -> AsyncIterator[World]:
    """Yield the fake cloud, and then the real adapter with the emulator."""
    fake = request.param == "fake"
    build = fake_world(clock) if fake else azure_world(request.getfixturevalue("emulator"))
    async for cloud_world in build:
        yield cloud_world
        await cloud_world.clear()
        await cloud_world.cloud.close()
        await cloud_world.neighbour.close()


@pytest.fixture(scope="session")
def keyless(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Azurite]:
    """Run a Blob server whose accounts accept tokens only."""
    with blob_emulator.keyless(tmp_path_factory.mktemp("keyless")) as running:
        yield running


@pytest.fixture(params=["memory", "azurite", "entra"])
async def store(request: pytest.FixtureRequest) -> AsyncIterator[BlobStore]:
    """Yield the blob store in memory, with an account key, and with a sign-in."""
    blob_store: BlobStore = MemoryStore()
    if request.param == "azurite":
        blob_store = AzureBlobStore(request.getfixturevalue("azurite").connection_string)
    if request.param == "entra":
        server, azure = map(request.getfixturevalue, ("keyless", "emulator"))
        blob_store = AzureBlobStore(server.url, sign_in=blob_sign_in(azure, server))
    yield blob_store
    await blob_store.close()


@pytest.fixture
async def near(store: BlobStore, request: pytest.FixtureRequest) -> AsyncIterator[BlobStore]:
    """Yield a second account of the same kind."""
    blob_store: BlobStore = MemoryStore()
    if isinstance(store, AzureBlobStore) and store.has_access_policies:
        blob_store = AzureBlobStore(request.getfixturevalue("azurite").near_connection_string)
    elif isinstance(store, AzureBlobStore):
        server, azure = map(request.getfixturevalue, ("keyless", "emulator"))
        blob_store = AzureBlobStore(server.near_url, sign_in=blob_sign_in(azure, server))
    yield blob_store
    await blob_store.close()


@pytest.fixture
async def container(store: BlobStore) -> str:
    """Create a container with a unique name and return the name."""
    name = f"job-{uuid4().hex}"
    await store.create_container(name)
    return name
