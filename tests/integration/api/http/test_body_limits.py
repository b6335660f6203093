from collections.abc import AsyncIterator, Iterator

from service.api.app import make_routes
from service.api.http.requests import LONG_BODY, USUAL_BODY
from tests.world import World

LONG = {
    "completeUpload",
    "createFineTuningJob",
    "createFineTuningPlan",
    "runGrader",
    "validateGrader",
}
OPEN = {"signIn"}  # its short body is what its sender is known by: test_api_sign_in.py


def bodies() -> Iterator[tuple[str, str, str, bool]]:
    """Of every operation that takes a body: its name, method and path, and whether it is JSON."""
    for path, operations in make_routes().openapi()["paths"].items():
        for method, operation in operations.items():
            body = operation.get("requestBody")
            if body and operation["operationId"] not in OPEN:
                is_json = "application/json" in body["content"]
                plain = path.replace("{", "").replace("}", "")
                yield operation["operationId"], method.upper(), plain, is_json


BODIES = [(name, method, path) for name, method, path, _ in bodies()]
JSON = [(name, method, path) for name, method, path, is_json in bodies() if is_json]


async def body(size: int, read: list[int]) -> AsyncIterator[bytes]:
    """Yield a string in JSON of ``size`` bytes, in chunks; ``read``: how much of it was taken."""
    yield b'"'
    for sent in range(1, size - 1, 1024):
        piece = b"x" * min(1024, size - 1 - sent)
        read.append(len(piece))
        yield piece
    yield b'"'


async def test_no_byte_of_a_body_is_read_before_the_key_is_known(world: World) -> None:
    for key in ({}, {"authorization": "Bearer rk-of-nobody"}):
        headers = {"content-type": "application/json"} | key
        for name, method, path in BODIES:
            read: list[int] = []
            sent = body(10_000, read)
            answer = await world.http.request(method, path, headers=headers, content=sent)

            assert (answer.status_code, read) == (401, []), name


async def test_a_body_in_json_has_64_kib_where_no_more_is_needed(world: World) -> None:
    headers = {"content-type": "application/json"}
    for name, method, path in JSON:
        most = LONG_BODY if name in LONG else USUAL_BODY
        fits = await world.call(method, path, headers=headers, content=body(most, []))
        read: list[int] = []
        refused = await world.call(method, path, headers=headers, content=body(2 * most, read))

        assert fits.status_code != 413, name
        assert refused.status_code == 413, name
        assert sum(read) <= most + 2048, name
