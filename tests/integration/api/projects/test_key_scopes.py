"""What each kind of key may do, over all routes and projects."""

import logging
import re
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from itertools import product
from typing import Any

import httpx
import pytest
from sqlalchemy import select

from contract.choices import Scope
from service.api.app import make_app
from service.db.schema.tables import projects
from service.operations.projects import keys
from tests.answers import document
from tests.nodes.scripted_node import boot
from tests.world import JOBS, MODEL, World, bearer, client

KEYS = "/v1/api_keys"
OPEN = {"livez", "readyz", "signIn"}
# POST that changes nothing and starts no code of users.
ASKS = {"createSimulation", "validateGrader"}
OPERATORS = {
    "auditCloudResources",
    "list-projects",
    "listAvailabilityTraces",
    "listProjectSavings",
    "retrieveSystem",
}
BODIES: dict[str, dict[str, Any]] = {  # good ones, of routes that look at them first
    "createSimulation": {"json": {"lives": 1}},
    "updateFineTuningJob": {"json": {"metadata": {"seen": "yes"}}},
    "moveFineTuningCheckpoint": {"json": {"tier": "cool"}},
    "moveFineTuningModel": {"json": {"tier": "cool"}},
    "previewFile": {"params": {"model": "rekindle/tiny-llama"}},
    "completeUpload": {"json": {"part_ids": ["part-1"]}},
    "addUploadPart": {"files": {"data": ("part", b"{}")}},
}


def routes() -> Iterator[tuple[str, str, str]]:
    """Every route of users: method, path with braces, operation."""
    for path, operations in document()["paths"].items():
        for method, operation in operations.items():
            if operation["operationId"] not in OPEN:
                yield method.upper(), path, operation["operationId"]


def needed_scope(method: str, operation: str) -> Scope:
    if operation in OPERATORS:
        return Scope.OPERATOR
    return Scope.READ if method == "GET" or operation in ASKS else Scope.WRITE


def outcome(response: httpx.Response) -> str:
    """`done` for all that got past the key, be it only to learn that there is no such thing."""
    if response.status_code in (401, 403):
        return str(response.json()["error"]["code"])
    return "done"


async def make_key(world: World, scope: Scope, project: str = "tests", **expiry: float) -> str:
    until = world.clock() + timedelta(**expiry) if expiry else None
    async with world.engine.begin() as conn:
        return await keys.create(
            conn, project, str(scope), world.clock(), scope=scope, expires_at=until
        )


@pytest.mark.timeout(120)
async def test_every_route_is_open_to_keys_of_its_scope_and_to_no_other(world: World) -> None:
    kinds = {str(scope): await make_key(world, scope) for scope in Scope}
    kinds["elsewhere"] = await make_key(world, Scope.OPERATOR, "others")
    kinds["expired"] = await make_key(world, Scope.OPERATOR, hours=1)
    kinds["revoked"] = await make_key(world, Scope.OPERATOR)
    (key_id,) = [
        key["id"]
        for key in (await world.call("GET", KEYS)).json()["data"]
        if key["hint"][-4:] == kinds["revoked"][-4:]
    ]
    await world.call("DELETE", f"{KEYS}/{key_id}")
    world.clock.advance(hours=2)
    outcomes = {}

    app = make_app(replace(world.parts, stream_lifetime=timedelta(0)))  # streams end at once
    http = client(app)
    for method, path, operation in routes():
        url = re.sub(r"\{[^}]*\}", "none", path)
        scope = needed_scope(method, operation)
        expected = {str(has): "done" for has in Scope if has.includes(scope)}
        expected |= {str(has): "insufficient_scope" for has in Scope if not has.includes(scope)}
        operator_outcome = "permission_denied" if scope is Scope.OPERATOR else "done"
        expected |= {
            "elsewhere": operator_outcome,
            "": "invalid_api_key",
            "revoked": "invalid_api_key",
        }
        expected["expired"] = "expired_api_key"
        for kind in expected:
            headers = bearer(kinds[kind]) if kind else {}
            response = await http.request(method, url, headers=headers)
            if outcome(response) != expected[kind]:
                outcomes[f"{operation} with {kind or 'no key'}"] = outcome(response)

    assert outcomes == {}


