"""Requests of any client: odd bodies, long operations, the log, and the emulator's time."""

import json
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest

from emulator.arm import lenient_json
from emulator.fabric import EmulatorSettings, Fabric
from tests.clock import Clock
from tests.emulated.inside import GROUP_ID, HERE, SET, SETS, Inside, emulator_inside
from tests.emulated.process import GROUP, scale_set

IMAGES = f"{HERE}/providers/Microsoft.Compute/locations/eastus/publishers"
UBUNTU = f"{IMAGES}/Canonical/artifacttypes/vmimage/offers/ubuntu-24_04-lts/skus/server/versions"


def refusal(response: httpx.Response) -> tuple[int, str]:
    return response.status_code, response.json()["error"]["code"]


async def test_empty_segments_of_a_path_are_passed_over(inside: Inside) -> None:
    response = await inside.arm.get(f"https://azure/{HERE}//resourceGroups/{GROUP}")

    assert response.json()["name"] == GROUP


async def test_providers_and_regions_are_told(inside: Inside) -> None:
    providers = (await inside.arm.get(f"{HERE}/providers")).json()["value"]
    registered = (await inside.arm.post(f"{HERE}/providers/microsoft.compute/register")).json()
    regions = (await inside.arm.get(f"{HERE}/locations")).json()["value"]

    assert {"Microsoft.Network", "Microsoft.Storage"} <= {row["namespace"] for row in providers}
    assert registered["registrationState"] == "Registered"
    assert "virtualMachineScaleSets" in {row["resourceType"] for row in registered["resourceTypes"]}
    assert {"westeurope", "eastus", "japaneast"} <= {row["name"] for row in regions}
    assert refusal(await inside.arm.get(f"{HERE}/providers/Contoso.Things"))[0] == 404
    (await inside.arm.post(f"{HERE}/providers/Microsoft.Compute/unregister")).raise_for_status()
    refused = await inside.arm.put(SET, json=scale_set(1))
    assert refusal(refused) == (409, "MissingSubscriptionRegistration")


async def test_an_image_is_found_as_az_looks_for_it(inside: Inside) -> None:
    publishers = [row["name"] for row in (await inside.arm.get(IMAGES)).json()]
    (latest,) = (await inside.arm.get(UBUNTU, params={"$top": "1"})).json()
    image = (await inside.arm.get(f"{UBUNTU}/{latest['name']}")).json()

    assert "Canonical" in publishers
    assert image["properties"]["osDiskImage"]["operatingSystem"] == "Linux"
    assert (
        await inside.arm.get(f"{IMAGES}/Nobody/artifacttypes/vmimage/offers")
    ).status_code == 404


def error_of(response: httpx.Response) -> tuple[int, str]:
    return response.status_code, response.json()["error"]["code"]


@pytest.mark.parametrize(
    "body",
    [
        b"{",
        b"no",
        b'{"a": NaN}',
        b'{"a": "\xff"}',
        b'{"location": "\\ud800"}',
        b"[]",
        b"null",
        b"[" * 100_000,
        b'{"a": ' + b"9" * 5000 + b"}",
    ],
)
@pytest.mark.parametrize("path", [SET, GROUP_ID])
async def test_a_body_that_is_no_json_object(inside: Inside, path: str, body: bytes) -> None:
    response = await inside.arm.put(path, content=body)

    assert error_of(response) == (400, "InvalidRequestContent")
    assert "The request content was invalid and could not be deserialized: '" in response.text


async def test_a_body_of_more_than_four_mebibytes(inside: Inside) -> None:
    large = json.dumps({"location": "eastus", "tags": {"a": "b" * 4 * 1024 * 1024}}).encode()

    async def bit_by_bit() -> AsyncIterator[bytes]:
        for start in range(0, len(large), 65536):
            yield large[start : start + 65536]

    for content in (large, bit_by_bit()):
        response = await inside.arm.put(GROUP_ID, content=content)
        assert error_of(response) == (413, "RequestContentTooLarge")
    assert (await inside.arm.get(GROUP_ID)).json()["tags"] == {}


def test_deployments_may_send_what_only_people_would_write() -> None:
    text = """{
      // a remark
      "properties": {template: {$schema: "http://a//b/*c*/", /* and
        another */ "resources": [1, 2, /* two */ ], mode: "say \\"x, }\\"",},
      }
    }"""

    template = lenient_json.loads(text)["properties"]["template"]
    assert template == {"$schema": "http://a//b/*c*/", "resources": [1, 2], "mode": 'say "x, }"'}


@pytest.mark.parametrize("text", ["{a}", "{", "/* open", '{"a": "open', "{a: b}", ",", "[1,,]"])
def test_what_is_no_json_even_so(text: str) -> None:
    with pytest.raises(ValueError, match=r"line \d+"):
        lenient_json.loads(text)


