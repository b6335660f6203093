"""Breaking a running stack: parts that are killed, paused and away, machines that lose programs."""

import asyncio
import json
import sys
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from uuid import uuid4

import psutil
import pytest

from rekindle.local import faults
from rekindle.local.faults import LocalMachine, StackInfo, TargetNotFound
from rekindle.local.parts import PartRunner, StackPart
from rekindle.local.running_stack import RANK, SUPERVISOR, TORCHRUN, part_process, vm_processes
from rekindle.local.state_folder import StateFolder
from tests import waiting
from tests.emulated.process import Emulator, compute, create, remove, scale_set

SERVE = "import pathlib, signal; pathlib.Path({flag!r}).touch(); signal.pause()"
STAND_IN = """#cloud-config
runcmd:
  - setsid sh -c 'sleep 1000; :' trainer.supervisor &
  - setsid sh -c 'sleep 1000; :' trainer.process.rendezvous trainer.train &
  - setsid sh -c 'sleep 1000; :' trainer.train &
"""


def facts(state: Path, arm_url: str = "", ca: str = "") -> StackInfo:
    config_fields = dict.fromkeys(("api_url", "api_key", "blob_url", "storage", "metadata_url"), "")
    written = {
        **config_fields,
        "database_url": "",
        "arm_url": arm_url,
        "ca": ca,
        "news": "of later times",
    }
    (state / "stack.json").write_text(json.dumps(written))
    return StackInfo.read(state)


@pytest.fixture
async def stack(tmp_path: Path) -> AsyncIterator[StackInfo]:
    """Yield a stack of one part, called service."""
    crew = PartRunner(StateFolder(tmp_path), lambda _: None)
    flag = tmp_path / "flag"

    async def ready() -> bool:
        return flag.exists()

    argv = [sys.executable, "-c", SERVE.format(flag=str(flag))]
    await crew.start_part(StackPart(name="service", argv=argv, ready=ready))
    yield facts(tmp_path)
    await crew.stop_parts()


@pytest.fixture(scope="module")
def azure(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Emulator]:
    options = ("--create-seconds", "0.2", "--delete-seconds", "0.2")
    emulator = Emulator(tmp_path_factory.mktemp("azure"), *options)
    emulator.make_group()
    yield emulator
    emulator.destroy()


@pytest.fixture
async def cloud(azure: Emulator, tmp_path: Path) -> AsyncIterator[StackInfo]:
    """Yield a stack of which only Azure is there, with two machines of one attempt."""
    name = f"rk-{uuid4().hex[:26]}"
    async with compute(azure) as client:
        await create(client, name, scale_set(2, STAND_IN))
        yield facts(tmp_path, azure.arm_url, azure.ca)
        azure.clear_faults()
        await remove(client, name)


async def test_a_killed_part_comes_back_with_another_process(stack: StackInfo) -> None:
    before = await faults.kill_part(stack, "service")
    await faults.wait_for_restart(stack, "service", before)

    assert part_process(stack, "service").pid != before


async def test_a_part_that_is_restarted_is_ready_when_that_returns(stack: StackInfo) -> None:
    before = part_process(stack, "service").pid
    await faults.restart_part(stack, "service")

    assert part_process(stack, "service").pid != before


async def test_a_paused_part_stands_still_and_goes_on(stack: StackInfo) -> None:
    process = part_process(stack, "service")
    pausing = asyncio.create_task(faults.pause_part(stack, "service", 0.5))

    async def status() -> str:
        return str(process.status())

    await waiting.until(status, lambda now: now == psutil.STATUS_STOPPED, interval=0.02)
    await pausing
    await waiting.until(status, lambda now: now != psutil.STATUS_STOPPED, interval=0.02)


async def test_a_part_that_is_taken_away_is_not_started_before_its_time(stack: StackInfo) -> None:
    start = time.monotonic()
    await faults.stop_part(stack, "service", 1.0)

    assert time.monotonic() - start >= 1.0
    assert part_process(stack, "service").is_running()


async def test_what_is_not_there_is_named_with_what_to_do(stack: StackInfo, tmp_path: Path) -> None:
    with pytest.raises(TargetNotFound, match="no part 'redis'; it has: service"):
        await faults.kill_part(stack, "redis")
    with pytest.raises(TargetNotFound, match="make up"):
        StackInfo.read(tmp_path / "nowhere")
    with pytest.raises(TargetNotFound, match="does not answer"):
        await faults.list_machines(facts(tmp_path, "https://localhost:1"))


async def test_one_program_of_a_machine_is_killed_and_the_others_live(cloud: StackInfo) -> None:
    vm = await _settled(cloud)
    await faults.kill_supervisor(cloud, vm)
    [torchrun] = vm_processes(vm, TORCHRUN)
    await faults.kill_trainer(cloud, vm)

    assert vm_processes(vm, SUPERVISOR) == vm_processes(vm, RANK) == [], "a zombie does not run"
    assert torchrun.is_running()
    assert await faults.kill_trainer(cloud, vm, launcher=True) == torchrun.pid
    assert [m.state for m in await faults.list_machines(cloud, vm.attempt_id)] == ["running"] * 2
    with pytest.raises(TargetNotFound, match=r"no process of trainer.process.rendezvous runs on"):
        await faults.kill_trainer(cloud, vm, launcher=True)


async def test_a_machine_that_is_killed_is_gone_and_one_that_lingers_is_listed(
    cloud: StackInfo,
) -> None:
    vm = await _settled(cloud)
    second_machine = (await faults.list_machines(cloud, vm.attempt_id))[1]
    await faults.evict_vm(cloud, vm, notice=False)
    await faults.evict_vm(cloud, second_machine, notice=False, lingers=True)

    assert [m.state for m in await faults.list_machines(cloud, vm.attempt_id)] == ["stopped"]


async def test_all_machines_of_an_attempt_are_evicted_at_once(cloud: StackInfo) -> None:
    vm = await _settled(cloud)
    evicted = await faults.evict_attempt(cloud, vm.attempt_id, notice=False)

    assert len(evicted) == 2
    assert await faults.list_machines(cloud, vm.attempt_id) == []


async def test_faults_are_planted_listed_and_taken_back(cloud: StackInfo) -> None:
    first = await faults.arm_fault(cloud, "throttle", count=2)
    await faults.arm_fault(cloud, "quota", region="eastus")
    fault_kinds = [f["kind"] for f in await faults.list_faults(cloud)]
    await faults.clear_faults(cloud, first)
    remaining = [f["kind"] for f in await faults.list_faults(cloud)]
    await faults.clear_faults(cloud)

    assert (fault_kinds, remaining) == (["throttle", "quota"], ["quota"])
    assert await faults.list_faults(cloud) == []
    with pytest.raises(TargetNotFound, match="'kind' must be one of"):
        await faults.arm_fault(cloud, "earthquake")


async def _settled(cloud: StackInfo) -> LocalMachine:
    """One of the machines, once its programs run."""

    async def look() -> LocalMachine:
        return (await faults.list_machines(cloud))[0]

    def busy(vm: LocalMachine) -> bool:
        return all(vm_processes(vm, program) for program in (SUPERVISOR, TORCHRUN, RANK))

    return await waiting.until(look, busy)
