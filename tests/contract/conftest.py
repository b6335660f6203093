"""What the contract suites run against."""

from collections.abc import Iterator

import pytest

from tests.contract import emulated
from tests.emulator_process import Emulator


@pytest.fixture(scope="session")
def emulator(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Emulator]:
    """A running Azure emulator; tests keep apart by names and owners."""
    with emulated.server(tmp_path_factory.mktemp("emulator")) as running:
        yield running
