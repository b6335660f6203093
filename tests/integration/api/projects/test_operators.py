"""OpenAI-Project: an operator's key acts in any project, every other key in its own alone."""

import logging
from dataclasses import replace
from itertools import product

import httpx
import pytest
from sqlalchemy import select

from service.db.schema.tables import projects
from tests.world import JOBS, MODEL, World

PROJECTS = "/v1/organization/projects"


def of(project: str) -> dict[str, str]:
    return {"openai-project": project}


def error(answer: httpx.Response) -> tuple[int, str]:
    return answer.status_code, answer.json()["error"]["code"]


async def id_of(world: World, name: str) -> str:
    async with world.engine.connect() as conn:
        query = select(projects.c.id).where(projects.c.name == name)
        return str((await conn.execute(query)).scalar_one())


@pytest.fixture
async def theirs(world: World) -> World:
    """Return the world with a key of the project `others` that is no operator's."""
    return replace(world, key=await world.other_key())


async def test_an_operator_has_jobs_in_another_project(world: World, theirs: World) -> None:
    job = (await theirs.submit())["id"]
    path = f"{JOBS}/{job}"

    for project in ("others", await id_of(world, "others")):
        listed = await world.call("GET", JOBS, headers=of(project))
        assert [j["id"] for j in listed.json()["data"]] == [job]
        for part in ("", "/events", "/attempts", "/cost"):
            answer = await world.call("GET", f"{path}{part}", headers=of(project))
            assert answer.status_code == 200, part
    for verb in ("pause", "resume", "cancel"):
        answer = await world.call("POST", f"{path}/{verb}", headers=of("others"))
        assert answer.status_code == 200, verb
    await world.tick(2)
    body = {"model": MODEL, "training_file": await theirs.upload()}
    made = (await world.call("POST", JOBS, json=body, headers=of("others"))).json()

    assert (await theirs.job(job))["status"] == "cancelled"
    assert (await theirs.job(made["id"]))["organization_id"] == await id_of(world, "others")
    assert error(await world.call("POST", f"{path}/cancel")) == (404, "job_not_found")


async def test_events_name_the_key_and_whether_it_is_an_operators(
    world: World, theirs: World
) -> None:
    path = f"{JOBS}/{(await theirs.submit())['id']}"
    terms = {"infrastructure": {"budget": {"amount": "100"}}}
    await theirs.call("PATCH", path, json=terms)
    await world.call("PATCH", path, json={"metadata": {"seen": "yes"}}, headers=of("others"))
    await theirs.call("POST", f"{path}/pause")
    await theirs.call("POST", f"{path}/resume")
    await world.call("POST", f"{path}/cancel", headers=of("others"))

    told = (await theirs.call("GET", f"{path}/events?limit=100")).json()["data"]
    asked = [e for e in reversed(told) if e["code"].endswith(("_requested", ".changed"))]
    assert [e["message"] for e in asked] == [
        "Changed: budget to 100",
        "Changed by an operator: metadata",
        "Pause requested",
        "Resume requested",
        "Cancel requested by an operator",
    ]
    keys = [e["data"]["api_key_id"] for e in asked]
    (own,), (operators,) = {keys[0], *keys[2:4]}, {keys[1], keys[4]}
    listed = (await theirs.call("GET", "/v1/api_keys")).json()["data"]
    assert own in {key["id"] for key in listed}
    assert operators not in {key["id"] for key in listed}


async def test_another_key_is_refused_in_other_projects(world: World, theirs: World) -> None:
    job = (await world.submit())["id"]
    mine = (await theirs.submit())["id"]

    for project in ("tests", await id_of(world, "tests"), "nobodys"):  # what exists is not told
        for one, verb in product((job, mine), ("cancel", "pause", "resume")):
            answer = await theirs.call("POST", f"{JOBS}/{one}/{verb}", headers=of(project))
            assert error(answer) == (403, "mismatched_project")
            assert "OPENAI_PROJECT_ID" in answer.json()["error"]["message"]
    for project in ("others", await id_of(world, "others"), ""):
        answer = await theirs.call("GET", f"{JOBS}/{mine}", headers=of(project))
        assert answer.status_code == 200

    assert (await world.job(job))["status_reason"]["code"] == "validating"


async def test_without_operators_no_key_acts_in_another(world: World, theirs: World) -> None:
    job = (await theirs.submit())["id"]
    async with world.beside(operator_project="") as other:
        answer = await other.call("POST", f"{JOBS}/{job}/cancel", headers=of("others"))

    assert error(answer) == (403, "mismatched_project")


async def test_a_kept_answer_is_of_the_project_that_it_was_asked_in(heard: World) -> None:
    theirs = replace(heard, key=await heard.other_key())
    path, mine = f"{JOBS}/{(await theirs.submit())['id']}", f"{JOBS}/{(await heard.submit())['id']}"

    for _ in range(2):
        there = await heard.call("GET", path, headers=of("others"))
        here = await heard.call("GET", path)
        mismatched = await theirs.call("GET", path, headers=of("tests"))
        own = await theirs.call("GET", path)
        strange = await heard.call("GET", mine, headers=of("others"))
        statuses = [a.status_code for a in (there, here, mismatched, own, strange)]
        assert statuses == [200, 404, 403, 200, 404]


async def test_what_an_operator_does_in_another_project_is_logged(
    world: World, theirs: World, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    path = f"{JOBS}/{(await theirs.submit())['id']}/pause"
    (key,) = (await world.call("GET", "/v1/api_keys")).json()["data"]

    await world.call("POST", path, headers=of("others") | {"x-request-id": "req-night"})
    await world.call("GET", JOBS, headers=of("tests"))  # the operators' own
    await theirs.call("GET", JOBS, headers=of("others"))

    (told,) = [vars(r) for r in caplog.records if r.getMessage() == "operator.acts"]
    assert (told["key"], told["project"]) == (key["id"], await id_of(world, "others"))
    assert (told["method"], told["path"], told["request_id"]) == ("POST", path, "req-night")


async def test_operators_see_projects_without_machines_too(world: World, theirs: World) -> None:
    world.clock.advance(seconds=1)
    await world.other_key("idle")
    job = (await theirs.submit())["id"]

    first = (await world.call("GET", f"{PROJECTS}?limit=2")).json()
    rest = (await world.call("GET", f"{PROJECTS}?after={first['last_id']}")).json()
    having = (await world.call("GET", f"{PROJECTS}?job={job}")).json()["data"]
    none = (await world.call("GET", f"{PROJECTS}?job=ftjob-1")).json()["data"]

    found = first["data"] + rest["data"]
    assert found[0]["name"] == "idle"
    assert {p["name"] for p in found} == {"idle", "tests", "others"}
    assert (first["has_more"], rest["has_more"]) == (True, False)
    assert [p["name"] for p in having] == ["others"]
    assert none == []
