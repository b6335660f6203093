"""What the contract suites run against."""

from collections.abc import AsyncIterator, Iterator
from uuid import uuid4

import pytest

from service.storage.azure import AzureBlobStore
from service.storage.fake import MemoryStore
from service.storage.store import BlobStore
from tests.clock import Clock
from tests.contract import emulated
from tests.contract.clouds import World, azure_world, fake_world
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


@pytest.fixture(params=["memory", "azurite"])
async def store(request: pytest.FixtureRequest) -> AsyncIterator[BlobStore]:
    """Both adapters of the seam, one after the other."""
    made: BlobStore = MemoryStore()
    if request.param == "azurite":
        made = AzureBlobStore(request.getfixturevalue("azurite").connection_string)
    yield made
    await made.close()


@pytest.fixture
async def container(store: BlobStore) -> str:
    """Name of a container of the test's own."""
    name = f"job-{uuid4().hex}"
    await store.create_container(name)
    return name
