"""POST /v1/files: checked while it streams, flat in memory, and nothing is left of what fails."""

import asyncio
import json
import tracemalloc
from collections.abc import AsyncIterator
from dataclasses import dataclass, field, replace
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest
from starlette.types import Receive, Scope, Send

from service.api.app import make_app
from service.db.files.files import CONTAINER
from service.domain.datasets.dataset import DatasetLimits
from service.reconciler.sweeps.uploads import UploadSweep
from service.storage.azure import AzureBlobStore
from service.storage.fake import MemoryStore
from service.storage.store import Blob
from tests.azurite import Azurite
from tests.served import served
from tests.world import DATASET, ROW, World

BOUNDARY = "the-boundary"
MIB = 1024 * 1024
PURPOSE = f'--{BOUNDARY}\r\nContent-Disposition: form-data; name="purpose"\r\n\r\nfine-tune\r\n'
FILE = f'--{BOUNDARY}\r\nContent-Disposition: form-data; name="file"; filename="t.jsonl"\r\n\r\n'
END = f"\r\n--{BOUNDARY}--\r\n"
HEADERS = {"content-type": f"multipart/form-data; boundary={BOUNDARY}"}
SECONDS = "expires_after[seconds]"
ANCHOR = PURPOSE.replace("purpose", "expires_after[anchor]").replace("fine-tune", "created_at")
LIFE = PURPOSE.replace("purpose", SECONDS).replace("fine-tune", "%s")


def form(*parts: str | bytes) -> bytes:
    return b"".join(p.encode() if isinstance(p, str) else p for p in parts)


async def post_form(world: World, *parts: str | bytes) -> httpx.Response:
    return await world.call("POST", "/v1/files", content=form(*parts), headers=HEADERS)


async def list_kept(world: World) -> tuple[list[Any], list[Blob]]:
    """Return what is left of uploads: rows and blobs."""
    rows = (await world.call("GET", "/v1/files")).json()["data"]
    return rows, await world.store.list_blobs(CONTAINER)


async def test_what_does_not_apply_is_left_out_and_not_null(world: World) -> None:
    file = (await post_form(world, PURPOSE, FILE, DATASET, END)).json()

    assert set(file) == {
        *("id", "object", "bytes", "created_at", "filename", "purpose", "status", "examples"),
        *("counts", "warnings", "format"),
    }
    assert type(file["created_at"]) is int


async def test_a_form_that_never_ends_is_refused(world: World) -> None:
    sent_bytes = 0

    async def endless() -> AsyncIterator[bytes]:
        nonlocal sent_bytes
        yield form(PURPOSE, FILE, DATASET, END)
        while sent_bytes < 10 * MIB:
            sent_bytes += 1000
            yield b"x" * 1000

    response = await world.call("POST", "/v1/files", content=endless(), headers=HEADERS)

    assert response.status_code == 400
    assert "goes on after its last boundary" in response.json()["error"]["message"]
    assert sent_bytes < 100_000
    assert await list_kept(world) == ([], [])


@dataclass
class Sink(MemoryStore):
    """Counts what is uploaded and forgets it."""

    received: list[int] = field(default_factory=list)

    async def upload(self, container: str, name: str, chunks: AsyncIterator[bytes]) -> Blob:
        async for chunk in chunks:
            self.received.append(len(chunk))
        return Blob(name=name, size=sum(self.received), etag=f"0x{container}")


