"""Orders to an emulator that is killed again and again, at whatever line it happens to be."""

import random
import signal
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.emulated.process import (
    BOOT,
    GROUP,
    SUBSCRIPTION,
    VERSION,
    Emulator,
    begin,
    child,
    compute,
    descendants,
    group_url,
    pause,
    remove,
    runs,
    scale_set,
    set_url,
    wait_for,
)

CORES = 96
QUOTA = 6 * CORES
ROUNDS = 4
OVER = ("Succeeded", "Failed", "Canceled")
USAGES = f"/subscriptions/{SUBSCRIPTION}/providers/Microsoft.Compute/locations/eastus/usages"


class Memory:
    """What a client has seen, and what must therefore be so after every restart."""

    def __init__(self) -> None:
        self.operations: dict[str, str] = {}  # address -> the last status
        self.machines: dict[str, tuple[str, str]] = {}  # vmId -> scale set, instance id
        self.ids: dict[tuple[str, str], str] = {}  # and the other way round

    def look(self, client: httpx.Client, emulator: Emulator) -> None:
        """Nothing that was accepted is forgotten, what ended stays ended, no id is two VMs."""
        for address, before in self.operations.items():
            told = client.get(address).raise_for_status().json()
            assert before in ("InProgress", told["status"])
            assert ("endTime" in told) == (told["status"] in OVER)
            self.operations[address] = told["status"]
        sets = {row["name"]: row["properties"]["uniqueId"] for row in listed(client)}
        rows = emulator.virtual_machines()
        assert len({row["vm_id"] for row in rows}) == len(rows) <= QUOTA // CORES
        for row in rows:
            if unique := sets.get(row["scale_set"]):
                who = unique, row["instance_id"]
                assert self.machines.setdefault(row["vm_id"], who) == who
                assert self.ids.setdefault(who, row["vm_id"]) == row["vm_id"]


@pytest.fixture
def hollow(tmp_path: Path) -> Iterator[Emulator]:
    running = Emulator(
        tmp_path / "azure",
        *("--hollow", "--create-seconds", "0.2", "--delete-seconds", "0.1"),
        *("--notice-seconds", "0.3", "--spot-quota", str(QUOTA)),
    )
    running.make_group()
    yield running
    running.stop()


def listed(client: httpx.Client) -> list[dict[str, Any]]:
    url = f"{group_url().partition('?')[0]}/providers/Microsoft.Compute/virtualMachineScaleSets"
    rows: list[dict[str, Any]] = client.get(url + VERSION).raise_for_status().json()["value"]
    return rows


def order(client: httpx.Client, emulator: Emulator, dice: random.Random) -> httpx.Response:
    """Ask for anything."""
    name = dice.choice("ab")
    url = set_url(name)
    vms = f"{url.partition('?')[0]}/virtualMachines"
    kind = dice.choice(["put", "put", "put", "delete", "some", "evict", "restart", "restore"])
    if kind == "put":
        return client.put(url, json=scale_set(dice.randrange(5)))
    if kind == "delete":
        return client.delete(url)
    if kind == "restore":
        return emulator.admin("restore", {"scale_set": name, "count": 1})
    rows = client.get(vms + VERSION).json().get("value", [])
    if not rows:
        return client.get(url)
    vm = dice.choice(rows)["instanceId"]
    if kind == "evict":
        return client.post(f"{vms}/{vm}/simulateEviction{VERSION}")
    verb = "delete" if kind == "some" else "restart"
    return client.post(url.replace("?", f"/{verb}?"), json={"instanceIds": [vm]})


def work_until_killed(
    client: httpx.Client, emulator: Emulator, dice: random.Random, memory: Memory
) -> None:
    """Order until nobody answers."""
    while True:
        try:
            answer = order(client, emulator, dice)
        except httpx.TransportError:
            return
        assert answer.status_code < 500, answer.text
        if address := answer.headers.get("azure-asyncoperation"):
            memory.operations[address] = "InProgress"


