"""POST /v1/fine_tuning/jobs/{id}/simulation, and `rekindle simulate` as it shows it."""

from datetime import timedelta

import pytest

from rekindle.cli.jobs.simulate import strategies_table
from tests.world import World

JOBS = "/v1/fine_tuning/jobs"


async def test_a_job_is_lived_many_times_without_being_changed(world: World) -> None:
    job = (await world.submit())["id"]
    before = await world.call("GET", f"{JOBS}/{job}")

    answer = await world.call(
        "POST", f"{JOBS}/{job}/simulation", json={"deadline_hours": 3, "lives": 2}
    )

    told = answer.json()
    assert answer.status_code == 200, answer.text
    assert [way["name"] for way in told["ways"]] == ["rekindle", "spot_only", "on_demand"]
    assert told["ways"][0]["in_time_pct"] == 100
    after = await world.call("GET", f"{JOBS}/{job}")
    assert after.json()["status"] == before.json()["status"]
    assert strategies_table(told).row_count == 3


async def test_a_job_with_a_deadline_is_lived_with_it(world: World) -> None:
    until = int((world.clock() + timedelta(hours=5)).timestamp())
    job = (await world.submit(infrastructure={"deadline": until}))["id"]

    own = (await world.call("POST", f"{JOBS}/{job}/simulation", json={"lives": 1})).json()
    asked = {"lives": 1, "deadline_hours": 7}
    other = (await world.call("POST", f"{JOBS}/{job}/simulation", json=asked)).json()

    assert [way["name"] for way in own["ways"]] == ["rekindle", "spot_only", "on_demand"]
    assert own["deadline_hours"] == pytest.approx(5, abs=0.1)
    assert other["deadline_hours"] == 7
