"""Base models near the machines: copied whole or not at all; nodes read what is whole."""

import asyncio
import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta

import pytest

from service.api.app import make_app
from service.operations.models import models, regions
from service.operations.nodes.grants import Granter
from service.reconciler.sweeps.model_copies import ModelCopies
from service.storage.fake import MemoryStore
from service.storage.store import SMALL_BYTES, BlobStore, StorageError
from tests.nodes.scripted_node import ScriptedNode, boot
from tests.world import MODEL, SPOT, World, client, stage

WHERE = models.container(MODEL)
OTHER = "rekindle/other"
NOW = datetime(2026, 11, 21, tzinfo=UTC)


@dataclass
class Unreachable(MemoryStore):
    """An account that does not answer any more."""

    async def read(
        self, container: str, name: str, *, most: int = SMALL_BYTES
    ) -> tuple[bytes, str]:
        raise StorageError(f"{container}/{name}: Blob Storage cannot be reached ({most})")


@dataclass
class Hanging(MemoryStore):
    """An account that takes its time."""

    async def read(
        self, container: str, name: str, *, most: int = SMALL_BYTES
    ) -> tuple[bytes, str]:
        await asyncio.Event().wait()
        return await super().read(container, name, most=most)


@dataclass
class Slow(MemoryStore):
    """An account that fetches blobs, but never today."""

    async def copy(
        self, container: str, name: str, source: BlobStore, *, expires_at: datetime
    ) -> bool:
        if name.endswith(".safetensors"):
            return False
        return await super().copy(container, name, source, expires_at=expires_at)


def copies(main: BlobStore, regional: Mapping[str, BlobStore]) -> ModelCopies:
    return ModelCopies(store=main, regional=regional, now=lambda: NOW)


@pytest.fixture
async def main() -> MemoryStore:
    store = MemoryStore()
    await stage(store, MODEL)
    return store


async def inputs_of(main: BlobStore, name: str = MODEL) -> list[str]:
    model = await models.find_staged_model(main, name)
    return [file.path for file in model.model.files]


class TestCopying:
    async def test_every_region_gets_every_model_and_no_more(self, main: MemoryStore) -> None:
        await stage(main, OTHER)
        await main.create_container("files")
        near_store, far_store = MemoryStore(), MemoryStore()
        sweep = copies(main, {"westus3": near_store, "swedencentral": far_store})

        copied_count = await sweep.run_once()

        assert len(copied_count) == 4
        for account in (near_store, far_store):
            assert len(await account.list_containers("")) == 2
            assert await models.find_staged_model(account, MODEL) == await models.find_staged_model(
                main, MODEL
            )
            assert await models.find_staged_model(account, OTHER) == await models.find_staged_model(
                main, OTHER
            )
        assert await sweep.run_once() == []

    async def test_a_model_is_named_only_once_all_of_it_is_there(self, main: MemoryStore) -> None:
        near_store = Slow()

        assert await copies(main, {"westus3": near_store}).run_once() == []

        copied = {blob.name for blob in await near_store.list_blobs(WHERE)}
        assert copied
        assert "main-1/model.safetensors" not in copied
        inputs = await inputs_of(main)
        assert await regions.list_copied_inputs(near_store, inputs) == frozenset()
        # The copy continues where it stopped.
        later_store = MemoryStore(_containers=near_store._containers)
        assert await copies(main, {"westus3": later_store}).run_once() == [f"westus3/{WHERE}"]
        assert await regions.list_copied_inputs(later_store, inputs) == set(inputs)

    async def test_a_new_revision_follows_and_jobs_on_the_old_one_read_the_main_account(
        self, main: MemoryStore
    ) -> None:
        near_store = MemoryStore()
        sweep = copies(main, {"westus3": near_store})
        await sweep.run_once()
        old = await inputs_of(main)
        head = json.loads((await main.read(WHERE, models.HEAD))[0])
        for file in head["files"]:
            await main.write(WHERE, f"main-2/{file['name']}", b"better")
        await main.write(WHERE, models.HEAD, json.dumps(head | {"revision": "main-2"}).encode())

        assert await sweep.run_once() == [f"westus3/{WHERE}"]

        assert await regions.list_copied_inputs(near_store, await inputs_of(main)) == set(
            await inputs_of(main)
        )
        assert await regions.list_copied_inputs(near_store, old) == frozenset()

    async def test_an_unreachable_region_and_an_invalid_model_delay_no_other(
        self, main: MemoryStore, caplog: pytest.LogCaptureFixture
    ) -> None:
        broken_name, near_store = f"{models.PREFIX}000", MemoryStore()
        await main.create_container(broken_name)
        await main.write(broken_name, models.HEAD, b"no JSON")
        sweep = copies(main, {"eastus": Unreachable(), "westus3": near_store})

        assert await sweep.run_once() == [f"westus3/{WHERE}"]
        await sweep.run_once()

        records = [r for r in caplog.records if r.getMessage() == "models.not_copied"]
        assert len(records) == 3  # once each: the region's two models, and the broken one


class TestReading:
    """What a node is told to read."""

    @pytest.fixture
    async def near(self, world: World) -> MemoryStore:
        account = MemoryStore(url="memory://near")
        await copies(world.store, {SPOT.region: account}).run_once()
        return account

    async def inputs(self, world: World, account: BlobStore) -> dict[str, str]:
        """Return the input URLs of a node that registers now, by the kind of input."""
        granter = Granter(
            engine=world.engine,
            store=world.store,
            lifetime=timedelta(hours=24),
            regional={SPOT.region: account, "far": MemoryStore(url="memory://far")},
            timeout=0.05,
        )
        async with client(make_app(replace(world.parts, granter=granter))) as http:
            world.http, before = http, world.http
            nodes: list[ScriptedNode] = await boot(world, (await world.submit())["id"])
            world.http = before
        seat = nodes[0].seat
        assert seat is not None
        return {path.split("/")[0].split("-")[0]: url for path, url in seat.grants.inputs.items()}

    async def test_the_base_model_comes_from_the_region_and_the_rest_from_the_main_account(
        self, world: World, near: MemoryStore
    ) -> None:
        urls = await self.inputs(world, near)

        assert urls["base"].startswith("memory://near/base-")
        assert urls["files"].startswith("memory://files/")

    async def test_a_model_that_is_not_whole_there_comes_from_the_main_account(
        self, world: World, near: MemoryStore
    ) -> None:
        await near.delete(WHERE, models.HEAD)

        assert (await self.inputs(world, near))["base"].startswith("memory://base-")

    @pytest.mark.parametrize("account", [Unreachable(), Hanging()], ids=["away", "hangs"])
    async def test_an_account_that_does_not_answer_is_passed_over(
        self, world: World, account: MemoryStore, caplog: pytest.LogCaptureFixture
    ) -> None:
        assert (await self.inputs(world, account))["base"].startswith("memory://base-")
        assert "region.passed_over" in caplog.text
