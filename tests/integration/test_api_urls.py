"""URLs and bodies as people write them: slashes, HEAD, forms, other services' names."""

import re
from typing import Any

import pytest

from tests.world import World

JOBS = "/v1/fine_tuning/jobs"
JSON = {"content-type": "application/json"}
FORM = {"content-type": "application/x-www-form-urlencoded"}
HINTS = [
    ("POST", "/v1/chat/completions", "does not serve them"),
    ("POST", "/openai/deployments/m/chat/completions", "does not serve them"),
    ("POST", "/v1/responses", "does not serve them"),
    ("GET", "/v1/evals", "validation_file"),
    ("POST", "/v1/fine-tunes", "Use /v1/fine_tuning/jobs"),
    ("GET", "/v1/v1/models", "/v1 twice"),
    ("GET", "/files", "begin with /v1"),
    ("GET", "/v1/nothing", "/docs"),
]
WRONG: list[tuple[str, bytes, dict[str, str], int, str | None, str]] = [
    ("an empty body", b"", JSON, 400, None, "a JSON object is expected"),
    ("a form", b"model=m&training_file=f", FORM, 415, None, "JSON is expected"),
    ("no content type", b"{}", {}, 415, None, "JSON is expected"),
    (
        "a compressed body",
        b"\x1f\x8b",
        JSON | {"content-encoding": "gzip"},
        415,
        None,
        "plain JSON",
    ),
    ("broken JSON", b'{"model": ', JSON, 400, None, "not valid JSON"),
    ("a list", b"[]", JSON, 400, None, "a JSON object is expected"),
    ("NaN", b'{"model": NaN}', JSON, 400, None, "NaN"),
    (
        "an empty name",
        b'{"model": "m", "training_file": ""}',
        JSON,
        400,
        "training_file",
        "at least 1 character",
    ),
    (
        "a control character in a name",
        b'{"model": "m", "training_file": "f", "suffix": "a\\nb"}',
        JSON,
        400,
        "suffix",
        "control characters",
    ),
    (
        "a number for an object",
        b'{"model": "m", "training_file": "f", "infrastructure": {"budget": 5}}',
        JSON,
        400,
        "infrastructure.budget",
        'a JSON object is expected. Use infrastructure.budget: {"amount": "50"}.',
    ),
    ("no file", b'{"model": "m"}', JSON, 400, "training_file", "training_file: missing."),
    (
        "a misspelt member",
        b'{"traning_file": "f"}',
        JSON,
        400,
        "traning_file",
        "Did you mean training_file?",
    ),
    (
        "a misspelt option",
        b'{"training": {"ema_deccay": 1}}',
        JSON,
        400,
        "training.ema_deccay",
        "training.ema_decay?",
    ),
    (
        "an option of another member",
        b'{"method": {"type": "dpo", "dpo": {"l2_multiplier": 0.1}}}',
        JSON,
        400,
        "method.dpo.l2_multiplier",
        "weight decay",
    ),
]


@pytest.mark.parametrize(("method", "path", "says"), HINTS, ids=[h[1] for h in HINTS])
async def test_a_url_that_is_not_here_says_what_to_use(
    world: World, method: str, path: str, says: str
) -> None:
    answer = await world.call(method, path)

    assert (answer.status_code, answer.json()["error"]["code"]) == (404, "unknown_url")
    assert says in answer.json()["error"]["message"]


@pytest.mark.parametrize(
    ("body", "headers", "status", "param", "says"),
    [w[1:] for w in WRONG],
    ids=[w[0] for w in WRONG],
)
async def test_a_body_that_is_wrong_says_what_is_expected(
    world: World, body: bytes, headers: dict[str, str], status: int, param: str | None, says: str
) -> None:
    answer = await world.call("POST", JOBS, content=body, headers=headers)
    error: dict[str, Any] = answer.json()["error"]

    assert (answer.status_code, error["param"]) == (status, param)
    assert says in error["message"]


async def test_a_trailing_slash_is_answered_and_not_redirected(world: World) -> None:
    for path in ("/v1/models/", f"{JOBS}/", "/openai/v1/files/"):
        assert (await world.call("GET", path)).status_code == 200


async def test_head_is_answered_as_get_without_the_body(world: World) -> None:
    job = (await world.submit())["id"]
    file = await world.upload()
    for path in ("/v1/models", f"{JOBS}/{job}", f"/v1/files/{file}/content", "/livez"):
        got, head = await world.call("GET", path), await world.call("HEAD", path)
        assert (head.status_code, head.content) == (200, b"")
        assert head.headers["content-length"] == got.headers["content-length"]
    assert (await world.call("HEAD", f"{JOBS}/{job}/cancel")).status_code == 405


async def test_a_method_that_a_url_lacks_is_answered_with_all_that_it_has(world: World) -> None:
    allowed = {
        "/v1/files": "GET, HEAD, POST",
        "/v1/files/f": "GET, HEAD, DELETE",
        f"{JOBS}/j": "GET, HEAD, PATCH",
        f"{JOBS}/j/cancel": "POST",
    }
    for path, methods in allowed.items():
        answer = await world.call("PUT", path)
        assert (answer.status_code, answer.headers["allow"]) == (405, methods)
        assert methods in answer.json()["error"]["message"]


async def test_an_empty_filter_of_metadata_gives_the_jobs_without_any(world: World) -> None:
    """OpenAI's Node client writes ``metadata: null`` as an empty value."""
    await world.submit(metadata={"team": "a"})
    bare = (await world.submit())["id"]
    for query in ("metadata=null", "metadata="):
        listed = (await world.call("GET", f"{JOBS}?{query}")).json()["data"]
        assert [job["id"] for job in listed] == [bare]
    wrong = await world.call("GET", f"{JOBS}?metadata=a")
    assert (wrong.status_code, wrong.json()["error"]["param"]) == (400, "metadata")


async def test_a_file_of_a_job_that_is_asked_to_end_can_be_deleted(world: World) -> None:
    """DSPy's cancel deletes the file at once."""
    job = await world.submit()
    await world.call("POST", f"{JOBS}/{job['id']}/cancel")
    deleted = await world.call("DELETE", f"/v1/files/{job['training_file']}")
    await world.tick(3)

    assert deleted.json()["deleted"]
    assert (await world.job(job["id"]))["status"] == "cancelled"


async def test_a_job_that_is_over_cannot_be_resumed(world: World) -> None:
    job = (await world.submit())["id"]
    await world.call("POST", f"{JOBS}/{job}/cancel")
    await world.tick(3)
    answer = await world.call("POST", f"{JOBS}/{job}/resume")

    assert (answer.status_code, answer.json()["error"]["code"]) == (409, "invalid_job_state")


async def test_the_page_of_the_api_loads_nothing_from_another_host(world: World) -> None:
    page = (await world.http.get("/docs")).text
    loaded = re.findall(r'(?:src|href)="([^"]+)"', page)

    assert loaded
    for url in loaded:
        assert (await world.http.get(f"/{url}")).status_code == 200
    assert "https://" not in page


async def test_a_purpose_that_no_file_has_is_refused_with_those_that_there_are(
    world: World,
) -> None:
    answer = await world.call("GET", "/v1/files?purpose=finetune")

    assert (answer.status_code, answer.json()["error"]["param"]) == (400, "purpose")
    assert "fine-tune" in answer.json()["error"]["message"]
