"""URLs and bodies as people write them: slashes, HEAD, forms, other services' names."""

from tests.world import World

JOBS = "/v1/fine_tuning/jobs"


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


async def test_a_file_of_a_job_that_is_asked_to_end_can_be_deleted(world: World) -> None:
    """DSPy's cancel deletes the file at once."""
    job = await world.submit()
    await world.call("POST", f"{JOBS}/{job['id']}/cancel")
    deleted = await world.call("DELETE", f"/v1/files/{job['training_file']}")
    await world.tick(3)

    assert deleted.json()["deleted"]
    assert (await world.job(job["id"]))["status"] == "cancelled"
