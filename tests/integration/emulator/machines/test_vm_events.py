"""What the platform does to VMs, and how it announces it: Scheduled Events on a moved clock."""

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from emulator.machines import maintenance
from tests.clock import Clock
from tests.emulated.inside import HERE, Inside, emulator_inside
from tests.emulated.process import GROUP, scale_set

SET = f"{HERE}/resourceGroups/{GROUP}/providers/Microsoft.Compute/virtualMachineScaleSets/rk-1"
TOLD = {"Metadata": "true"}


@pytest.fixture
async def inside(tmp_path: Path) -> AsyncIterator[Inside]:
    async with emulator_inside(tmp_path, Clock()) as made:
        await started(made)
        yield made


async def started(inside: Inside) -> None:
    await inside.make_group()
    (await inside.arm.put(SET, json=scale_set(1))).raise_for_status()
    await inside.pass_time(5)


async def document(inside: Inside, version: str = "2020-07-01") -> dict[str, Any]:
    answer = await inside.metadata.get(_events_url(inside, version), headers=TOLD)
    return dict(answer.raise_for_status().json())


async def agree(inside: Inside, event_id: str) -> int:
    body = {"StartRequests": [{"EventId": event_id}]}
    answer = await inside.metadata.post(_events_url(inside), headers=TOLD, json=body)
    return answer.status_code


def _events_url(inside: Inside, version: str = "2020-07-01") -> str:
    _, vm = next(iter(inside.fabric.instances()))
    return f"{inside.fabric.metadata_url(vm)}/metadata/scheduledevents?api-version={version}"


async def announce(inside: Inside, kind: str, **more: object) -> httpx.Response:
    body = {"vm": "rk-1_0", "kind": kind, **more}
    return await inside.metadata.post("/_emulator/events", json=body)


@pytest.mark.parametrize(("kind", "notice"), [("Freeze", 900), ("Reboot", 900), ("Redeploy", 600)])
async def test_an_event_is_announced_started_and_gone(
    inside: Inside, kind: str, notice: int
) -> None:
    before = (await document(inside))["DocumentIncarnation"]
    told = (await announce(inside, kind)).json()
    seen = [await document(inside)]
    await inside.pass_time(notice - 1)
    seen.append(await document(inside))
    await inside.pass_time(1)
    seen.append(await document(inside))
    await inside.pass_time(10)
    seen.append(await document(inside))
    statuses = [[e["EventStatus"] for e in d["Events"]] for d in seen]
    incarnations = [d["DocumentIncarnation"] for d in seen]

    assert told == seen[0]["Events"][0]
    assert statuses == [["Scheduled"], ["Scheduled"], ["Started"], []]
    assert seen[0]["Events"][0]["NotBefore"].endswith(" GMT")
    assert seen[2]["Events"][0]["NotBefore"] == ""
    assert before < incarnations[0] == incarnations[1] < incarnations[2] < incarnations[3]
    assert len(list(inside.fabric.instances())) == 1


async def test_a_vm_that_agrees_is_not_waited_for(inside: Inside) -> None:
    event = (await announce(inside, "Reboot")).json()
    agreed = await agree(inside, event["EventId"])
    again = await agree(inside, event["EventId"])
    other = await agree(inside, "00000000-0000-0000-0000-000000000000")
    await inside.pass_time(5)

    assert (agreed, again, other) == (200, 200, 400)
    assert (await document(inside))["Events"] == []


async def test_an_event_that_is_called_off_while_the_vm_agrees_stays_called_off(
    inside: Inside,
) -> None:
    event = (await announce(inside, "Reboot")).json()

    async def slow_body() -> AsyncIterator[bytes]:
        whole = json.dumps({"StartRequests": [{"EventId": event["EventId"]}]}).encode()
        yield whole[:10]
        await inside.metadata.delete("/_emulator/events", params={"vm": "rk-1_0"})
        yield whole[10:]

    answer = await inside.metadata.post(_events_url(inside), headers=TOLD, content=slow_body())

    assert answer.status_code == 400
    assert (await document(inside))["Events"] == []


def test_an_event_that_is_called_off_is_not_agreed_to_by_an_old_copy_of_the_vm(
    inside: Inside,
) -> None:
    state, now = inside.fabric.state, inside.fabric.now()
    found = next(iter(inside.fabric.instances()))
    event = maintenance.announce(state, *found, "Reboot", now)
    old = state.now(found[1])
    maintenance.cancel_announced(state, old)

    assert not maintenance.acknowledge(state, old, event.id)
    assert maintenance.events(state.now(old)) == []


async def test_what_is_announced_can_be_called_off_an_eviction_too(inside: Inside) -> None:
    await announce(inside, "Redeploy")
    body = {"scale_set": "rk-1", "instance_id": "0"}
    (await inside.metadata.post("/_emulator/evict", json=body)).raise_for_status()
    announced = await document(inside)
    answer = await inside.metadata.delete("/_emulator/events", params={"vm": "rk-1_0"})
    after = await document(inside)
    await inside.pass_time(1000, step=100)

    assert {e["EventType"] for e in announced["Events"]} == {"Redeploy", "Preempt"}
    assert answer.json() == {"called_off": 2}
    assert after["Events"] == []
    assert after["DocumentIncarnation"] > announced["DocumentIncarnation"]
    assert len(list(inside.fabric.instances())) == 1


async def test_older_versions_of_the_document_know_less(inside: Inside) -> None:
    body = {"scale_set": "rk-1", "instance_id": "0"}
    (await inside.metadata.post("/_emulator/evict", json=body)).raise_for_status()
    by_version = {
        version: (await document(inside, version))["Events"]
        for version in ("2017-08-01", "2017-11-01", "2019-04-01", "2019-08-01", "2020-07-01")
    }

    assert by_version["2017-08-01"] == []  # it has no Preempt
    assert [len(events[0]) for events in list(by_version.values())[1:]] == [6, 7, 8, 9]
