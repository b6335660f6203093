"""What answers only to callers on this machine, and what only to those who are signed in."""

import httpx
import pytest

from emulator.app import arm
from tests.emulated.azureml import JOBS, WORKSPACE, make_workspace, submit
from tests.emulated.inside import HERE, Inside

RUN = f"/history/v1.0{WORKSPACE}/runs/a"


@pytest.mark.parametrize("path", ["/_emulator/principals", "/_EMULATOR/Requests"])
async def test_other_machines_cannot_move_the_emulator(inside: Inside, path: str) -> None:
    application = arm(inside.fabric)
    answers = []
    for peer in ("10.0.0.9", "127.0.0.1"):
        transport = httpx.ASGITransport(app=application, client=(peer, 50_000))
        async with httpx.AsyncClient(transport=transport, base_url="https://azure") as caller:
            answers.append((await caller.get(path)).status_code)
            answers.append((await caller.get(f"{HERE}/resourceGroups")).status_code)

    assert answers == [403, 401, 200, 401]  # ARM itself answers to everybody


async def test_the_history_of_runs_is_for_those_who_are_signed_in(inside: Inside) -> None:
    await make_workspace(inside)
    await submit(inside, "a")
    change = f"/history/v1.0{WORKSPACE}/experiments/Default/runs/a"
    signed_in = [await inside.arm.get(RUN), await inside.arm.patch(change, json={})]
    del inside.arm.headers["authorization"]
    refused = [await inside.arm.get(RUN), await inside.arm.patch(change, json={})]
    refused += [await inside.arm.get(RUN + "/details"), await inside.arm.get(f"{JOBS}/a")]

    assert [answer.status_code for answer in signed_in] == [200, 200]
    assert [answer.status_code for answer in refused] == [401] * 4
