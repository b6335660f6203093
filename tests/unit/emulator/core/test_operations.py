"""Long operations as clients poll them."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.clock import Clock
from tests.emulated.inside import SET, Inside, emulator_inside
from tests.emulated.process import scale_set


@pytest.fixture
async def inside(tmp_path: Path) -> AsyncIterator[Inside]:
    async with emulator_inside(tmp_path, Clock(), create_seconds=60, delete_seconds=30) as made:
        await made.make_group()
        yield made


async def test_a_put_names_both_addresses_and_time_decides(inside: Inside) -> None:
    made = await inside.arm.put(SET, json=scale_set(1))
    status, result = made.headers["Azure-AsyncOperation"], made.headers["Location"]
    assert (made.status_code, made.headers["Retry-After"]) == (201, "1")
    assert result == f"{status}&monitor=true"

    for _ in range(5):  # looking does not hasten it
        early = await inside.follow(status)
        assert (early.json()["status"], early.headers["Retry-After"]) == ("InProgress", "1")
        assert (await inside.follow(result)).status_code == 202
    await inside.pass_time(60)
    late = await inside.follow(status)
    assert late.json()["status"] == "Succeeded"
    assert late.json()["endTime"] > late.json()["startTime"]
    assert "Retry-After" not in late.headers
    assert (await inside.follow(result)).json()["name"] == "rk-1"
    assert (await inside.arm.put(SET, json=scale_set(1))).status_code == 200


async def test_operations_live_through_a_restart_and_an_hour(tmp_path: Path) -> None:
    clock = Clock()
    async with emulator_inside(tmp_path, clock, create_seconds=60) as inside:
        await inside.make_group()
        status = (await inside.arm.put(SET, json=scale_set(1))).headers["Azure-AsyncOperation"]
    async with emulator_inside(tmp_path, clock, create_seconds=60) as inside:
        assert (await inside.follow(status)).json()["status"] == "InProgress"
        await inside.pass_time(60)
        assert (await inside.follow(status)).json()["status"] == "Succeeded"

        clock.advance(minutes=59)
        await inside.fabric.step()
        assert (await inside.follow(status)).status_code == 200
        clock.advance(minutes=2)
        await inside.fabric.step()
        assert (await inside.follow(status)).status_code == 404
