"""Planted faults on the wire: what a client of Azure sees of each, and how they come and go."""

import json
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.emulated.process import Emulator, scale_set, set_url, wait_for

SHORT = ("--create-seconds", "0.3", "--delete-seconds", "0.2")


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Emulator]:
    azure_emulator = Emulator(tmp_path_factory.mktemp("azure"), *SHORT)
    azure_emulator.make_group()
    yield azure_emulator
    azure_emulator.destroy()


@pytest.fixture
def emulator(running: Emulator) -> Iterator[Emulator]:
    yield running
    running.clear_faults()


@pytest.fixture
def arm(emulator: Emulator) -> Iterator[httpx.Client]:
    with emulator.signed_in() as client:
        yield client


def plant(emulator: Emulator, kind: str, **members: object) -> str:
    response = emulator.admin("faults", {"kind": kind, **members})
    return str(response.raise_for_status().json()["id"])


def test_a_throttled_answer_has_azures_headers_and_body(
    emulator: Emulator, arm: httpx.Client
) -> None:
    plant(emulator, "throttle", retry_after=17, count=1)
    response = arm.put(set_url("throttled"), json=scale_set(1))
    error = response.json()["error"]
    window = json.loads(error["details"][0]["message"])

    assert (response.status_code, response.headers["retry-after"]) == (429, "17")
    assert (
        response.headers["x-ms-ratelimit-remaining-resource"]
        == "Microsoft.Compute/CreateVMScaleSet30Min;0"
    )
    assert "x-ms-request-id" in response.headers
    assert (error["code"], error["details"][0]["code"]) == (
        "OperationNotAllowed",
        "TooManyRequests",
    )
    assert window["measuredRequestCount"] > window["allowedRequestCount"]
    assert arm.get(set_url("throttled")).status_code == 404


def test_a_gateway_fails_with_a_page(emulator: Emulator, arm: httpx.Client) -> None:
    plant(emulator, "error", status=502, count=1)
    response = arm.get(set_url("any"))

    assert response.status_code == 502
    assert response.headers["content-type"].startswith("text/html")


@pytest.mark.parametrize("kind", ["drop", "slow"])
@pytest.mark.parametrize(("when", "status"), [("before", 404), ("after", 200)])
def test_an_answer_is_lost_or_late_before_or_after_the_effect(
    emulator: Emulator, arm: httpx.Client, kind: str, when: str, status: int
) -> None:
    url = set_url(f"{kind}-{when}")
    plant(emulator, kind, when=when, delay=10, method="PUT", count=1)
    with pytest.raises(httpx.TransportError):
        arm.put(url, json=scale_set(0), timeout=httpx.Timeout(20, read=0.5))

    assert arm.get(url).status_code == status


def test_a_fault_meets_what_it_names_and_nothing_else(
    emulator: Emulator, arm: httpx.Client
) -> None:
    plant(emulator, "error", method="PUT", region="westus3", vm_size="Standard_ND96amsr_A100_v4")
    other_set = scale_set(0)
    body = scale_set(0) | {"location": "westus3"}

    assert arm.put(set_url("elsewhere"), json=other_set).status_code == 201
    assert arm.get(set_url("elsewhere")).status_code == 200
    assert arm.put(set_url("there"), json=body).status_code == 500
    assert [f["struck"] for f in emulator.faults()] == [1]


def test_nobody_is_kept_from_signing_in_unless_the_fault_says_so(emulator: Emulator) -> None:
    plant(emulator, "error")
    emulator.signed_in().close()
    plant(emulator, "error", path="/oauth2/")

    with pytest.raises(httpx.HTTPStatusError):
        emulator.signed_in()


def test_a_fault_ends_when_its_time_is_over(emulator: Emulator, arm: httpx.Client) -> None:
    plant(emulator, "error", seconds=0.5)
    first = arm.get(set_url("any")).status_code

    assert first == 500
    wait_for(lambda: arm.get(set_url("any")).status_code == 404)


def test_a_restart_forgets_neither_a_fault_nor_what_it_has_begun(tmp_path: Path) -> None:
    emulator = Emulator(tmp_path, *SHORT)
    emulator.make_group()
    plant(emulator, "allocation_failed", code="ZonalAllocationFailed", delay=1, count=1)
    plant(emulator, "throttle", method="DELETE", count=1)
    with emulator.signed_in() as arm:
        operation = arm.put(set_url("late"), json=scale_set(2)).headers["azure-asyncoperation"]
    emulator.stop()
    emulator.start()
    with emulator.signed_in() as arm:
        failed_operation = wait_for(
            lambda: (b := arm.get(operation).json())["status"] == "Failed" and b
        )
        failed = arm.get(set_url("late")).json()["properties"]["provisioningState"]
        throttled = arm.delete(set_url("late")).status_code
    struck_by_kind = {f["kind"]: f["struck"] for f in emulator.faults()}
    emulator.destroy()

    assert failed_operation["error"]["code"] == "ZonalAllocationFailed"
    assert (failed, throttled) == ("Failed", 429)
    assert struck_by_kind == {"allocation_failed": 1, "throttle": 1}
