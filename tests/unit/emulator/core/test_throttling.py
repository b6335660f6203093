"""How often Azure lets itself be asked, and what it says then."""

import json
from pathlib import Path

import httpx
import pytest

from emulator.arm.throttling_policies import policy_of
from tests.clock import Clock
from tests.emulated.inside import HERE, SET, SETS, Inside, emulator_inside
from tests.emulated.process import scale_set

COMPUTE = f"{HERE}/providers/Microsoft.Compute"


async def ask(inside: Inside, path: str, times: int) -> list[int]:
    return [(await inside.arm.get(path)).status_code for _ in range(times)]


def remaining_requests(response: httpx.Response) -> dict[str, int]:
    """Return the number of requests left under each rate limit policy of Microsoft.Compute."""
    lines = response.headers.get_list("x-ms-ratelimit-remaining-resource")
    remaining = dict(line.removeprefix("Microsoft.Compute/").split(";") for line in lines)
    return {name: int(count) for name, count in remaining.items()}


async def made(inside: Inside, *names: str) -> None:
    for name in names:
        (await inside.arm.put(f"{SETS}/{name}", json=scale_set(1))).raise_for_status()


async def test_each_answer_tells_what_is_left(tmp_path: Path) -> None:
    async with emulator_inside(tmp_path, Clock(), throttling="azure") as inside:
        await made(inside, "rk-1")
        response = await inside.arm.get(SET)
        assert remaining_requests(response) == {
            "GetVMScaleSetResource": 35,
            "GetVMScaleSetSubscriptionMaximum": 2399,
        }
        assert response.headers["x-ms-request-charge"] == "1"
        assert int(response.headers["x-ms-ratelimit-remaining-subscription-reads"]) == 249

        changed = await inside.arm.patch(SET, json={"tags": {"a": "b"}})
        assert remaining_requests(changed)["UpdateVMScaleSetResource"] == 11
        assert int(changed.headers["x-ms-ratelimit-remaining-subscription-writes"]) == 197
        deleted = await inside.arm.delete(SET)
        assert remaining_requests(deleted)["DeleteVMScaleSetSubscriptionMaximum"] == 524
        assert int(deleted.headers["x-ms-ratelimit-remaining-subscription-deletes"]) == 199


async def test_the_thirteenth_update_of_a_minute_is_refused_in_azures_words(tmp_path: Path) -> None:
    clock = Clock()
    async with emulator_inside(tmp_path, clock, throttling="azure") as inside:
        await made(inside, "rk-1")
        clock.advance(seconds=10)
        answers = [await inside.arm.patch(SET, json={"tags": {"n": str(n)}}) for n in range(13)]
        assert [a.status_code for a in answers] == [200] * 12 + [429]

        clock.advance(seconds=20)
        refused = await inside.arm.patch(SET, json={"tags": {}})
        error = refused.json()["error"]
        assert error["code"] == "OperationNotAllowed"
        assert error["message"] == (
            "The server rejected the request because too many requests have been received for "
            "this subscription."
        )
        detail = error["details"][0]
        assert (detail["code"], detail["target"]) == ("TooManyRequests", "UpdateVMScaleSetResource")
        window = json.loads(detail["message"])
        assert window["operationGroup"] == "UpdateVMScaleSetResource"
        assert (window["allowedRequestCount"], window["measuredRequestCount"]) == (12, 14)
        assert refused.headers["retry-after"] == "40"
        assert remaining_requests(refused)["UpdateVMScaleSetResource"] == 0
        assert (await inside.arm.get(SET)).json()["tags"] == {"n": "11"}

        clock.advance(seconds=40)  # four come back
        answers = [await inside.arm.patch(SET, json={"tags": {"n": str(n)}}) for n in range(5)]
        assert [a.status_code for a in answers] == [200] * 4 + [429]


async def test_one_scale_set_does_not_use_up_what_another_may(tmp_path: Path) -> None:
    async with emulator_inside(tmp_path, Clock(), throttling="azure") as inside:
        await made(inside, "rk-1", "rk-2")
        assert (await ask(inside, f"{SET}/virtualMachines", 31))[-2:] == [200, 429]
        assert await ask(inside, f"{SETS}/rk-2/virtualMachines", 1) == [200]
        assert await ask(inside, SET.upper().replace("RK-1", "rk-1"), 1) == [200]


async def test_arm_itself_refuses_after_250_reads_and_gives_25_back_a_second(
    tmp_path: Path,
) -> None:
    clock = Clock()
    async with emulator_inside(tmp_path, clock, throttling="azure") as inside:
        await made(inside)
        groups = f"{HERE}/resourceGroups"
        assert (await ask(inside, groups, 251))[-2:] == [200, 429]
        refused = await inside.arm.get(groups)
        assert refused.json()["error"]["code"] == "SubscriptionRequestsThrottled"
        assert refused.headers["retry-after"] == "1"
        clock.advance(seconds=1)
        assert (await ask(inside, groups, 26))[-2:] == [200, 429]


@pytest.mark.parametrize(
    ("method", "path", "name"),
    [
        ("GET", SETS, "HighCostGetVMScaleSet"),
        (
            "GET",
            f"{HERE}/providers/Microsoft.Compute/virtualMachineScaleSets",
            "HighCostGetVMScaleSet",
        ),
        ("GET", f"{SET}/instanceView", "HighCostGetVMScaleSet"),
        ("GET", f"{SET}/virtualMachines/0", "GetVMScaleSetVM"),
        ("POST", f"{SET}/virtualMachines/0/simulateEviction", "UpdateVMScaleSetVM"),
        ("POST", f"{SET}/virtualMachines/0/deallocate", "DeleteVMScaleSetVM"),
        ("PUT", SET, "CreateVMScaleSet"),
        ("PATCH", SET, "UpdateVMScaleSet"),
        ("POST", f"{SET}/delete", "DeleteVMScaleSet"),
        ("DELETE", SET, "DeleteVMScaleSet"),
        ("GET", f"{COMPUTE}/locations/eastus/operations/1", "GetOperation"),
        ("GET", f"{COMPUTE}/locations/eastus/usages", None),
        ("GET", f"{HERE}/resourceGroups", None),
    ],
)
def test_what_is_measured_by_which_policy(method: str, path: str, name: str | None) -> None:
    policy = policy_of(method, path.lower(), exists=False)

    assert (policy and policy.name) == name
