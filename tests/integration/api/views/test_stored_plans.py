"""Plans as a resource: made, read, taken for a job, and refused when they do not fit."""

from typing import Any

from tests.world import World

PLANS, JOBS = "/v1/fine_tuning/plans", "/v1/fine_tuning/jobs"


async def plan_job(world: World, **more: Any) -> tuple[dict[str, Any], dict[str, Any]]:  # noqa: ANN401
    """Return a request, and the plan of it."""
    body = await world.asked() | more
    answer = await world.call("POST", PLANS, json=body)
    assert answer.status_code == 200, answer.text
    plan: dict[str, Any] = answer.json()
    return body, plan


async def test_a_plan_is_kept_and_a_job_is_created_as_planned(world: World) -> None:
    body, plan = await plan_job(world, infrastructure={"nodes": 2, "budget": {"amount": "90"}})
    read = await world.call("GET", f"{PLANS}/{plan['id']}")
    job = await world.call("POST", JOBS, json=body | {"plan": plan["id"], "metadata": {"a": "b"}})

    assert read.json() == plan
    assert plan["expires_at"] - plan["created_at"] == 86_400
    assert plan["chosen"]["fits_budget"]
    assert plan["chosen"]["memory"]["needed"] > 0
    assert job.status_code == 200, job.text
    assert job.json()["plan"]["options"][0]["cost_p50"] == plan["chosen"]["cost_p50"]


async def test_the_next_places_are_shown_in_order_of_cost_and_what_is_cheaper_or_faster(
    world: World,
) -> None:
    _, plan = await plan_job(world)
    costs = [float(option["cost_p50"]) for option in (plan["chosen"], *plan["next"])]

    assert costs == sorted(costs)
    assert len(plan["next"]) == min(3, len(plan["plan"]["options"]) - 1)
    for found in plan["suggestions"]:
        member = {"cheaper": "cost_p50", "faster": "duration_p50"}[found["aim"]]
        assert float(found[member]) < float(plan["chosen"][member])


async def test_a_plan_expires(world: World) -> None:
    body, plan = await plan_job(world)
    world.clock.advance(hours=25)
    late = await world.call("POST", JOBS, json=body | {"plan": plan["id"]})

    assert (late.status_code, late.json()["error"]["param"]) == (400, "plan")
    assert "expired at" in late.json()["error"]["message"]