@pytest.mark.timeout(120)
async def test_no_route_shows_a_thing_of_another_project_to_any_kind_of_key(world: World) -> None:
    job = (await world.submit())["id"]
    await boot(world, job)
    (attempt,) = await world.attempts_of(job)
    body = await world.job_request()
    plan = (await world.call("POST", "/v1/fine_tuning/plans", json=body)).json()["id"]
    upload_body = {
        "filename": "a.jsonl",
        "purpose": "fine-tune",
        "bytes": 2,
        "mime_type": "text/plain",
    }
    upload = (await world.call("POST", "/v1/uploads", json=upload_body)).json()["id"]
    (key,) = (await world.call("GET", KEYS)).json()["data"]
    real = {"job_id": job, "attempt_id": attempt["id"], "plan_id": plan, "upload_id": upload}
    real |= {"file_id": body["training_file"], "key_id": key["id"], "name": "config.json"}
    real |= {"checkpoint_id": "ckpt-1", "model": f"{job}:ckpt-step-10"}
    other_keys = [await make_key(world, scope, "others") for scope in (Scope.WRITE, Scope.OPERATOR)]
    outcomes = {}

    for method, path, operation in routes():
        if "{" not in path:
            continue
        url = re.sub(r"\{(\w+)(:path)?\}", lambda match: real[match[1]], path)
        for other_key in other_keys:
            options = BODIES.get(operation, {})
            response = await world.http.request(method, url, headers=bearer(other_key), **options)
            if response.status_code != 404:
                outcomes[f"{method} {path}"] = (response.status_code, response.text[:200])

    assert outcomes == {}
    assert (await world.job(job))["status"] not in ("cancelled", "failed")


async def test_a_key_shows_its_creator_and_its_expiry(world: World) -> None:
    until = int((world.clock() + timedelta(days=1)).timestamp())
    body = {"name": "a", "expires_at": until}

    first = (await world.call("POST", KEYS, json=body)).json()
    reader = replace(world, key=first["key"])
    second = (await reader.call("POST", KEYS, json={"name": "b", "scope": "read"})).json()
    listed_keys = {k["name"]: k for k in (await world.call("GET", KEYS)).json()["data"]}

    assert listed_keys["tests"]["created_by"] is None
    assert listed_keys["a"]["created_by"] == listed_keys["tests"]["id"]
    assert listed_keys["b"]["created_by"] == first["id"]
    assert (first["scope"], second["scope"]) == ("write", "read")
    assert first["expires_at"] == second["expires_at"] == until
    assert second["last_used_at"] is None
    assert listed_keys["a"]["last_used_at"] == int(world.clock().timestamp())


async def test_a_key_that_a_replica_has_just_seen_expires_to_the_second(
    listening_world: World,
) -> None:
    reader = replace(listening_world, key=await make_key(listening_world, Scope.READ, seconds=5))
    assert outcome(await reader.call("GET", "/v1/files")) == "done"

    listening_world.clock.advance(seconds=5)
    response = await reader.call("GET", "/v1/files")

    assert outcome(response) == "expired_api_key"
    assert response.headers["www-authenticate"] == "Bearer"
    assert "expired at 2026-" in response.json()["error"]["message"]


async def test_only_an_operators_key_acts_in_another_project(world: World) -> None:
    await make_key(world, Scope.WRITE, "others")
    headers = {"openai-project": "others"}

    for scope in Scope:
        reader = replace(world, key=await make_key(world, scope))
        response = await reader.call("GET", JOBS, headers=headers)
        expected = "done" if scope is Scope.OPERATOR else "insufficient_scope"
        assert outcome(response) == expected, scope


PROJECTS = "/v1/organization/projects"


def of(project: str) -> dict[str, str]:
    return {"openai-project": project}


def error(response: httpx.Response) -> tuple[int, str]:
    return response.status_code, response.json()["error"]["code"]


async def id_of(world: World, name: str) -> str:
    async with world.engine.connect() as conn:
        query = select(projects.c.id).where(projects.c.name == name)
        return str((await conn.execute(query)).scalar_one())


@pytest.fixture
async def other_project(world: World) -> World:
    """Return the world with a key of the project `others` that is no operator's."""
    return replace(world, key=await world.other_key())


async def test_an_operator_has_jobs_in_another_project(world: World, other_project: World) -> None:
    job = (await other_project.submit())["id"]
    path = f"{JOBS}/{job}"

    for project in ("others", await id_of(world, "others")):
        response = await world.call("GET", JOBS, headers=of(project))
        assert [j["id"] for j in response.json()["data"]] == [job]
        for suffix in ("", "/events", "/attempts", "/cost"):
            reply = await world.call("GET", f"{path}{suffix}", headers=of(project))
            assert reply.status_code == 200, suffix
    for verb in ("pause", "resume", "cancel"):
        reply = await world.call("POST", f"{path}/{verb}", headers=of("others"))
        assert reply.status_code == 200, verb
    await world.tick(2)
    body = {"model": MODEL, "training_file": await other_project.upload()}
    created_job = (await world.call("POST", JOBS, json=body, headers=of("others"))).json()

    assert (await other_project.job(job))["status"] == "cancelled"
    assert (await other_project.job(created_job["id"]))["organization_id"] == await id_of(
        world, "others"
    )
    assert error(await world.call("POST", f"{path}/cancel")) == (404, "job_not_found")


