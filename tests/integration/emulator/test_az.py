"""Requests as `az` 2.91 sends them: its paths, its cases, its versions, its half-empty bodies."""

from collections.abc import Iterator

import pytest

from tests.emulated.process import SUBSCRIPTION, TENANT, Emulator, scale_set, set_url, wait_for

HERE = f"/subscriptions/{SUBSCRIPTION}"
SETS = f"{HERE}/resourceGroups/rekindle/providers/Microsoft.Compute/virtualMachineScaleSets"


@pytest.fixture(scope="module")
def emulator(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Emulator]:
    """Yield an emulator without delays, with its resource group."""
    quick = ("--create-seconds", "0", "--delete-seconds", "0")
    running = Emulator(tmp_path_factory.mktemp("azure"), *quick)
    running.make_group()
    yield running
    running.destroy()


def test_az_registers_the_cloud_and_signs_in(emulator: Emulator) -> None:
    with emulator.http() as anonymous, emulator.signed_in() as client:
        cloud = anonymous.get("/metadata/endpoints?api-version=2022-09-01").json()
        openid = anonymous.get(f"/{TENANT}/v2.0/.well-known/openid-configuration").json()
        listed = client.get("/subscriptions?api-version=2022-12-01").json()["value"]

    assert cloud["resourceManager"] == cloud["authentication"]["loginEndpoint"] == emulator.arm_url
    assert openid["token_endpoint"] == f"{emulator.arm_url}/{TENANT}/oauth2/v2.0/token"
    assert [row["subscriptionId"] for row in listed] == [SUBSCRIPTION]


def test_az_writes_resource_groups_in_lower_case_and_polls_their_end(emulator: Emulator) -> None:
    group = f"{HERE}/resourcegroups/other?api-version=2024-11-01"
    with emulator.signed_in() as client:
        assert client.put(group, json={"location": "eastus"}).status_code == 201
        assert client.head(group).status_code == 204
        names = client.get(f"{HERE}/resourcegroups?api-version=2024-11-01").json()["value"]
        assert {"other", "rekindle"} <= {row["name"] for row in names}
        location = client.delete(group).headers["Location"]
        wait_for(lambda: client.get(location).status_code == 200)
        assert client.head(group).status_code == 404


def test_az_scales_with_a_body_of_place_and_size_only(emulator: Emulator) -> None:
    url = f"{SETS}/rk-az?api-version=2026-04-01"
    with emulator.signed_in() as client:
        made = client.put(set_url("rk-az"), json=scale_set(1)).json()
        size = {"location": "eastus", "sku": made["sku"] | {"capacity": 2}}
        scaled = client.put(url, json=size)
        wait_for(lambda: client.get(scaled.headers["Location"]).status_code == 200)
        shown = client.get(url).json()
        vms = client.get(f"{SETS}/rk-az/virtualMachines?api-version=2024-11-01").json()["value"]

    assert (shown["sku"]["capacity"], len(vms)) == (2, 2)
    assert shown["tags"] == made["tags"]
    assert shown["properties"]["virtualMachineProfile"]["priority"] == "Spot"


def test_az_evicts_deletes_and_counts_with_versions_of_its_own(emulator: Emulator) -> None:
    usages = f"{HERE}/providers/Microsoft.Compute/locations/eastus/usages?api-version=2024-11-01"
    old = "api-version=2023-09-01"
    with emulator.signed_in() as client:
        client.put(set_url("rk-az-2"), json=scale_set(1))
        wait_for(lambda: emulator.machines("rk-az-2")[0]["state"] == "running")
        names = {row["name"]["value"] for row in client.get(usages).json()["value"]}
        vm = f"{SETS}/rk-az-2/virtualMachines/0"
        assert client.post(f"{vm}/simulateEviction?{old}").status_code == 204
        deleted = client.delete(f"{SETS}/rk-az-2?{old}")
        wait_for(lambda: client.get(deleted.headers["Location"]).status_code == 200)
        assert client.delete(f"{SETS}/rk-az-2?{old}").status_code == 204

    assert {"cores", "lowPriorityCores", "virtualMachineScaleSets"} <= names
