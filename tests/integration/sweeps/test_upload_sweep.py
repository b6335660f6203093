"""Blobs of files: what is known to be dead is deleted, all else is kept, whoever dies when."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace

import pytest
from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine

from service.api.app import make_app
from service.db.core.engine import driver_url
from service.db.files import files, uploads
from service.db.files.files import CONTAINER
from service.db.files.uploads import Upload
from service.db.projects import keys
from service.db.schema import file_tables
from service.operations.files.files import PROGRESS_INTERVAL
from service.reconciler.sweeps.uploads import ABANDONED_AFTER, GRACE, UploadSweep
from service.storage.fake import MemoryStore
from service.storage.store import Blob, StorageError
from tests.world import DATASET, World, client


class Killed(BaseException):
    """The process ends here: no handler runs after it."""


def sweep_of(world: World) -> UploadSweep:
    return UploadSweep(engine=world.engine, store=world.store, now=world.clock)


async def blobs(world: World) -> list[str]:
    return [blob.name for blob in await world.store.list_blobs(CONTAINER)]


async def rows(world: World) -> list[str]:
    """Ids of uploads, given up or not."""
    async with world.engine.connect() as conn:
        return list((await conn.execute(select(file_tables.uploads.c.id))).scalars())


async def upload_row(world: World, upload_id: str) -> None:
    async with world.engine.begin() as conn:
        project_id = await _project(world)
        now = world.clock()
        await uploads.add(
            conn,
            Upload(
                id=upload_id,
                project_id=project_id,
                filename="t.jsonl",
                purpose="fine-tune",
                expected_bytes=None,
                received_bytes=0,
                examples=0,
                created_at=now,
                touched_at=now,
            ),
        )


async def _project(world: World) -> str:
    async with world.engine.connect() as conn:
        project = await keys.find_project(conn, "tests")
    assert project is not None
    return project


async def test_files_and_uploads_under_way_are_kept(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    file = await world.upload()
    await upload_row(world, "file-under-way")
    await world.store.write(CONTAINER, "file-under-way", b"x")
    sweep = sweep_of(world)

    assert await sweep.run_once() == []
    world.clock.advance(seconds=GRACE.total_seconds() - 1)
    assert await sweep.run_once() == []

    assert await blobs(world) == sorted([file, "file-under-way"])
    assert [r for r in caplog.records if r.message == "uploads.unknown"] == []


async def test_what_a_killed_upload_left_goes_and_its_row_after_the_grace(world: World) -> None:
    await world.upload()
    retained = await blobs(world)
    await upload_row(world, "file-dead")
    await world.store.write(CONTAINER, "file-dead", b"x")

    world.clock.advance(seconds=ABANDONED_AFTER.total_seconds() + 1)
    assert await sweep_of(world).run_once() == ["file-dead"]
    assert (await blobs(world), await rows(world)) == (retained, ["file-dead"])
    world.clock.advance(seconds=GRACE.total_seconds() - 1)
    assert await sweep_of(world).run_once() == []
    assert await rows(world) == ["file-dead"]  # a commit on its way may still arrive
    world.clock.advance(seconds=1)
    assert await sweep_of(world).run_once() == []
    assert (await blobs(world), await rows(world)) == (retained, [])


async def test_the_row_of_an_upload_that_was_given_up_outlasts_its_blob(world: World) -> None:
    """However late the blob appears, and however often the sweep is killed."""
    await upload_row(world, "file-dead")
    world.clock.advance(seconds=ABANDONED_AFTER.total_seconds() + 1)
    await sweep_of(world).run_once()
    world.clock.advance(seconds=GRACE.total_seconds() + 1)
    await world.store.create_container(CONTAINER)
    await world.store.write(CONTAINER, "file-dead", b"x")

    with pytest.raises(Killed):
        await replace(sweep_of(world), store=DyingSweeper(world.store._containers)).run_once()
    assert (await blobs(world), await rows(world)) == (["file-dead"], ["file-dead"])
    assert await sweep_of(world).run_once() == ["file-dead"]
    assert (await blobs(world), await rows(world)) == ([], ["file-dead"])
    await sweep_of(world).run_once()
    assert await rows(world) == []


async def test_a_refused_upload_is_no_longer_under_way_and_its_row_goes(world: World) -> None:
    response = await world.call(
        "POST", "/v1/files", files={"file": b"no row"}, data={"purpose": "fine-tune"}
    )

    assert response.status_code == 400
    (row,) = await rows(world)
    assert (await world.call("GET", "/v1/files?status=uploaded")).json()["data"] == []
    assert (await world.call("GET", f"/v1/files/{row}")).status_code == 404
    world.clock.advance(seconds=GRACE.total_seconds())
    await sweep_of(world).run_once()
    assert await rows(world) == []


async def test_an_abandoned_upload_is_refused_at_the_next_chunk_and_not_at_the_last(
    world: World,
) -> None:
    sent = []

    async def slow_body() -> AsyncIterator[bytes]:
        request = client(make_app(world.parts)).build_request(
            "POST",
            "/v1/files",
            files={"file": b'{"messages": [{"role": "assistant", "content": "4"}]}'},
            data={"purpose": "fine-tune"},
            headers={"content-type": "multipart/form-data; boundary=b"},
        )
        body = request.read()
        yield body[:-20]
        world.clock.advance(seconds=ABANDONED_AFTER.total_seconds() + 1)
        await sweep_of(world).run_once()
        for byte in body[-20:]:
            world.clock.advance(seconds=PROGRESS_INTERVAL.total_seconds())
            sent.append(byte)
            yield bytes([byte])

    headers = {"content-type": "multipart/form-data; boundary=b"}
    response = await world.call("POST", "/v1/files", content=slow_body(), headers=headers)

    assert response.status_code == 503
    assert "Upload the file again" in response.json()["error"]["message"]
    assert len(sent) < 20
    assert (await world.call("GET", "/v1/files")).json()["data"] == []


@dataclass
class FrozenStore(MemoryStore):
    """The process stands still before the blob's commit, while a sweep looks so many times."""

    world: World | None = None
    sweeps: int = 0

    async def upload(self, container: str, name: str, chunks: AsyncIterator[bytes]) -> Blob:
        data = b"".join([chunk async for chunk in chunks])
        assert self.world is not None
        for _ in range(self.sweeps):
            self.world.clock.advance(seconds=ABANDONED_AFTER.total_seconds() + 1)
            await sweep_of(self.world).run_once()
        await self.write(container, name, data)
        return Blob(name=name, size=len(data), etag="")


