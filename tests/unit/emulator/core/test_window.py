"""What people and tests see of the emulator besides Azure: the log, time."""

from pathlib import Path

import pytest

from emulator.fabric import EmulatorSettings, Fabric
from tests.clock import Clock
from tests.emulated.inside import SETS, Inside, emulator_inside
from tests.emulated.process import scale_set


async def test_every_request_is_in_the_log_without_its_secrets(inside: Inside) -> None:
    await inside.arm.put(f"{SETS}/rk-1", json=scale_set(1))
    ((_, vm),) = inside.fabric.instances()
    events = f"/vm/{vm.token}/metadata/scheduledevents?api-version=2020-07-01&sig=hidden"
    await inside.metadata.get(events, headers={"Metadata": "true"})

    told = await inside.arm.get("/_emulator/requests")
    put, asked = told.json()["value"][-2:]
    assert (put["method"], put["path"], put["status"]) == ("PUT", f"{SETS}/rk-1", 201)
    assert put["principal"] == "tests"
    assert "api-version=2026-04-01" in put["query"]
    assert (asked["path"], asked["principal"]) == ("/vm/…/metadata/scheduledevents", "rk-1_0")
    secrets = (vm.token, "hidden", inside.arm.headers["authorization"].split()[1], "Not shown 1")
    assert not [secret for secret in secrets if secret in told.text]


async def test_the_log_is_searched_and_read_on(tmp_path: Path) -> None:
    async with emulator_inside(tmp_path, Clock(), requests_kept=4) as inside:
        for name in "abcde":
            await inside.arm.get(f"{SETS}/{name}")

        async def names(**query: str) -> list[str]:
            answer = await inside.arm.get("/_emulator/requests", params=query)
            return [entry["path"][-1] for entry in answer.json()["value"]]

        assert await names() == ["b", "c", "d", "e"]
        assert await names(path="sets/[bd]$") == ["b", "d"]
        assert await names(method="put") == []
        first = (await inside.arm.get("/_emulator/requests", params={"limit": "1"})).json()
        assert await names(since=str(first["nextSince"])) == ["c", "d", "e"]


@pytest.mark.parametrize("speed", [1.0, 60.0])
def test_time_runs_as_fast_as_it_is_set_to(tmp_path: Path, speed: float) -> None:
    clock = Clock()

    def made(fast: float) -> Fabric:
        settings = EmulatorSettings(folder=tmp_path, hollow=True, speed=fast)
        return Fabric(settings, "http://metadata", lambda: clock().timestamp())

    first, began = made(speed), clock().timestamp()
    assert first.now() == began
    clock.advance(seconds=10)
    assert first.now() == began + 10 * speed

    again = made(2.0)
    assert again.now() == began + 10 * speed
    clock.advance(seconds=1)
    assert again.now() == began + 10 * speed + 2