async def large(mebibytes: int) -> AsyncIterator[bytes]:
    """Yield a form with that many MiB of valid rows."""
    yield form(PURPOSE, FILE)
    row = {"messages": [ROW["messages"][0], {"role": "assistant", "content": "a" * 65_000}]}
    line = json.dumps(row).encode() + b"\n"
    for _ in range(mebibytes * MIB // len(line)):
        yield line
    yield END.encode()


async def test_memory_stays_flat_however_large_the_file(world: World) -> None:
    store = Sink()
    async with world.beside(store=store) as replica:
        tracemalloc.start()
        try:
            response = await replica.call("POST", "/v1/files", content=large(24), headers=HEADERS)
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()

    assert response.status_code == 200, response.text
    assert response.json()["bytes"] == sum(store.received) > 23 * MIB
    assert peak < 4 * MIB, f"{peak / MIB:.1f} MiB"


async def test_a_file_beyond_the_limit_is_refused_before_it_has_come_whole(world: World) -> None:
    sent_bytes = 0

    async def endless() -> AsyncIterator[bytes]:
        nonlocal sent_bytes
        yield form(PURPOSE, FILE)
        chunk = b"a" * (8 * MIB)
        while sent_bytes < 128 * MIB:
            sent_bytes += len(chunk)
            yield chunk

    limits = DatasetLimits(max_bytes=32 * MIB)
    async with world.beside(store=Sink(), limits=limits) as replica:
        response = await replica.call("POST", "/v1/files", content=endless(), headers=HEADERS)
    headers = HEADERS | {"content-length": str(world.parts.limits.max_bytes * 2)}
    short_form = form(PURPOSE, FILE, DATASET)
    early_response = await world.call("POST", "/v1/files", content=short_form, headers=headers)

    for refusal in (response, early_response):
        assert (refusal.status_code, refusal.json()["error"]["code"]) == (413, "payload_too_large")
    assert "REKINDLE_FILE_MAX_BYTES" in response.json()["error"]["message"]
    assert sent_bytes < limits.max_bytes + 16 * MIB


async def test_an_upload_that_is_cut_off_leaves_nothing(world: World, azurite: Azurite) -> None:
    store = AzureBlobStore(azurite.connection_string)
    await store.create_container(CONTAINER)
    before = await store.list_blobs(CONTAINER)
    app, stopped = make_app(replace(world.parts, store=store)), asyncio.Event()

    async def watched(scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await app(scope, receive, send)
        finally:
            stopped.set()

    async with served(watched) as url:
        address = urlsplit(url)
        _, writer = await asyncio.open_connection(address.hostname, address.port)
        head = (
            f"POST /v1/files HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {world.key}\r\n"
            f"Content-Type: {HEADERS['content-type']}\r\nContent-Length: {32 * MIB}\r\n\r\n"
        )
        writer.write(form(head, PURPOSE, FILE, DATASET * 2000))  # several blocks of Blob's
        await writer.drain()
        writer.close()
        async with asyncio.timeout(60):
            await stopped.wait()

    after = await store.list_blobs(CONTAINER)
    await store.close()
    assert after == before
    assert (await list_kept(world))[0] == []


@pytest.mark.parametrize("spoilt", ["key", "purpose"])
async def test_a_refusal_reaches_a_client_that_still_sends(world: World, spoilt: str) -> None:
    purpose = PURPOSE.replace("fine-tune", "batch") if spoilt == "purpose" else PURPOSE
    key = "rk-wrong" if spoilt == "key" else world.key

    async def much() -> AsyncIterator[bytes]:
        yield form(purpose, FILE)
        for _ in range(32):
            yield b"a" * MIB
        yield END.encode()

    async with served(make_app(world.parts)) as url, httpx.AsyncClient() as http:
        response = await http.post(
            f"{url}/v1/files", content=much(), headers=HEADERS | {"authorization": f"Bearer {key}"}
        )

    assert response.status_code == (401 if spoilt == "key" else 400)


async def test_a_refusal_holds_every_error_with_its_line(world: World) -> None:
    response = await post_form(world, PURPOSE, FILE, DATASET + b"\n{}" * 150, END)

    error = response.json()["error"]
    assert error["counts"] == {"missing_messages_list": 150}
    assert [e["line"] for e in error["errors"]] == list(range(41, 141))
    assert set(error["errors"][0]) == {"line", "code", "message"}


async def test_warnings_come_with_the_file_and_are_counted_in_the_list(world: World) -> None:
    file = (await post_form(world, PURPOSE, FILE, DATASET, END)).json()
    file_object = (await world.call("GET", f"/v1/files/{file['id']}")).json()
    (listed_file,) = (await world.call("GET", "/v1/files")).json()["data"]

    assert file_object == file
    assert file["warnings"][0] == {
        "line": 2,
        "code": "duplicate_row",
        "message": "the row is the same as line 1",
    }
    assert len(file["warnings"]) == 20
    assert file["counts"]["warnings_by_code"] == {"duplicate_row": 39}
    assert (file["counts"]["examples"], file["counts"]["warnings"]) == (40, 39)
    assert file["counts"]["tokens"] > 40 * 16
    assert listed_file["counts"] == file["counts"]
    assert "warnings" not in listed_file


async def test_others_see_how_far_an_upload_is(world: World) -> None:
    half_sent, go_on = asyncio.Event(), asyncio.Event()

    async def slowly() -> AsyncIterator[bytes]:
        yield form(PURPOSE, FILE, DATASET, "\n")
        world.clock.advance(seconds=5)
        yield DATASET + b"\n"
        half_sent.set()
        await go_on.wait()
        yield form(DATASET, END)

    upload_task = asyncio.create_task(
        world.call("POST", "/v1/files", content=slowly(), headers=HEADERS)
    )
    await half_sent.wait()
    (file_object,) = (await world.call("GET", "/v1/files?status=uploaded")).json()["data"]
    file_view = (await world.call("GET", f"/v1/files/{file_object['id']}")).json()
    before = (await world.call("GET", "/v1/files")).json()["data"]
    go_on.set()
    file = (await upload_task).json()

    assert file_view == file_object
    assert (file_object["status"], file_object["filename"], before) == ("uploaded", "t.jsonl", [])
    assert file_object["progress"]["examples"] >= 79
    assert "examples checked" in file_object["status_details"]
    assert (file["id"], file["examples"]) == (file_object["id"], 120)
    assert (await world.call("GET", "/v1/files?status=uploaded")).json()["data"] == []


async def test_a_file_expires_unless_a_job_reads_it(world: World) -> None:
    forms = (
        (PURPOSE, ANCHOR, LIFE % 7200, FILE, DATASET),
        (FILE, DATASET, "\r\n", ANCHOR, LIFE % 7200, PURPOSE.rstrip()),
    )
    files = [(await post_form(world, *parts, END)).json() for parts in forms]
    job = await world.submit(training_file=files[0]["id"])
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
    for header, name in NAMES.items():
        file_header = FILE.replace('filename="t.jsonl"', header)
        response = await post_form(world, PURPOSE, file_header, DATASET, END)
        assert (response.status_code, response.json().get("filename")) == (200, name), response.text
