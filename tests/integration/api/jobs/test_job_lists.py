"""Lists of jobs by filter and order, page by page, and the summary of a project."""

from dataclasses import replace

import pytest
from sqlalchemy import text

from service.domain.cloud.fleet import scale_set_name
from tests.nodes.scripted_node import boot, start_training
from tests.world import JOBS, World

SUMMARY = "/v1/fine_tuning/summary"


async def names(world: World, **params: object) -> list[str]:
    """Suffixes of the whole list, read in pages of two."""
    ids: list[str] = []
    while True:
        page = await world.get(JOBS, **{"limit": 2} | params)
        ids += [job["user_provided_suffix"] for job in page["data"]]
        if not page["has_more"]:
            return ids
        params["after"] = page["last_id"]


@pytest.fixture
async def jobs(world: World) -> dict[str, str]:
    """Ids of five jobs by their suffix, made in the order of the alphabet's end to its begin."""
    ids_by_name = {}
    for name in ("delta", "charlie", "bravo", "alpha", "echo"):
        world.clock.advance(seconds=1)
        team = {"team": f"Team {name[0].upper()}_1%"}
        ids_by_name[name] = str((await world.submit(suffix=name, metadata=team))["id"])
    return ids_by_name


async def update(world: World, job_id: str, assignment: str) -> None:
    async with world.engine.begin() as conn:
        await conn.execute(text(f"update jobs set {assignment} where id = :id"), {"id": job_id})


async def test_every_order_is_read_page_by_page(world: World, jobs: dict[str, str]) -> None:
    await update(world, jobs["bravo"], """progress = '{"step": 30}'""")
    await update(world, jobs["echo"], """progress = '{"step": 7}'""")
    await update(world, jobs["charlie"], "updated_at = now() + interval '1 year'")

    assert await names(world) == ["echo", "alpha", "bravo", "charlie", "delta"]
    assert await names(world, order="asc") == ["delta", "charlie", "bravo", "alpha", "echo"]
    alphabet = ["alpha", "bravo", "charlie", "delta", "echo"]
    assert await names(world, sort="name", order="asc") == alphabet
    assert await names(world, sort="name") == alphabet[::-1]
    by_progress = ["bravo", "echo", "alpha", "charlie", "delta"]
    assert await names(world, sort="progress") == by_progress
    assert await names(world, sort="progress", order="asc") == by_progress[::-1]
    assert (await names(world, sort="updated"))[0] == "charlie"


async def test_jobs_are_ordered_by_what_they_cost(world: World) -> None:
    for name in ("first", "second", "third"):
        world.clock.advance(seconds=1)
        job = str((await world.submit(suffix=name))["id"])
        await boot(world, job)

    dear_first = await names(world, sort="cost")
    response = await world.call("GET", JOBS, params={"sort": "cost"})
    costs = [float(job["cost"]["spent"]) for job in response.json()["data"]]

    assert dear_first == ["first", "second", "third"]
    assert costs == sorted(costs, reverse=True)
    assert costs[0] > 0
    assert await names(world, sort="cost", order="asc") == dear_first[::-1]


async def test_jobs_are_found_by_status_and_phases(world: World, jobs: dict[str, str]) -> None:
    await world.call("POST", f"{JOBS}/{jobs['alpha']}/cancel")
    await world.call("POST", f"{JOBS}/{jobs['bravo']}/pause")
    await world.tick(2)

    assert await names(world, status="cancelled") == ["alpha"]
    assert await names(world, phase=["paused", "cancelled"]) == ["alpha", "bravo"]
    assert await names(world, status="queued", phase="paused") == ["bravo"]
    assert await names(world, status="succeeded", phase="paused") == []
    assert len(await names(world, phase="waiting")) == 3
    listed_jobs = (await world.call("GET", JOBS)).json()["data"]
    assert {job["estimated_finish"] for job in listed_jobs} == {None}, "none trains"


async def test_jobs_are_found_by_a_part_of_their_texts(world: World, jobs: dict[str, str]) -> None:
    all_names = ["echo", "alpha", "bravo", "charlie", "delta"]
    matches = {"LPH": ["alpha"], "c_1%": ["charlie"], "%": all_names, "tiny-llama": all_names}
    matches |= {"nothing": [], jobs["delta"][4:]: ["delta"]}

    assert {search: await names(world, search=search) for search in matches} == matches


async def test_a_summary_counts_jobs_money_and_evictions(world: World) -> None:
    empty = await world.get(SUMMARY)
    _, nodes, number = await start_training(world, step=5)
    running = await world.get(SUMMARY)
    world.cloud.evict(scale_set_name(nodes[0].attempt_id))
    await nodes[0].notice(number, 5)
    await world.tick(12)
    evicted = await world.get(SUMMARY)
    other_summary = await replace(world, key=await world.other_key()).get(SUMMARY)

    assert other_summary["jobs"] == 0
    assert (empty["jobs"], empty["per_hour"], empty["today"]["evictions"]) == (0, "0.0000", 0)
    assert running["phases"] | {"training": 0} == empty["phases"]
    assert (running["jobs"], running["phases"]["training"]) == (1, 1)
    assert (running["per_hour"], running["on_demand_per_hour"]) == ("16.8800", "65.5400")
    assert float(running["month"]["spent"]) > 0
    assert float(running["month"]["saved"]) > float(running["month"]["spent"])
    assert evicted["today"]["evictions"] == 1
