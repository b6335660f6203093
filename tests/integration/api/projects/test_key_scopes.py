"""What each kind of key may do, over all routes; and that a key makes no mightier one."""

import re
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from typing import Any

import httpx
import pytest

from contract.choices import Scope
from service.api.app import make_app
from service.operations.projects import keys
from tests.answers import document
from tests.nodes.scripted_node import boot
from tests.world import World, client

KEYS = "/v1/api_keys"
JOBS = "/v1/fine_tuning/jobs"
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


def bearer(key: str) -> dict[str, str]:
    return {"authorization": f"Bearer {key}"}


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


def outcome(answer: httpx.Response) -> str:
    """`done` for all that got past the key, be it only to learn that there is no such thing."""
    if answer.status_code in (401, 403):
        return str(answer.json()["error"]["code"])
    return "done"


async def make_key(world: World, scope: Scope, project: str = "tests", **life: float) -> str:
    until = world.clock() + timedelta(**life) if life else None
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
    met = {}

    app = make_app(replace(world.parts, stream_lifetime=timedelta(0)))  # streams end at once
    http = client(app)
    for method, path, operation in routes():
        url = re.sub(r"\{[^}]*\}", "none", path)
        scope = needed_scope(method, operation)
        expected = {str(has): "done" for has in Scope if has.includes(scope)}
        expected |= {str(has): "insufficient_scope" for has in Scope if not has.includes(scope)}
        beyond = "permission_denied" if scope is Scope.OPERATOR else "done"
        expected |= {"elsewhere": beyond, "": "invalid_api_key", "revoked": "invalid_api_key"}
        expected["expired"] = "expired_api_key"
        for kind in expected:
            headers = bearer(kinds[kind]) if kind else {}
            answer = await http.request(method, url, headers=headers)
            if outcome(answer) != expected[kind]:
                met[f"{operation} with {kind or 'no key'}"] = outcome(answer)

    assert met == {}


@pytest.mark.timeout(120)
async def test_no_route_shows_a_thing_of_another_project_to_any_kind_of_key(world: World) -> None:
    job = (await world.submit())["id"]
    await boot(world, job)
    (attempt,) = await world.attempts_of(job)
    asked = await world.asked()
    plan = (await world.call("POST", "/v1/fine_tuning/plans", json=asked)).json()["id"]
    sent = {"filename": "a.jsonl", "purpose": "fine-tune", "bytes": 2, "mime_type": "text/plain"}
    upload = (await world.call("POST", "/v1/uploads", json=sent)).json()["id"]
    (key,) = (await world.call("GET", KEYS)).json()["data"]
    real = {"job_id": job, "attempt_id": attempt["id"], "plan_id": plan, "upload_id": upload}
    real |= {"file_id": asked["training_file"], "key_id": key["id"], "name": "config.json"}
    real |= {"checkpoint_id": "ckpt-1", "model": f"{job}:ckpt-step-10"}
    others = [await make_key(world, scope, "others") for scope in (Scope.WRITE, Scope.OPERATOR)]
    met = {}

    for method, path, operation in routes():
        if "{" not in path:
            continue
        url = re.sub(r"\{(\w+)(:path)?\}", lambda found: real[found[1]], path)
        for theirs in others:
            more = BODIES.get(operation, {})
            answer = await world.http.request(method, url, headers=bearer(theirs), **more)
            if answer.status_code != 404:
                met[f"{method} {path}"] = (answer.status_code, answer.text[:200])

    assert met == {}
    assert (await world.job(job))["status"] not in ("cancelled", "failed")


async def test_a_key_makes_a_key_that_may_do_less(world: World) -> None:
    writes = replace(world, key=await make_key(world, Scope.WRITE))

    less = await writes.call("POST", KEYS, json={"name": "a", "scope": "read"})

    assert less.json()["scope"] == "read"


async def test_a_key_shows_its_creator_and_its_expiry(world: World) -> None:
    until = int((world.clock() + timedelta(days=1)).timestamp())
    body = {"name": "a", "expires_at": until}

    first = (await world.call("POST", KEYS, json=body)).json()
    theirs = replace(world, key=first["key"])
    second = (await theirs.call("POST", KEYS, json={"name": "b"})).json()
    listed = {k["name"]: k for k in (await world.call("GET", KEYS)).json()["data"]}

    assert listed["tests"]["created_by"] is None
    assert listed["a"]["created_by"] == listed["tests"]["id"]
    assert listed["b"]["created_by"] == first["id"]
    assert (first["scope"], first["expires_at"], second["expires_at"]) == ("write", until, until)
    assert second["last_used_at"] is None
    assert listed["a"]["last_used_at"] == int(world.clock().timestamp())


async def test_a_key_that_a_replica_has_just_seen_expires_to_the_second(heard: World) -> None:
    theirs = replace(heard, key=await make_key(heard, Scope.READ, seconds=5))
    assert outcome(await theirs.call("GET", "/v1/files")) == "done"

    heard.clock.advance(seconds=5)
    answer = await theirs.call("GET", "/v1/files")

    assert outcome(answer) == "expired_api_key"
    assert answer.headers["www-authenticate"] == "Bearer"
    assert "expired at 2026-" in answer.json()["error"]["message"]


async def test_only_an_operators_key_acts_in_another_project(world: World) -> None:
    await make_key(world, Scope.WRITE, "others")
    there = {"openai-project": "others"}

    for scope in Scope:
        theirs = replace(world, key=await make_key(world, scope))
        answer = await theirs.call("GET", JOBS, headers=there)
        expected = "done" if scope is Scope.OPERATOR else "insufficient_scope"
        assert outcome(answer) == expected, scope
