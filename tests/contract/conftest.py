"""What the contract suites run against: Azurite and the Azure emulator, once per process."""

from collections.abc import Iterator

import pytest

from tests import azurite
from tests.contract import emulated
from tests.contract.emulated import Emulator


@pytest.fixture(scope="session")
def account() -> Iterator[str]:
    """Connection string of a storage account in Azurite."""
    with azurite.server() as running:
        yield running.connection_string


@pytest.fixture(scope="session")
def emulator() -> Iterator[Emulator]:
    """A running emulator."""
    with emulated.server() as running:
        yield running