async def test_events_name_the_key_and_whether_it_is_an_operators(
    world: World, other_project: World
) -> None:
    path = f"{JOBS}/{(await other_project.submit())['id']}"
    terms = {"infrastructure": {"budget": {"amount": "100"}}}
    await other_project.call("PATCH", path, json=terms)
    await world.call("PATCH", path, json={"metadata": {"seen": "yes"}}, headers=of("others"))
    await other_project.call("POST", f"{path}/pause")
    await other_project.call("POST", f"{path}/resume")
    await world.call("POST", f"{path}/cancel", headers=of("others"))

    events = (await other_project.call("GET", f"{path}/events?limit=100")).json()["data"]
    requests = [e for e in reversed(events) if e["code"].endswith(("_requested", ".changed"))]
    assert [e["message"] for e in requests] == [
        "Changed: budget to 100",
        "Changed by an operator: metadata",
        "Pause requested",
        "Resume requested",
        "Cancel requested by an operator",
    ]
    keys = [e["data"]["api_key_id"] for e in requests]
    (own_rows,), (operators,) = {keys[0], *keys[2:4]}, {keys[1], keys[4]}
    listed_keys = (await other_project.call("GET", "/v1/api_keys")).json()["data"]
    assert own_rows in {key["id"] for key in listed_keys}
    assert operators not in {key["id"] for key in listed_keys}


async def test_another_key_is_refused_in_other_projects(world: World, other_project: World) -> None:
    job = (await world.submit())["id"]
    other_job = (await other_project.submit())["id"]

    for project in ("tests", await id_of(world, "tests"), "nobodys"):  # what exists is not told
        for job_id, verb in product((job, other_job), ("cancel", "pause", "resume")):
            response = await other_project.call(
                "POST", f"{JOBS}/{job_id}/{verb}", headers=of(project)
            )
            assert error(response) == (403, "mismatched_project")
            assert "OPENAI_PROJECT_ID" in response.json()["error"]["message"]
    for project in ("others", await id_of(world, "others"), ""):
        response = await other_project.call("GET", f"{JOBS}/{other_job}", headers=of(project))
        assert response.status_code == 200

    assert (await world.job(job))["status_reason"]["code"] == "validating"


async def test_without_operators_no_key_acts_in_another(world: World, other_project: World) -> None:
    job = (await other_project.submit())["id"]
    async with world.beside(operator_project="") as replica:
        response = await replica.call("POST", f"{JOBS}/{job}/cancel", headers=of("others"))

    assert error(response) == (403, "mismatched_project")


async def test_a_kept_answer_is_of_the_project_that_it_was_asked_in(listening_world: World) -> None:
    other_project = replace(listening_world, key=await listening_world.other_key())
    path = f"{JOBS}/{(await other_project.submit())['id']}"
    own_path = f"{JOBS}/{(await listening_world.submit())['id']}"

    for _ in range(2):
        operator_response = await listening_world.call("GET", path, headers=of("others"))
        own_response = await listening_world.call("GET", path)
        mismatched = await other_project.call("GET", path, headers=of("tests"))
        other_own = await other_project.call("GET", path)
        response = await listening_world.call("GET", own_path, headers=of("others"))
        statuses = [
            a.status_code
            for a in (operator_response, own_response, mismatched, other_own, response)
        ]
        assert statuses == [200, 404, 403, 200, 404]


async def test_what_an_operator_does_in_another_project_is_logged(
    world: World, other_project: World, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    path = f"{JOBS}/{(await other_project.submit())['id']}/pause"
    (key,) = (await world.call("GET", "/v1/api_keys")).json()["data"]

    await world.call("POST", path, headers=of("others") | {"x-request-id": "req-night"})
    await world.call("GET", JOBS, headers=of("tests"))  # the operators' own
    await other_project.call("GET", JOBS, headers=of("others"))

    (record,) = [vars(r) for r in caplog.records if r.getMessage() == "operator.acts"]
    assert (record["key"], record["project"]) == (key["id"], await id_of(world, "others"))
    assert (record["method"], record["path"], record["request_id"]) == ("POST", path, "req-night")


async def test_operators_see_projects_without_machines_too(
    world: World, other_project: World
) -> None:
    world.clock.advance(seconds=1)
    await world.other_key("idle")
    job = (await other_project.submit())["id"]

    first = (await world.call("GET", f"{PROJECTS}?limit=2")).json()
    next_page = (await world.call("GET", f"{PROJECTS}?after={first['last_id']}")).json()
    having = (await world.call("GET", f"{PROJECTS}?job={job}")).json()["data"]
    no_projects = (await world.call("GET", f"{PROJECTS}?job=ftjob-1")).json()["data"]

    listed_projects = first["data"] + next_page["data"]
    assert listed_projects[0]["name"] == "idle"
    assert {p["name"] for p in listed_projects} == {"idle", "tests", "others"}
    assert (first["has_more"], next_page["has_more"]) == (True, False)
    assert [p["name"] for p in having] == ["others"]
    assert no_projects == []