@pytest.fixture
async def slow(tmp_path: Path) -> AsyncIterator[Inside]:
    async with emulator_inside(tmp_path, Clock(), create_seconds=60, delete_seconds=30) as emulator:
        yield emulator


async def test_a_put_names_both_addresses_and_time_decides(slow: Inside) -> None:
    response = await slow.arm.put(SET, json=scale_set(1))
    status, result = response.headers["Azure-AsyncOperation"], response.headers["Location"]
    assert (response.status_code, response.headers["Retry-After"]) == (201, "1")
    assert result == f"{status}&monitor=true"

    for _ in range(5):  # looking does not hasten it
        early = await slow.follow(status)
        assert (early.json()["status"], early.headers["Retry-After"]) == ("InProgress", "1")
        assert (await slow.follow(result)).status_code == 202
    await slow.pass_time(60)
    late = await slow.follow(status)
    assert late.json()["status"] == "Succeeded"
    assert late.json()["endTime"] > late.json()["startTime"]
    assert "Retry-After" not in late.headers
    assert (await slow.follow(result)).json()["name"] == "rk-1"
    assert (await slow.arm.put(SET, json=scale_set(1))).status_code == 200


async def test_operations_live_through_a_restart_and_an_hour(tmp_path: Path) -> None:
    clock = Clock()
    async with emulator_inside(tmp_path, clock, create_seconds=60) as slow:
        status = (await slow.arm.put(SET, json=scale_set(1))).headers["Azure-AsyncOperation"]
    async with emulator_inside(tmp_path, clock, create_seconds=60) as slow:
        assert (await slow.follow(status)).json()["status"] == "InProgress"
        await slow.pass_time(60)
        assert (await slow.follow(status)).json()["status"] == "Succeeded"

        clock.advance(minutes=59)
        await slow.fabric.step()
        assert (await slow.follow(status)).status_code == 200
        clock.advance(minutes=2)
        await slow.fabric.step()
        assert (await slow.follow(status)).status_code == 404


@pytest.fixture
async def running(tmp_path: Path) -> AsyncIterator[Inside]:
    async with emulator_inside(tmp_path, Clock()) as emulator:
        await emulator.arm.put(SET, json=scale_set(2))
        await emulator.pass_time(10)
        yield emulator


async def test_an_eviction_of_a_vm_by_its_name(running: Inside) -> None:
    rows = (await running.metadata.get("/_emulator/virtualMachines")).json()["value"]
    order = {"vm": rows[0]["name"], "notice": False}

    (await running.metadata.post("/_emulator/evict", json=order)).raise_for_status()
    await running.pass_time(10)

    remaining = (await running.metadata.get("/_emulator/virtualMachines")).json()["value"]
    assert [row["name"] for row in remaining] == [rows[1]["name"]]


async def test_every_request_is_in_the_log_without_its_secrets(inside: Inside) -> None:
    await inside.arm.put(f"{SETS}/rk-1", json=scale_set(1))
    ((_, vm),) = inside.fabric.instances()
    events = f"/vm/{vm.token}/metadata/scheduledevents?api-version=2020-07-01&sig=hidden"
    await inside.metadata.get(events, headers={"Metadata": "true"})

    log = await inside.arm.get("/_emulator/requests")
    put_entry, token_entry = log.json()["value"][-2:]
    assert (put_entry["method"], put_entry["path"], put_entry["status"]) == (
        "PUT",
        f"{SETS}/rk-1",
        201,
    )
    assert put_entry["principal"] == "tests"
    assert "api-version=2026-04-01" in put_entry["query"]
    assert (token_entry["path"], token_entry["principal"]) == (
        "/vm/…/metadata/scheduledevents",
        "rk-1_0",
    )
    secrets = (vm.token, "hidden", inside.arm.headers["authorization"].split()[1], "Not shown 1")
    assert not [secret for secret in secrets if secret in log.text]


async def test_the_log_is_searched_and_read_on(tmp_path: Path) -> None:
    async with emulator_inside(tmp_path, Clock(), requests_kept=4) as inside:
        for name in "abcde":
            await inside.arm.get(f"{SETS}/{name}")

        async def names(**query: str) -> list[str]:
            response = await inside.arm.get("/_emulator/requests", params=query)
            return [entry["path"][-1] for entry in response.json()["value"]]

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

    first, started_at = made(speed), clock().timestamp()
    assert first.now() == started_at
    clock.advance(seconds=10)
    assert first.now() == started_at + 10 * speed

    restarted = made(2.0)
    assert restarted.now() == started_at + 10 * speed
    clock.advance(seconds=1)
    assert restarted.now() == started_at + 10 * speed + 2