@pytest.mark.parametrize(("sweeps", "left"), [(1, 1), (2, 0)])
async def test_an_upload_that_wakes_after_it_was_given_up_deletes_its_own_blob(
    world: World, sweeps: int, left: int
) -> None:
    """Also when its row is gone, and no sweep would know the blob."""
    store = FrozenStore(world.store._containers, world=world, sweeps=sweeps)
    headers = {"authorization": f"Bearer {world.key}"}
    async with client(make_app(replace(world.parts, store=store))) as http:
        response = await http.post(
            "/v1/files", files={"file": DATASET}, data={"purpose": "fine-tune"}, headers=headers
        )

    assert response.status_code == 503
    assert "Upload the file again" in response.json()["error"]["message"]
    assert (await blobs(world), len(await rows(world))) == ([], left)
    assert (await world.call("GET", "/v1/files")).json()["data"] == []


@dataclass
class DyingStore(MemoryStore):
    """The process dies with the blob's commit, just before or just after it."""

    after: bool = False

    async def upload(self, container: str, name: str, chunks: AsyncIterator[bytes]) -> Blob:
        if not self.after:
            async for _ in chunks:
                pass
            raise Killed
        await super().upload(container, name, chunks)
        raise Killed


@pytest.mark.parametrize("after", [False, True])
async def test_killed_around_the_blob_nothing_stays(world: World, after: bool) -> None:
    store = DyingStore(world.store._containers, after=after)
    app = make_app(replace(world.parts, store=store))
    async with client(app) as http:
        with pytest.raises(Killed):
            await http.post(
                "/v1/files",
                files={"file": b'{"messages": [{"role": "assistant", "content": "4"}]}'},
                data={"purpose": "fine-tune"},
                headers={"authorization": f"Bearer {world.key}"},
            )
    sweep = sweep_of(world)

    for _ in range(3):
        world.clock.advance(seconds=GRACE.total_seconds() + 1)
        await sweep.run_once()

    assert await blobs(world) == []
    assert await rows(world) == []
    assert (await world.call("GET", "/v1/files")).json()["data"] == []
    assert (await world.call("GET", "/v1/files?status=uploaded")).json()["data"] == []