def at_rest(client: httpx.Client, memory: Memory, emulator: Emulator) -> bool:
    memory.look(client, emulator)
    states = {row["properties"]["provisioningState"] for row in listed(client)}
    return states <= {"Succeeded", "Failed"}


@pytest.mark.slow
@pytest.mark.parametrize("seed", [3])
def test_whenever_it_is_killed_it_goes_on_as_it_had_promised(hollow: Emulator, seed: int) -> None:
    dice, memory = random.Random(seed), Memory()
    for _ in range(ROUNDS):
        with hollow.signed_in() as client:
            end = threading.Timer(dice.uniform(0.1, 0.9), hollow.stop, [signal.SIGKILL])
            end.start()
            work_until_killed(client, hollow, dice, memory)
            end.join()
        hollow.start()
        with hollow.signed_in() as client:
            memory.look(client, hollow)

    with hollow.signed_in() as client:
        wait_for(lambda: at_rest(client, memory, hollow))
        for row in listed(client):
            if row["properties"]["provisioningState"] == "Succeeded":
                mine = hollow.machines(row["name"])
                assert len(mine) == row["sku"]["capacity"]
        usages = client.get(USAGES + VERSION).json()["value"]
        spot = next(row for row in usages if row["name"]["value"] == "lowPriorityCores")
        assert spot["currentValue"] == CORES * len(hollow.virtual_machines())
        client.delete(group_url()).raise_for_status()
        wait_for(lambda: client.head(group_url()).status_code == 404)
    assert memory.operations
    assert hollow.virtual_machines() == []


def test_an_emulator_without_its_folder_ends(hollow: Emulator) -> None:
    hollow.state.rename(hollow.state.with_name("elsewhere"))

    assert hollow.wait() == 1
    hollow.state.with_name("elsewhere").rename(hollow.state)
    hollow.start()


@pytest.fixture
def restartable(tmp_path: Path) -> Iterator[Emulator]:
    """Yield an emulator that the test may kill."""
    running = Emulator(tmp_path / "azure", "--create-seconds", "1", "--delete-seconds", "1")
    running.make_group()
    yield running
    running.destroy()


async def test_a_killed_emulator_finishes_what_it_had_accepted(restartable: Emulator) -> None:
    async with compute(restartable) as client:
        sets = client.virtual_machine_scale_sets
        creation = await begin(client, "rk-on", scale_set(1, BOOT))
        restartable.stop(signal.SIGKILL)
        restartable.start()
        await creation.result()

        (before,) = restartable.machines("rk-on")
        pid = child(before)
        assert restartable.stop() == 0
        assert runs(pid)
        restartable.start()
        (after,) = restartable.machines("rk-on")
        assert after == before

        await sets.begin_delete(GROUP, "rk-on", polling=False)
        restartable.stop(signal.SIGKILL)
        restartable.start()
        await remove(client, "rk-on")
        assert not runs(pid)


@pytest.mark.slow
def test_however_often_it_is_killed_no_vm_is_doubled_or_left(restartable: Emulator) -> None:
    dice = random.Random(7)
    for number in range(4):
        url = set_url(f"rk-{number}")
        with restartable.signed_in() as client:
            client.put(url, json=scale_set(2, BOOT))
        pause(dice.uniform(0.8, 1.2))  # around allocation and boot
        restartable.stop(signal.SIGKILL)
        restartable.start()
        with restartable.signed_in() as client:
            client.delete(url)
        pause(dice.uniform(0.8, 1.2))  # around the kill
        restartable.stop(signal.SIGKILL)
        restartable.start()

    wait_for(lambda: not restartable.virtual_machines())
    consoles = [file.read_text() for file in restartable.state.glob("vms/*/console.log")]
    assert max(text.count("the boot script ended") for text in consoles) <= 1
    assert not descendants(restartable.metadata_url)
