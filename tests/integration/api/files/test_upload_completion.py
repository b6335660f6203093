"""Completing an upload: replicas that die, stand still or come late, and what is seen meanwhile."""

from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from typing import Any

import pytest

from service.db.files import uploads
from service.db.files.files import CONTAINER
from service.operations.files import uploads as operations
from service.operations.files.upload_completion import CLAIM_TIMEOUT
from service.storage.fake import MemoryStore
from service.storage.store import StagedPart, StorageError
from tests.integration.api.files.upload_parts import (
    Json,
    begin_upload,
    complete_upload,
    count_leftovers,
    error_of,
    send_part,
    show_upload,
    sweep_of,
    upload_halves,
)
from tests.world import DATASET, World


@pytest.mark.parametrize("after", [False, True])
async def test_killed_around_its_commit_a_file_is_finished_later(world: World, after: bool) -> None:
    upload, part_ids = await upload_halves(world)
    file_id = operations.file_id_from_upload_id(upload)
    async with world.engine.begin() as conn:
        await uploads.claim(conn, file_id, "dead", world.clock())
    if after:
        staged = [StagedPart(name=part, blocks=1) for part in part_ids]
        await world.store.commit(CONTAINER, file_id, staged)
    assert error_of(await send_part(world, upload, b"x"))[2].endswith("takes no more parts.")
    assert (await show_upload(world, upload))["progress"]["examples"] == 0

    world.clock.advance(seconds=CLAIM_TIMEOUT.total_seconds())
    response = await complete_upload(world, upload, part_ids)

    assert response.status_code == 200, response.text
    assert await count_leftovers(world) == (0, 0, 2)  # its blob, and what the fake made it of


@dataclass
class Frozen(MemoryStore):
    """The process stands still before its commit until another one has made the file."""

    world: World | None = None
    upload_id: str = ""
    parts: tuple[str, ...] = ()

    async def commit(self, container: str, name: str, parts: Any, *, if_match: str = "") -> str:  # noqa: ANN401 - as the seam has it
        assert self.world is not None
        self.world.clock.advance(seconds=CLAIM_TIMEOUT.total_seconds())
        response = await complete_upload(self.world, self.upload_id, list(self.parts))
        assert response.status_code == 200, response.text
        return await self.world.store.commit(container, name, parts, if_match=if_match)


async def test_a_late_completion_cannot_change_the_file_of_another(listening_world: World) -> None:
    world = listening_world
    upload, part_ids = await upload_halves(world)
    frozen = Frozen(
        world.store._containers,
        _staged=world.store._staged,
        world=world,
        upload_id=upload,
        parts=tuple(part_ids),
    )
    body = {"part_ids": part_ids[::-1]}
    async with world.beside(store=frozen) as replica:
        response = await replica.call("POST", f"/v1/uploads/{upload}/complete", json=body)

    assert response.status_code == 200, response.text
    content = await world.call("GET", f"/v1/files/{response.json()['file']['id']}/content")
    assert content.content == DATASET


class Away(MemoryStore):
    """A store that does not answer."""

    async def discard(self, container: str, name: str) -> None:
        raise StorageError(f"no route to {container}/{name}")


async def test_an_upload_is_cancelled_while_the_store_is_away(world: World) -> None:
    upload, _ = await upload_halves(world)
    store_away = Away(world.store._containers, _staged=world.store._staged)
    async with world.beside(store=store_away) as replica:
        response = await replica.call("POST", f"/v1/uploads/{upload}/cancel")

    assert (response.status_code, response.json()["status"]) == (200, "cancelled")
    for _ in range(3):  # its row outlasts an outage
        world.clock.advance(seconds=uploads.LIFE.total_seconds())
        await replace(sweep_of(world), store=store_away).run_once()
    assert (await count_leftovers(world))[2] == 1
    await sweep_of(world).run_once()
    assert await count_leftovers(world) == (0, 0, 0)


async def test_the_sweep_drops_what_a_part_staged_after_the_upload_was_over(world: World) -> None:
    upload = await begin_upload(world)
    await world.call("POST", f"/v1/uploads/{upload}/cancel")

    async def piece() -> AsyncIterator[bytes]:
        yield b"x"

    staged = await world.store.stage(
        CONTAINER, operations.file_id_from_upload_id(upload), "part-1", piece()
    )
    assert staged == StagedPart(name="part-1", blocks=1)
    await sweep_of(world).run_once()

    assert (await count_leftovers(world))[2] == 0


async def test_progress_is_seen_while_an_upload_is_completed(world: World) -> None:
    upload, part_ids = await upload_halves(world)
    events: list[Json] = []

    @dataclass
    class Slow(MemoryStore):
        async def stream(
            self, container: str, name: str, *, offset: int = 0, if_match: str = ""
        ) -> AsyncIterator[bytes]:
            async for chunk in super().stream(container, name, offset=offset, if_match=if_match):
                for start in range(0, len(chunk), 1000):
                    yield chunk[start : start + 1000]
                    world.clock.advance(seconds=5)
                    events.append(await show_upload(world, upload))

    slow_store = Slow(world.store._containers, _staged=world.store._staged)
    async with world.beside(store=slow_store) as replica:
        response = await complete_upload(replica, upload, part_ids)
    assert response.status_code == 200, response.text
    counts = [event["progress"]["examples"] for event in events]
    assert counts == sorted(counts)
    assert 0 < counts[2] < counts[-1]
