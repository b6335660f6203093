"""The metadata service as a VM sees it, and its Scheduled Events, on a moved clock."""

import asyncio
import base64
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.clock import Clock
from tests.emulated.inside import SET, Inside, emulator_inside
from tests.emulated.process import scale_set

NEWEST = "2025-04-07"
EVENTS = "2020-07-01"
TOLD = {"Metadata": "true"}
USER_DATA = base64.b64encode(b"no secrets").decode()


@pytest.fixture
async def inside(tmp_path: Path) -> AsyncIterator[Inside]:
    async with emulator_inside(tmp_path, Clock(), throttling="azure") as view:
        await started(view)
        yield view


async def started(inside: Inside) -> None:
    """Two VMs, with tags and user data."""
    body = scale_set(2, userData=USER_DATA)
    body["tags"] = {"Department": "IT", "Test": "yes"}
    (await inside.arm.put(SET, json=body)).raise_for_status()
    await inside.pass_time(5)


async def ask(inside: Inside, path: str, vm: int = 0, **request: Any) -> httpx.Response:  # noqa: ANN401 - whatever httpx takes
    """One request of a VM to its metadata service; time passes, so that none is throttled."""
    inside.clock.advance(seconds=1)
    _, instance = list(inside.fabric.instances())[vm]
    url = f"{inside.fabric.metadata_url(instance)}/metadata/{path}"
    return await inside.metadata.get(url, headers=TOLD, **request)


async def text(inside: Inside, path: str) -> str:
    response = await ask(inside, f"instance/{path}?api-version={NEWEST}&format=text")
    assert response.status_code == 200, response.text
    return response.text


async def test_every_part_of_the_instance_document_has_a_path(inside: Inside) -> None:
    tree = (await ask(inside, f"instance?api-version={NEWEST}")).json()
    network = (await ask(inside, f"instance/network/interface/0?api-version={NEWEST}")).json()
    tags = (await ask(inside, f"instance/compute/tagsList?api-version={NEWEST}")).json()

    api_versions = (await ask(inside, "versions")).json()["apiVersions"]

    assert (api_versions[0], api_versions[-1]) == ("2017-03-01", NEWEST)
    assert await text(inside, "compute/vmId") == tree["compute"]["vmId"]
    assert await text(inside, "Compute/VMSIZE") == "Standard_ND96amsr_A100_v4"
    assert await text(inside, "compute/tags") == "Department:IT;Test:yes"
    assert await text(inside, "compute/userData") == USER_DATA
    assert await text(inside, "") == "compute/\nnetwork/"
    assert await text(inside, "compute/storageProfile/osDisk/diffDiskSettings/option") == "Local"
    assert await text(inside, "compute/storageProfile/resourceDisk/size") == "6710886400"
    assert network == tree["network"]["interface"][0]
    assert tags[0] == {"name": "Department", "value": "IT"}
    assert not list(leaves_that_are_no_text(tree))


def leaves_that_are_no_text(node: Any) -> list[Any]:  # noqa: ANN401 - parsed JSON
    """Azure answers strings only."""
    if isinstance(node, dict | list):
        values = node.values() if isinstance(node, dict) else node
        return [leaf for value in values for leaf in leaves_that_are_no_text(value)]
    return [] if isinstance(node, str) else [node]


@pytest.mark.parametrize(
    ("path", "status", "message"),
    [
        ("instance", 400, "api-version is invalid or was not specified"),
        ("instance?api-version=2020-01-01", 400, "aka.ms/azureimds"),
        (f"instance?api-version={NEWEST}&format=text&format=json", 400, "Duplicate"),
        (f"instance/compute/vmId?api-version={NEWEST}", 400, "format=text"),
        (f"instance/compute/nonsense?api-version={NEWEST}&format=text", 404, "Not found"),
        (f"instance/network/interface/7?api-version={NEWEST}", 404, "Not found"),
        ("scheduledevents", 400, "api-version is invalid"),
    ],
)
async def test_what_it_cannot_answer_it_refuses_in_azures_form(
    inside: Inside, path: str, status: int, message: str
) -> None:
    response = await ask(inside, path)

    assert response.status_code == status
    assert message in response.json()["error"]


async def test_a_request_that_may_have_been_forwarded_is_refused(inside: Inside) -> None:
    _, vm = next(iter(inside.fabric.instances()))
    url = f"{inside.fabric.metadata_url(vm)}/metadata/instance?api-version={NEWEST}"
    without_header = await inside.metadata.get(url)
    forwarded = await inside.metadata.get(url, headers=TOLD | {"X-Forwarded-For": "10.0.0.1"})

    assert [without_header.status_code, forwarded.status_code] == [400, 400]
    assert "metadata header not specified" in without_header.json()["error"]


async def test_the_sixth_request_within_a_second_is_one_too_many(inside: Inside) -> None:
    _, vm = next(iter(inside.fabric.instances()))
    url = f"{inside.fabric.metadata_url(vm)}/metadata/versions"
    codes = [(await inside.metadata.get(url, headers=TOLD)).status_code for _ in range(6)]
    second_vm = (await ask(inside, "versions", vm=1)).status_code
    first_vm = (await ask(inside, "versions")).status_code

    assert codes == [200] * 5 + [429]
    assert (second_vm, first_vm) == (200, 200)


async def test_the_first_question_for_events_in_a_day_takes_its_time(tmp_path: Path) -> None:
    clock = Clock()
    async with emulator_inside(tmp_path, clock, first_events_call_seconds=3600) as inside:
        await started(inside)
        asked_at = []
        for hours in (0, 0, 22, 25):  # besides the one that each takes
            clock.advance(hours=hours)
            asked_at.append(await waits(inside))
        assert asked_at == [True, False, False, True]


