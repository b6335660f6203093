"""Boot of an emulated machine with Rekindle's cloud-init, through the Azure adapter."""

from dataclasses import replace
from pathlib import Path
from uuid import uuid4

import pytest

from service.cloud.cloud_init import render
from service.cloud.provider import NoSerialLog
from service.domain.cloud.fleet import Offering, ScaleSetSpec
from service.domain.states import CapacityType
from tests.contract.emulated import IMAGE, sign_in
from tests.emulated.process import Emulator
from tests.waiting import until

CONFIG = '{"attempt_id":"att-1","note":"it\'s 100% \\"$HOME\\""}'
SPEC = ScaleSetSpec(
    name="",
    offering=Offering(
        region="eastus", vm_size="Standard_NC24ads_A100_v4", capacity_type=CapacityType.SPOT
    ),
    instance_count=2,
    cloud_init=render(CONFIG, IMAGE, "cpu"),
)


async def test_every_node_starts_the_container_with_its_configuration(emulator: Emulator) -> None:
    name = f"rk-{uuid4().hex[:26]}"
    cloud = sign_in(emulator, "boots")
    await cloud.create(replace(SPEC, name=name))

    async def look() -> list[str]:
        machines = [m for m in emulator.virtual_machines() if m["scale_set"] == name]
        files = [Path(m["folder"]) / "fs/mnt/rekindle/seen.json" for m in machines]
        return [file.read_text() for file in files if file.exists()]

    await until(look, lambda configs: configs == [CONFIG, CONFIG], interval=0.05)
    await cloud.delete(name)
    await cloud.close()


@pytest.mark.parametrize(
    ("code", "message"),
    [
        ("unauthorized", "unauthorized: authentication required"),
        ("not_found", "manifest unknown"),
        ("no_space", "no space left on device"),
        ("timeout", "Client.Timeout exceeded"),
    ],
)
async def test_why_an_image_cannot_be_pulled_is_in_the_serial_log(
    emulator: Emulator, code: str, message: str
) -> None:
    name = f"rk-{uuid4().hex[:26]}"
    fault = {"kind": "pull_fails", "path": name, "code": code}
    emulator.admin("faults", fault).raise_for_status()
    cloud = sign_in(emulator, "boots")
    await cloud.create(replace(SPEC, name=name, instance_count=1))

    async def look() -> str:
        try:
            return (await cloud.serial_log(name, "0")).decode()
        except NoSerialLog:
            return ""

    text = await until(look, lambda log: "pull_image failed" in log, interval=0.05)
    assert message in text
    await cloud.delete(name)
    await cloud.close()
