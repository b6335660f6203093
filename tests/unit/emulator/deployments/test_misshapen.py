"""Whatever is wrong with a template, the answer is Azure's: a refusal or a plan, never a crash."""

import copy
import json
import random
from collections.abc import Iterator
from pathlib import Path

from tests.clock import Clock
from tests.emulated.inside import emulator_inside
from tests.unit.emulator.deployments.deployed import DEPLOYMENTS, Json, body

TEMPLATE = json.loads((Path(__file__).parents[4] / "infra" / "main.json").read_text())
JUNK: list[Json] = [
    *(None, 1, -1, True, "", [], {}, [1], {"a": 1}, 1e300),
    *("[", "[x", "[parameters(1)]", "[resourceId()]", "[concat(1)]", "[reference()]"),
    *("[copyIndex(null())]", "[listKeys()]", "[range(0, 5)]", "[format('{9}')]"),
]


async def test_a_template_with_any_member_spoilt_is_answered(tmp_path: Path) -> None:
    draw = random.Random(4)
    passed = {"sshPublicKey": "k", "databasePassword": "Horse-battery-1", "secretKey": "x" * 40}
    whole = body(TEMPLATE, **passed)
    places = [place for place in _places(whole) if place]
    async with emulator_inside(tmp_path, Clock()) as azure:
        await azure.make_group()
        for _ in range(100):
            spoilt = _spoilt(whole, draw.choice(places), draw)
            answer = await azure.arm.post(f"{DEPLOYMENTS}/d/validate", json=spoilt)
            assert answer.status_code in (200, 400), answer.text


def _places(value: Json, here: tuple[Json, ...] = ()) -> Iterator[tuple[Json, ...]]:
    yield here
    inner = value.items() if isinstance(value, dict) else enumerate(value)
    for key, part in inner:
        if isinstance(part, dict | list):
            yield from _places(part, (*here, key))
        else:
            yield (*here, key)


def _spoilt(whole: Json, place: tuple[Json, ...], draw: random.Random) -> Json:
    spoilt = copy.deepcopy(whole)
    target = spoilt
    for key in place[:-1]:
        target = target[key]
    target[place[-1]] = draw.choice(JUNK)
    return spoilt