async def waits(inside: Inside) -> bool:
    """Whether an answer has to be waited for; in the end its time is made to come."""
    _, vm = next(iter(inside.fabric.instances()))
    call = inside.metadata.get(
        f"{inside.fabric.metadata_url(vm)}/metadata/scheduledevents?api-version={EVENTS}",
        headers=TOLD,
    )
    before = vm.events_on_at
    inside.clock.advance(seconds=1)
    task = asyncio.ensure_future(call)
    await asyncio.wait({task}, timeout=0.2)
    is_late = not task.done()
    inside.clock.advance(hours=1)
    assert (await task).status_code == 200
    assert (inside.fabric.state.now(vm).events_on_at != before) == is_late
    return is_late


@pytest.fixture
async def single_vm(tmp_path: Path) -> AsyncIterator[Inside]:
    async with emulator_inside(tmp_path, Clock()) as view:
        (await view.arm.put(SET, json=scale_set(1))).raise_for_status()
        await view.pass_time(5)
        yield view


async def document(azure: Inside, version: str = "2020-07-01") -> dict[str, Any]:
    response = await azure.metadata.get(_events_url(azure, version), headers=TOLD)
    return dict(response.raise_for_status().json())


async def agree(azure: Inside, event_id: str) -> int:
    body = {"StartRequests": [{"EventId": event_id}]}
    response = await azure.metadata.post(_events_url(azure), headers=TOLD, json=body)
    return response.status_code


def _events_url(azure: Inside, version: str = "2020-07-01") -> str:
    _, vm = next(iter(azure.fabric.instances()))
    return f"{azure.fabric.metadata_url(vm)}/metadata/scheduledevents?api-version={version}"


async def announce(azure: Inside, kind: str, **members: object) -> httpx.Response:
    body = {"vm": "rk-1_0", "kind": kind, **members}
    return await azure.metadata.post("/_emulator/events", json=body)


@pytest.mark.parametrize(("kind", "notice"), [("Freeze", 900), ("Reboot", 900), ("Redeploy", 600)])
async def test_an_event_is_announced_started_and_gone(
    single_vm: Inside, kind: str, notice: int
) -> None:
    before = (await document(single_vm))["DocumentIncarnation"]
    announced = (await announce(single_vm, kind)).json()
    documents = [await document(single_vm)]
    await single_vm.pass_time(notice - 1)
    documents.append(await document(single_vm))
    await single_vm.pass_time(1)
    documents.append(await document(single_vm))
    await single_vm.pass_time(10)
    documents.append(await document(single_vm))
    statuses = [[e["EventStatus"] for e in d["Events"]] for d in documents]
    incarnations = [d["DocumentIncarnation"] for d in documents]

    assert announced == documents[0]["Events"][0]
    assert statuses == [["Scheduled"], ["Scheduled"], ["Started"], []]
    assert documents[0]["Events"][0]["NotBefore"].endswith(" GMT")
    assert documents[2]["Events"][0]["NotBefore"] == ""
    assert before < incarnations[0] == incarnations[1] < incarnations[2] < incarnations[3]
    assert len(list(single_vm.fabric.instances())) == 1


async def test_a_vm_that_agrees_is_not_waited_for(single_vm: Inside) -> None:
    event = (await announce(single_vm, "Reboot")).json()
    agreed = await agree(single_vm, event["EventId"])
    repeated = await agree(single_vm, event["EventId"])
    unknown_event = await agree(single_vm, "00000000-0000-0000-0000-000000000000")
    await single_vm.pass_time(5)

    assert (agreed, repeated, unknown_event) == (200, 200, 400)
    assert (await document(single_vm))["Events"] == []


async def test_an_event_that_is_called_off_while_the_vm_agrees_stays_called_off(
    single_vm: Inside,
) -> None:
    event = (await announce(single_vm, "Reboot")).json()

    async def slow_body() -> AsyncIterator[bytes]:
        content = json.dumps({"StartRequests": [{"EventId": event["EventId"]}]}).encode()
        yield content[:10]
        await single_vm.metadata.delete("/_emulator/events", params={"vm": "rk-1_0"})
        yield content[10:]

    response = await single_vm.metadata.post(
        _events_url(single_vm), headers=TOLD, content=slow_body()
    )

    assert response.status_code == 400
    assert (await document(single_vm))["Events"] == []


async def test_what_is_announced_can_be_called_off_an_eviction_too(single_vm: Inside) -> None:
    await announce(single_vm, "Redeploy")
    body = {"scale_set": "rk-1", "instance_id": "0"}
    (await single_vm.metadata.post("/_emulator/evict", json=body)).raise_for_status()
    announced = await document(single_vm)
    response = await single_vm.metadata.delete("/_emulator/events", params={"vm": "rk-1_0"})
    after = await document(single_vm)
    await single_vm.pass_time(1000, step=100)

    assert {e["EventType"] for e in announced["Events"]} == {"Redeploy", "Preempt"}
    assert response.json() == {"called_off": 2}
    assert after["Events"] == []
    assert after["DocumentIncarnation"] > announced["DocumentIncarnation"]
    assert len(list(single_vm.fabric.instances())) == 1


async def test_older_versions_of_the_document_know_less(single_vm: Inside) -> None:
    body = {"scale_set": "rk-1", "instance_id": "0"}
    (await single_vm.metadata.post("/_emulator/evict", json=body)).raise_for_status()
    by_version = {
        version: (await document(single_vm, version))["Events"]
        for version in ("2017-08-01", "2017-11-01", "2019-04-01", "2019-08-01", "2020-07-01")
    }

    assert by_version["2017-08-01"] == []  # it has no Preempt
    assert [len(events[0]) for events in list(by_version.values())[1:]] == [6, 7, 8, 9]
