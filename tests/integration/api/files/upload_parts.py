"""Uploads in parts for tests: begun, sent, completed, and what is left of them."""

from typing import Any

import httpx
from sqlalchemy import func, select

from service.db.files.files import CONTAINER
from service.db.schema import file_tables
from service.reconciler.sweeps.uploads import UploadSweep
from tests.world import DATASET, World

HALVES = (DATASET[:1000], DATASET[1000:])
WHOLE = {
    "filename": "träin.jsonl",
    "purpose": "fine-tune",
    "bytes": len(DATASET),
    "mime_type": "application/jsonl",
}
MULTIPART = {"content-type": "multipart/form-data; boundary=b"}
PART_FORM = b'--b\r\nContent-Disposition: form-data; name="data"; filename="p"\r\n\r\nsome'
Json = dict[str, Any]


async def begin_upload(world: World, **fields: object) -> str:
    response = await world.call("POST", "/v1/uploads", json=WHOLE | fields)
    assert response.status_code == 200, response.text
    return str(response.json()["id"])


async def send_part(world: World, upload: str, data: bytes) -> httpx.Response:
    return await world.call("POST", f"/v1/uploads/{upload}/parts", files={"data": ("p", data)})


async def upload_halves(world: World, **fields: object) -> tuple[str, list[str]]:
    """Return an upload with all of its parts."""
    upload = await begin_upload(world, **fields)
    return upload, [(await send_part(world, upload, half)).json()["id"] for half in HALVES]


async def complete_upload(
    world: World, upload: str, part_ids: list[str], **fields: str
) -> httpx.Response:
    body = {"part_ids": part_ids, **fields}
    return await world.call("POST", f"/v1/uploads/{upload}/complete", json=body)


async def show_upload(world: World, upload: str) -> Json:
    return dict((await world.call("GET", f"/v1/uploads/{upload}")).json())


def error_of(response: httpx.Response) -> tuple[int, str, str]:
    error = response.json()["error"]
    return response.status_code, error["code"], error["message"]


def sweep_of(world: World) -> UploadSweep:
    return UploadSweep(engine=world.engine, store=world.store, now=world.clock)


async def count_leftovers(world: World) -> tuple[int, int, int]:
    """How many rows of uploads and of parts, and blobs and staged blobs, are left."""
    counts = []
    async with world.engine.connect() as conn:
        for table in (file_tables.uploads, file_tables.upload_parts):
            query = select(func.count()).select_from(table)
            counts.append(int((await conn.execute(query)).scalar_one()))
    blobs = await world.store.list_blobs(CONTAINER)
    return counts[0], counts[1], len(blobs) + len(world.store._staged)
