"""The emulator's own calls: a slip of the pen is told, and not taken for something else."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.clock import Clock
from tests.emulated.inside import SET, Inside, emulator_inside
from tests.emulated.process import scale_set


@pytest.fixture
async def inside(tmp_path: Path) -> AsyncIterator[Inside]:
    async with emulator_inside(tmp_path, Clock()) as made:
        await made.make_group()
        await made.arm.put(SET, json=scale_set(2))
        await made.pass_time(10)
        yield made


async def test_an_eviction_of_a_vm_by_its_name(inside: Inside) -> None:
    rows = (await inside.metadata.get("/_emulator/virtualMachines")).json()["value"]
    order = {"vm": rows[0]["name"], "notice": False}

    (await inside.metadata.post("/_emulator/evict", json=order)).raise_for_status()
    await inside.pass_time(10)

    left = (await inside.metadata.get("/_emulator/virtualMachines")).json()["value"]
    assert [row["name"] for row in left] == [rows[1]["name"]]
