"""The emulator's plain HTTP surface: headers, refusals, polling, prices, metadata."""

from collections.abc import Iterator

import httpx
import pytest

from tests.emulated.process import (
    Emulator,
    scale_set,
    set_url,
    wait_for,
)


@pytest.fixture(scope="module")
def emulator(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Emulator]:
    """An emulator in which creating takes a moment."""
    state = tmp_path_factory.mktemp("azure")
    running = Emulator(state, "--create-seconds", "0.3", "--delete-seconds", "0.2")
    running.make_group()
    yield running
    running.destroy()


def test_arm_wants_a_token_and_a_version_and_knows_no_case(emulator: Emulator) -> None:
    with emulator.http() as anonymous, emulator.signed_in() as client:
        url, path = set_url("nothing"), set_url("nothing").partition("?")[0]
        nobody = anonymous.get(url)
        stale = anonymous.get(url, headers={"Authorization": "Bearer no-jwt"})
        unversioned = client.get(path)
        shouting = client.get(url.replace(path, path.upper()))

    assert [r.status_code for r in (nobody, stale, unversioned, shouting)] == [401, 401, 400, 404]
    assert unversioned.json()["error"]["code"] == "MissingApiVersionParameter"
    assert shouting.json()["error"]["code"] == "ResourceNotFound"
    assert shouting.headers["x-ms-request-id"]
    assert shouting.headers["x-ms-correlation-request-id"]


def test_both_polling_addresses_answer(emulator: Emulator) -> None:
    with emulator.signed_in() as client:
        made = client.put(set_url("rk-polled"), json=scale_set(0))
        status, monitor = made.headers["Azure-AsyncOperation"], made.headers["Location"]
        assert (made.status_code, made.headers["Retry-After"]) == (201, "1")
        assert client.get(monitor).status_code == 202
        wait_for(lambda: client.get(status).json()["status"] == "Succeeded")

        assert client.get(monitor).json()["name"] == "rk-polled"
        assert client.put(set_url("RK-polled"), json=scale_set(0)).status_code == 200
        client.delete(set_url("rk-polled"))
        wait_for(lambda: client.delete(set_url("rk-polled")).status_code == 204)


def test_conditions_of_a_put_are_held(emulator: Emulator) -> None:
    url, body = set_url("rk-if"), scale_set(0)
    with emulator.signed_in() as client:

        def put(**headers: str) -> int:
            named = {name.replace("_", "-"): value for name, value in headers.items()}
            return client.put(url, json=body, headers=named).status_code

        assert put(If_Match="*") == 412
        assert put(If_None_Match="*") == 201
        assert put(If_None_Match="*") == 412
        assert put(If_Match=client.get(url).json()["etag"]) == 200
        assert put(If_Match='"1"') == 412
        client.delete(url)
        wait_for(lambda: client.get(url).status_code == 404)


def test_prices_need_no_sign_in(emulator: Emulator) -> None:
    wanted = (
        "armRegionName eq 'eastus' and armSkuName eq 'Standard_ND96amsr_A100_v4'"
        " and priceType eq 'Consumption'"
    )
    with emulator.http() as client:
        answer = client.get("/api/retail/prices", params={"$filter": wanted}).json()

    assert {m["skuName"]: m["retailPrice"] for m in answer["Items"]} == {
        "ND96amsr A100 v4": 32.77,
        "ND96amsr A100 v4 Spot": 8.441552,
        "ND96amsr A100 v4 Low Priority": 6.554,
    }
    assert answer["NextPageLink"] is None


def test_a_vm_learns_who_it_is_only_with_the_header(emulator: Emulator) -> None:
    with emulator.signed_in() as client:
        client.put(set_url("rk-who"), json=scale_set(1))
        (vm,) = emulator.machines("rk-who")
        url = f"{vm['metadata_url']}/metadata/instance?api-version=2021-02-01"
        told = httpx.get(url, headers={"Metadata": "true"}).json()

        assert httpx.get(url).status_code == 400
        assert told["compute"]["name"] == "rk-who_0"
        assert told["compute"]["vmId"] == vm["vm_id"]
        assert told["compute"]["tagsList"] == [{"name": "rekindle-owner", "value": "test"}]
        address = told["network"]["interface"][0]["ipv4"]["ipAddress"][0]["privateIpAddress"]
        assert address == vm["address"]
        client.delete(set_url("rk-who"))
        wait_for(lambda: client.get(set_url("rk-who")).status_code == 404)
        assert httpx.get(url, headers={"Metadata": "true"}).status_code == 404
