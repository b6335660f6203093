"""What the contract suites run against."""

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
from tests.contract.clouds import World, azure_world, fake_world
from tests.contract.signed_in import sign_in
from tests.emulator_process import Emulator
from tests.price_list import PriceList, Reader, serving


@pytest.fixture(scope="session")
def emulator(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Emulator]:
    """A running Azure emulator; tests keep apart by names and owners."""
    with emulated.server(tmp_path_factory.mktemp("emulator")) as running:
        yield running


@pytest.fixture
async def price_list() -> AsyncIterator[PriceList]:
    """A price list of prepared pages."""
    async with serving() as made:
        yield made


@pytest.fixture
async def reader(price_list: PriceList, clock: Clock) -> AsyncIterator[Reader]:
    """The service's reader of it."""
    made = Reader(price_list.url, clock)
    yield made
    for prices in made.opened:
        await prices.close()


@pytest.fixture(params=["fake", "azure"])
async def world(request: pytest.FixtureRequest, clock: Clock) -> AsyncIterator[World]:
    """A cloud of either kind."""
    fake = request.param == "fake"
    build = fake_world(clock) if fake else azure_world(request.getfixturevalue("emulator"))
    async for made in build:
        yield made
        await made.clear()
        await made.cloud.close()
        await made.neighbour.close()


@pytest.fixture(scope="session")
def keyless(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Azurite]:
    """A Blob server whose accounts are opened by tokens and by no known key."""
    with blob_emulator.keyless(tmp_path_factory.mktemp("keyless")) as running:
        yield running


@pytest.fixture(params=["memory", "azurite", "entra"])
async def store(request: pytest.FixtureRequest) -> AsyncIterator[BlobStore]:
    """Both adapters of the seam, the second with an account key and with a sign-in."""
    made: BlobStore = MemoryStore()
    if request.param == "azurite":
        made = AzureBlobStore(request.getfixturevalue("azurite").connection_string)
    if request.param == "entra":
        server, azure = map(request.getfixturevalue, ("keyless", "emulator"))
        made = AzureBlobStore(server.url, sign_in=sign_in(azure, server))
    yield made
    await made.close()


@pytest.fixture
async def near(store: BlobStore, request: pytest.FixtureRequest) -> AsyncIterator[BlobStore]:
    """Another account of the same kind."""
    made: BlobStore = MemoryStore()
    if isinstance(store, AzureBlobStore) and store.has_access_policies:
        made = AzureBlobStore(request.getfixturevalue("azurite").near_connection_string)
    elif isinstance(store, AzureBlobStore):
        server, azure = map(request.getfixturevalue, ("keyless", "emulator"))
        made = AzureBlobStore(server.near_url, sign_in=sign_in(azure, server))
    yield made
    await made.close()


@pytest.fixture
async def container(store: BlobStore) -> str:
    """Name of a container of the test's own."""
    name = f"job-{uuid4().hex}"
    await store.create_container(name)
    return name
