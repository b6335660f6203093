"""Queries and URLs: what a route does not know is refused by name, on every route there is."""

import inspect
from typing import Any

import httpx
from fastapi.dependencies.models import Dependant
from fastapi.routing import APIRoute

from service.api.app import make_app
from service.api.files import files
from service.api.jobs import attempts, events, jobs, logs
from service.api.models import models
from service.api.money import costs
from service.api.projects import api_keys
from tests.world import JOBS, World

LISTS = [
    *("/v1/files", "/v1/api_keys", "/v1/organization/projects"),
    *(JOBS, f"{JOBS}/ID/events", f"{JOBS}/ID/checkpoints"),
]


def check_refusal(response: httpx.Response, code: str, param: str) -> str:
    error: dict[str, Any] = response.json()["error"]
    assert (response.status_code, error["code"], error["param"]) == (400, code, param), error
    return str(error["message"])


async def test_an_unknown_member_is_refused_by_every_route_of_ours(world: World) -> None:
    job = await world.submit()
    file, paths = job["training_file"], make_app(world.parts).openapi()["paths"]
    routes = [(verb, path) for path, verbs in paths.items() for verb in verbs]
    operations = [(verb, path) for verb, path in routes if path.startswith("/v1/")]

    for verb, path in operations:
        url = path.replace("{job_id}", job["id"]).replace("{file_id}", file)
        response = await world.call(verb.upper(), url, params={"limti": "5"})
        assert "limti: unknown query parameter" in check_refusal(
            response, "unknown_parameter", "limti"
        ), path

    assert len(operations) > 15


async def test_a_bad_limit_is_refused_on_every_list_and_a_huge_one_is_cut(world: World) -> None:
    job = (await world.submit())["id"]
    for path in LISTS:
        for limit in ("0", "-1", "x", "1.5", "", "1e3"):
            response = await world.call("GET", path.replace("ID", job), params={"limit": limit})
            assert "limit" in check_refusal(response, "invalid_value", "limit"), path
        huge = await world.call("GET", path.replace("ID", job), params={"limit": 10**30})
        assert huge.status_code == 200, path


async def test_an_unknown_cursor_is_refused_on_every_list(world: World) -> None:
    job = (await world.submit())["id"]
    for path in LISTS:
        for cursor in ("nothing", ""):
            response = await world.call("GET", path.replace("ID", job), params={"after": cursor})
            assert "without `after`" in check_refusal(response, "unknown_cursor", "after"), path


async def test_a_list_by_metadata_is_paged_like_any_other(world: World) -> None:
    job_ids = []
    for metadata in ({"team": "a", "n": "1"}, {"team": "a"}, {"n": "1", "team": "a"}, None):
        world.clock.advance(seconds=1)
        job_ids.append((await world.submit(metadata=metadata))["id"])
    *labelled, unlabelled = job_ids

    async def ids(**params: object) -> tuple[list[str], bool]:
        response = (await world.call("GET", JOBS, params=params)).json()
        return [job["id"] for job in response["data"]], response["has_more"]

    assert await ids() == ([unlabelled, *reversed(labelled)], False)
    assert await ids(**{"metadata[team]": "a", "limit": 2}) == ([labelled[2], labelled[1]], True)
    assert await ids(**{"metadata[team]": "a", "after": labelled[1]}) == ([labelled[0]], False)
    first_page_params = {"metadata[team]": "a", "metadata[n]": "1"}
    assert await ids(**first_page_params) == ([labelled[2], labelled[0]], False)
    assert await ids(**first_page_params | {"metadata[n]": "2"}) == ([], False)
    for empty in ("null", ""):  # OpenAI's Node client writes null as an empty value
        assert await ids(metadata=empty) == ([unlabelled], False)


def test_no_request_takes_a_thread_for_what_it_depends_on() -> None:
    """The hottest route would queue for one of a few threads, behind whatever blocks there."""
    modules = (files, jobs, events, attempts, costs, logs, models, api_keys)
    routes = [r for m in modules for r in m.router.routes if isinstance(r, APIRoute)]

    def blocking(dependant: Dependant) -> list[object]:
        inner = [call for dependency in dependant.dependencies for call in blocking(dependency)]
        call = dependant.call
        function = call if inspect.isroutine(call) else type(call).__call__
        is_async = inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function)
        return inner if is_async else [*inner, call]

    assert len(routes) > 15
    assert [call for route in routes for call in blocking(route.dependant)] == []


async def test_a_trailing_slash_is_answered_and_head_as_get_without_the_body(world: World) -> None:
    for path in ("/v1/models/", f"{JOBS}/", "/openai/v1/files/"):
        assert (await world.call("GET", path)).status_code == 200, "no redirect"
    job = (await world.submit())["id"]
    file = await world.upload()
    for path in ("/v1/models", f"{JOBS}/{job}", f"/v1/files/{file}/content", "/livez"):
        get_response, head = await world.call("GET", path), await world.call("HEAD", path)
        assert (head.status_code, head.content) == (200, b"")
        assert head.headers["content-length"] == get_response.headers["content-length"]
    assert (await world.call("HEAD", f"{JOBS}/{job}/cancel")).status_code == 405


async def test_a_method_that_a_url_lacks_is_answered_with_all_that_it_has(world: World) -> None:
    allowed = {
        "/v1/files": "GET, HEAD, POST",
        "/v1/files/f": "GET, HEAD, DELETE",
        f"{JOBS}/j": "GET, HEAD, PATCH",
        f"{JOBS}/j/cancel": "POST",
    }
    for path, methods in allowed.items():
        response = await world.call("PUT", path)
        assert (response.status_code, response.headers["allow"]) == (405, methods)
        assert methods in response.json()["error"]["message"]


async def test_a_file_of_a_job_that_is_asked_to_end_can_be_deleted(world: World) -> None:
    """DSPy's cancel deletes the file at once."""
    job = await world.submit()
    await world.call("POST", f"{JOBS}/{job['id']}/cancel")
    deleted = await world.call("DELETE", f"/v1/files/{job['training_file']}")
    await world.tick(3)

    assert deleted.json()["deleted"]
    assert (await world.job(job["id"]))["status"] == "cancelled"
