"""Whatever is sent, a scale set's addresses answer in Azure's form, and stay usable."""

import asyncio
import copy
import json
import tempfile
from pathlib import Path
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.clock import Clock
from tests.emulated.inside import SETS, Inside, emulator_inside
from tests.emulated.process import scale_set

FLEXIBLE: dict[str, Any] = {
    **scale_set(1),
    "zones": ["1"],
    "identity": {"type": "UserAssigned", "userAssignedIdentities": {}},
    "properties": {
        "orchestrationMode": "Flexible",
        "platformFaultDomainCount": 1,
        "spotRestorePolicy": {"enabled": True, "restoreTimeout": "PT1H"},
        "scaleInPolicy": {"rules": ["Default"]},
        "virtualMachineProfile": {
            **scale_set(1)["properties"]["virtualMachineProfile"],
            "userData": "aGVsbG8=",
            "capacityReservation": {"capacityReservationGroup": {"id": ""}},
            "scheduledEventsProfile": {"terminateNotificationProfile": {"enable": False}},
            "networkProfile": {
                "networkApiVersion": "2020-11-01",
                "networkInterfaceConfigurations": [
                    {"properties": {"ipConfigurations": [{"properties": {"subnet": {"id": "/"}}}]}}
                ],
            },
        },
    },
}
BODIES: list[tuple[str, str, dict[str, Any]]] = [
    ("PUT", "new", scale_set(1)),
    ("PUT", "new", FLEXIBLE),
    ("PUT", "old", scale_set(1)),
    ("PATCH", "old", scale_set(2)),
    ("PATCH", "flex", FLEXIBLE),
    ("POST", "old/start", {"instanceIds": ["0"]}),
    ("POST", "old/delete", {"instanceIds": ["0"]}),
]
ODD: st.SearchStrategy[Any] = st.sampled_from(
    [None, True, -1, 0, 2**40, 1e308, float("nan"), "", "2", "\ud800", [], {}]
)
JSON = st.recursive(
    ODD | st.text(max_size=3) | st.integers() | st.floats(),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=2), inner),
    max_leaves=3,
)


def member_paths(value: object, path: tuple[str | int, ...] = ()) -> list[tuple[str | int, ...]]:
    """Return the path of each member of a body, the body itself first."""
    inside: list[tuple[str | int, object]] = []
    if isinstance(value, dict):
        inside = list(value.items())
    elif isinstance(value, list):
        inside = list(enumerate(value))
    return [path, *(p for key, member in inside for p in member_paths(member, (*path, key)))]


@st.composite
def requests(draw: st.DrawFn) -> tuple[str, str, str]:
    """Draw a valid request and replace up to two places in its body by arbitrary JSON."""
    method, path, valid = draw(st.sampled_from(BODIES))
    body: Any = copy.deepcopy(valid)
    for _ in range(draw(st.integers(1, 2))):
        where = draw(st.sampled_from(member_paths(body)[1:] or [()]))
        if not where:
            break
        target = body
        for key in where[:-1]:
            target = target[key]
        target[where[-1]] = draw(JSON)
    return method, path, json.dumps(body)


async def _answers(rows: list[tuple[str, str, str]]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        async with emulator_inside(Path(folder), Clock()) as inside:
            (await inside.arm.put(f"{SETS}/old", json=scale_set(1))).raise_for_status()
            (await inside.arm.put(f"{SETS}/flex", json=FLEXIBLE)).raise_for_status()
            await inside.pass_time(4)
            for method, path, body in rows:
                response = await inside.arm.request(method, f"{SETS}/{path}", content=body)
                assert response.status_code < 500, (response.text, body)
                if response.status_code >= 400:
                    assert response.json()["error"]["code"], body
                await inside.pass_time(4, step=2)
            for name in ("old", "new", "flex"):
                listed = await inside.arm.get(f"{SETS}/{name}/virtualMachines")
                assert listed.status_code in (200, 404)


async def test_a_number_beyond_all_bounds_is_refused(inside: Inside) -> None:
    body = json.dumps({**scale_set(1), "plan": {"name": "HUGE"}}).replace('"HUGE"', "1e400")
    response = await inside.arm.put(f"{SETS}/new", content=body)
    assert response.status_code == 400


@settings(max_examples=40)
@given(st.lists(requests(), min_size=1, max_size=4))
def test_no_body_breaks_anything(rows: list[tuple[str, str, str]]) -> None:
    asyncio.run(_answers(rows))