class DyingSweeper(MemoryStore):
    """The process dies with the first deletion."""

    async def delete(self, *_: str) -> None:
        raise Killed


class Away(MemoryStore):
    """A store that does not answer."""

    async def delete(self, *_: str) -> None:
        raise StorageError("no route")

    async def list_blobs(self, *_: str, prefix: str = "", most: int | None = None) -> list[Blob]:
        raise StorageError(f"no route to {prefix} ({most})")


async def test_a_file_is_deleted_although_the_store_is_away_and_its_bytes_go_later(
    world: World,
) -> None:
    file = await world.upload()
    headers = {"authorization": f"Bearer {world.key}"}
    async with client(make_app(replace(world.parts, store=Away()))) as http:
        response = await http.delete(f"/v1/files/{file}", headers=headers)

    assert (response.status_code, response.json()["deleted"]) == (200, True)
    assert await blobs(world) == [file]
    assert await sweep_of(world).run_once() == [file]
    assert await blobs(world) == []


async def test_deleting_a_file_again_deletes_what_is_left(world: World) -> None:
    """A client whose answer was lost asks again, as OpenAI's does by itself."""
    file = await world.upload()
    async with world.engine.begin() as conn:
        await files.mark_deleted(conn, file, world.clock())  # and here it was killed

    response = await world.call("DELETE", f"/v1/files/{file}")

    assert (response.status_code, response.json()["deleted"]) == (200, True)
    assert await blobs(world) == []
    assert (await world.call("GET", f"/v1/files/{file}")).status_code == 404
    assert (await world.call("DELETE", "/v1/files/file-none")).status_code == 404


async def test_a_sweep_outlives_a_store_that_is_away(world: World) -> None:
    sweep = replace(sweep_of(world), store=Away())

    assert await sweep.run_once() == []


# --- a database that knows less than there is ----------------------------------------------------


async def test_a_database_that_has_never_seen_a_blob_leaves_it_alone(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    """A new one, one that was restored, or another deployment's on the same storage account."""
    file_ids = sorted([await world.upload(), await world.upload()])
    async with world.engine.begin() as conn:
        await conn.execute(file_tables.files.delete())
    sweep = sweep_of(world)

    for _ in range(3):
        assert await sweep.run_once() == []
        world.clock.advance(seconds=(ABANDONED_AFTER + GRACE).total_seconds())

    assert await blobs(world) == file_ids
    (record,) = [r for r in caplog.records if r.message == "uploads.unknown"]
    logged = (record.levelname, vars(record)["count"], vars(record)["file"])
    assert logged == ("WARNING", 2, file_ids[0])


# --- a pool that is used up ----------------------------------------------------------------------


@pytest.fixture
async def narrow(database_url: str) -> AsyncIterator[AsyncEngine]:
    """One connection, and no patience for it."""
    engine = create_async_engine(
        driver_url(database_url), pool_size=1, max_overflow=0, pool_timeout=0.01
    )
    yield engine
    await engine.dispose()


@pytest.mark.parametrize(("last", "status"), [(b"", 200), (b"no row\n", 400)])
async def test_an_upload_survives_an_exhausted_connection_pool(
    world: World, narrow: AsyncEngine, last: bytes, status: int
) -> None:
    """Neither a word about its progress nor the clearing up is worth its answer."""
    busy = AsyncExitStack()

    async def body() -> AsyncIterator[bytes]:
        form = b'--b\r\nContent-Disposition: form-data; name="purpose"\r\n\r\nfine-tune\r\n'
        form += b'--b\r\nContent-Disposition: form-data; name="file"; filename="t"\r\n\r\n'
        yield form + DATASET[:100]
        await busy.enter_async_context(narrow.connect())
        world.clock.advance(seconds=PROGRESS_INTERVAL.total_seconds() + 1)
        yield DATASET[100:] + b"\n" + last
        if status == 200:  # the row of a good file is worth waiting for
            await busy.aclose()
        yield b"\r\n--b--\r\n"

    headers = {"authorization": f"Bearer {world.key}"}
    headers["content-type"] = "multipart/form-data; boundary=b"
    async with busy, client(make_app(replace(world.parts, engine=narrow))) as http:
        response = await http.post("/v1/files", content=body(), headers=headers)

    assert response.status_code == status, response.text
