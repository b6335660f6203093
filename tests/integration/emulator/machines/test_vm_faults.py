"""Orders to harm one VM, given to a running emulator: what they do, and what they refuse."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.emulated.process import (
    BOOT,
    Emulator,
    child,
    compute,
    create,
    remove,
    runs,
    scale_set,
    set_url,
    wait_for,
)

SHORT = ("--create-seconds", "0.2", "--delete-seconds", "0.1")


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Emulator]:
    azure_emulator = Emulator(tmp_path_factory.mktemp("azure"), *SHORT, "--proxies")
    azure_emulator.make_group()
    yield azure_emulator
    azure_emulator.destroy()


@pytest.fixture
async def emulator(running: Emulator) -> Any:  # noqa: ANN401 - an async generator
    """One VM in the scale set "one"."""
    async with compute(running) as client:
        await create(client, "one", scale_set(1, BOOT))
        child(machine(running))
        yield running
        await remove(client, "one")


def machine(emulator: Emulator) -> dict[str, Any]:
    (vm,) = emulator.machines("one")
    return vm


def order(emulator: Emulator, path: str, **body: object) -> httpx.Response:
    return emulator.admin(path, {"vm": "one_0"} | body)


def power(emulator: Emulator) -> str:
    return str(machine(emulator)["state"])


async def test_orders_are_carried_out_when_they_are_answered(emulator: Emulator) -> None:
    vm = machine(emulator)
    first_cuts = order(emulator, "partition", cut=True, to="blob.*", mode="reset").json()["cuts"]
    cuts = order(emulator, "partition", cut=True, to="*:443").json()["cuts"]
    remaining_cuts = order(emulator, "partition", cut=False, to="blob.*").json()["cuts"]
    remaining = order(emulator, "partition", cut=False).json()["cuts"]
    disk = order(emulator, "disk", bytes_per_second=1000).status_code

    assert (first_cuts, remaining_cuts, remaining) == ({"blob.*": "reset"}, {"*:443": "drop"}, {})
    assert cuts == first_cuts | remaining_cuts
    assert disk == 200
    assert (Path(vm["folder"]) / "harm.obeyed").read_text() == "5"


async def test_azure_believes_a_vm_to_run_whose_system_has_panicked(emulator: Emulator) -> None:
    process = child(machine(emulator))
    order(emulator, "crash").raise_for_status()

    assert not runs(process)
    assert power(emulator) == "running"
    assert order(emulator, "crash").status_code == 409


async def test_azure_sees_that_a_vm_has_shut_down(emulator: Emulator) -> None:
    order(emulator, "crash", **{"as": "shutdown"}).raise_for_status()

    assert power(emulator) == "stopped"


async def test_a_vm_whose_host_failed_comes_up_on_another_one(emulator: Emulator) -> None:
    before = machine(emulator)
    process = child(before)
    order(emulator, "crash", **{"as": "hardware"}).raise_for_status()
    wait_for(lambda: machine(emulator)["state"] == "running" and _another(emulator, process))
    wait_for(lambda: not _events(before["metadata_url"]))

    assert not runs(process)
    assert machine(emulator)["vm_id"] == before["vm_id"]


def _another(emulator: Emulator, process: int) -> bool:
    return child(machine(emulator)) != process


def _events(metadata_url: str) -> list[dict[str, Any]]:
    response = httpx.get(
        f"{metadata_url}/metadata/scheduledevents?api-version=2020-07-01",
        headers={"Metadata": "true"},
    )
    return list(response.raise_for_status().json()["Events"])


def test_without_proxies_it_is_told_how_to_have_them(tmp_path: Path) -> None:
    emulator = Emulator(tmp_path, *SHORT)
    emulator.make_group()
    with emulator.signed_in() as arm:
        arm.put(set_url("one"), json=scale_set(1)).raise_for_status()
        wait_for(lambda: emulator.machines("one") and power(emulator) == "running")
    response = order(emulator, "partition")
    emulator.destroy()

    assert response.status_code == 409
    assert "without --proxies" in response.json()["error"]["message"]
