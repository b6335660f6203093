"""What else a form of POST /v1/files says: when the file expires, and its name in any encoding."""

from typing import Any

from service.reconciler.sweeps.uploads import UploadSweep
from tests.integration.api.files.test_uploads import ANCHOR, END, FILE, LIFE, PURPOSE, post_form
from tests.world import DATASET, World


async def test_a_file_expires_unless_a_job_reads_it(world: World) -> None:
    files = [(await post_form(world, PURPOSE, ANCHOR, LIFE % 7200, FILE, DATASET, END)).json()]
    files += [
        (
            await post_form(
                world, FILE, DATASET, "\r\n", ANCHOR, LIFE % 7200, PURPOSE.rstrip(), END
            )
        ).json()
    ]
    job = (
        await world.call("POST", "/v1/fine_tuning/jobs", json=await job_request(world, files[0]))
    ).json()
    sweep = UploadSweep(engine=world.engine, store=world.store, now=world.clock)

    assert files[1]["expires_at"] == files[1]["created_at"] + 7200
    world.clock.advance(seconds=7199)
    assert await sweep.run_once() == []
    world.clock.advance(seconds=1)
    assert await sweep.run_once() == [files[1]["id"]]
    assert (await world.call("GET", f"/v1/files/{files[1]['id']}")).status_code == 404
    assert (await world.call("GET", f"/v1/files/{files[0]['id']}")).json()["expires_at"]
    await world.call("POST", f"/v1/fine_tuning/jobs/{job['id']}/cancel")
    assert await sweep.run_once() == [files[0]["id"]]


async def job_request(world: World, file: dict[str, Any]) -> dict[str, Any]:
    return await world.asked() | {"training_file": file["id"]}


NAMES = {
    'filename="größe.jsonl"': "größe.jsonl",  # browsers, curl, httpx
    "filename*=UTF-8''gr%C3%B6%C3%9Fe.jsonl": "größe.jsonl",  # requests
    "filename=\"gr__e.jsonl\"; filename*=utf-8'de'gr%C3%B6%C3%9Fe.jsonl": "größe.jsonl",
    "filename=\"plain.jsonl\"; filename*=UTF-8''%FF": "plain.jsonl",
    "filename=\"plain.jsonl\"; filename*=no-charset''a": "plain.jsonl",
    "filename=\"a; filename*=UTF-8''b\"": "a; filename*=UTF-8''b",
    r'filename="a\"b.jsonl"': 'a"b.jsonl',  # older curl
    'filename="a%22b.jsonl"': 'a"b.jsonl',  # browsers, Node
}


async def test_a_file_has_the_name_that_its_client_meant(world: World) -> None:
    for sent, name in NAMES.items():
        named = FILE.replace('filename="t.jsonl"', sent)
        answer = await post_form(world, PURPOSE, named, DATASET, END)
        assert (answer.status_code, answer.json().get("filename")) == (200, name), answer.text
