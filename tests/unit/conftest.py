"""The emulator in this process, open to everybody or guarded."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.clock import Clock
from tests.emulated.inside import Inside, emulator_inside
from tests.unit.emulator.access.access_world import Guarded, guarded


@pytest.fixture
async def inside(tmp_path: Path) -> AsyncIterator[Inside]:
    """Yield an emulator with a resource group."""
    async with emulator_inside(tmp_path, Clock()) as emulator:
        yield emulator


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[Guarded]:
    """Yield an emulator that enforces access."""
    async with guarded(tmp_path) as guarded_world:
        yield guarded_world
