"""The node's copies: fetched and verified once, ahead of time, and never in anybody's way."""

import asyncio
import hashlib
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from awscrt import checksums

from tests.azurite import Azurite
from tests.nodes.cable import laid_to
from tests.nodes.forged import forged
from tests.nodes.partitioned import commit_newest
from tests.nodes.supervised import QUICK, Scene
from trainer.checkpoint.checksum import describe_file
from trainer.contract import HEAD, RUN_SPEC, Committed, RunSpec
from trainer.data.token_cache import RECORD, tokens_name
from trainer.rundir import RunDir, write_atomically
from trainer.supervisor.blob.container import BlobAccess, JobContainer, ListedBlob
from trainer.supervisor.blob.transfer import CorruptError, ForgedError
from trainer.supervisor.input.cache import InputCache
from trainer.supervisor.input.token_sharing import share_tokens
from trainer.supervisor.machine.memory_files import MemoryFolder


@pytest.fixture
def folder(tmp_path: Path) -> RunDir:
    """Return the run folder of generation 1."""
    return RunDir(tmp_path / "work" / "gen-0001")


@pytest.fixture
async def cache(scene: Scene, folder: RunDir) -> AsyncIterator[InputCache]:
    input_cache = _cache(folder.root.parent, _container(scene))
    yield input_cache
    await input_cache.close()


class TestPrefetch:
    async def test_what_was_fetched_ahead_is_not_asked_for_again(
        self, scene: Scene, cache: InputCache, folder: RunDir
    ) -> None:
        committed = _commit(scene, 10, b"ten")
        await cache.prefetch(scene.job.grants)
        _withdraw(scene)
        await cache.link_inputs(_spec(scene), scene.job.grants, folder)
        await cache.link_checkpoint(committed, folder, 1, range(1))

        assert folder.input(_spec(scene).training_file.path).read_bytes().startswith(b"{")
        assert (folder.checkpoint / "rank-00000.bin").read_bytes() == b"ten"

    async def test_a_generation_gets_the_checkpoint_that_it_names_whatever_was_fetched_ahead(
        self, scene: Scene, cache: InputCache, folder: RunDir
    ) -> None:
        older, newer = _commit(scene, 10, b"ten"), _commit(scene, 20, b"twenty")
        await cache.prefetch(scene.job.grants)
        await cache.link_checkpoint(older, folder, 1, range(1))

        assert (folder.checkpoint / "rank-00000.bin").read_bytes() == b"ten"
        names = [p.name for p in folder.checkpoint.resolve().parent.iterdir()]
        assert names == [older.manifest_sha256] != [newer.manifest_sha256]

    @pytest.mark.parametrize("wrong_fields", [{"sha256": "0" * 64}, {"crc64nvme": "0" * 16}])
    async def test_an_input_with_a_wrong_byte_gets_no_name(
        self, scene: Scene, cache: InputCache, folder: RunDir, wrong_fields: dict[str, Any]
    ) -> None:
        spec = _spec(scene)
        base = replace(spec.base_model, files=(replace(spec.base_model.files[0], **wrong_fields),))

        with pytest.raises(CorruptError, match=f"{next(iter(wrong_fields))} is [0-9a-f]+, not 0+"):
            await cache.link_inputs(replace(spec, base_model=base), scene.job.grants, folder)

        assert not folder.input(base.files[0].path).exists()

    async def test_a_file_of_the_right_crc_and_another_sha256_was_forged_not_damaged(
        self, scene: Scene, cache: InputCache, folder: RunDir
    ) -> None:
        spec, weights = _spec(scene), b"weights" * 5000
        file = replace(
            spec.base_model.files[0],
            sha256=hashlib.sha256(forged(weights)).hexdigest(),
            crc64nvme=f"{checksums.crc64nvme(weights):016x}",
        )
        base = replace(spec.base_model, files=(file,))

        with pytest.raises(ForgedError, match="sha256 is"):
            await cache.link_inputs(replace(spec, base_model=base), scene.job.grants, folder)

        assert not folder.input(file.path).exists()

    async def test_a_generation_that_starts_meanwhile_waits_for_the_same_bytes(
        self, scene: Scene, cache: InputCache, folder: RunDir
    ) -> None:
        committed = _commit(scene, 10, b"ten" * 10_000_000)
        prefetch = asyncio.create_task(cache.prefetch(scene.job.grants))
        await scene.until(
            lambda: list(folder.root.parent.glob("memory/checkpoints/*/.rank-00000.bin.part"))
        )
        await cache.link_checkpoint(committed, folder, 1, range(1))
        inode = (folder.checkpoint / "rank-00000.bin").stat().st_ino
        await prefetch

        assert (folder.checkpoint / "rank-00000.bin").stat().st_ino == inode
        assert (folder.checkpoint / "rank-00000.bin").stat().st_size == 30_000_000

    async def test_a_checkpoint_that_made_room_for_a_save_is_fetched_again(
        self, scene: Scene, cache: InputCache, folder: RunDir
    ) -> None:
        committed = _commit(scene, 10, b"ten")
        await cache.link_checkpoint(committed, folder, 1, range(1))
        folder.make_room()
        is_absent = not (folder.checkpoint / "rank-00000.bin").exists()
        await cache.link_checkpoint(committed, folder, 1, range(1))

        assert is_absent
        assert (folder.checkpoint / "rank-00000.bin").read_bytes() == b"ten"


class TestTokens:
    async def test_what_one_generation_leaves_another_node_has(
        self, scene: Scene, cache: InputCache, folder: RunDir
    ) -> None:
        partial = _leave(scene, folder, b"tokens" * 4_000_000)  # more than one block
        async with _sharing(_container(scene), folder):
            await scene.until(lambda: scene.job.names("cache/"))
        await cache.prefetch(scene.job.grants)
        after = RunDir(folder.root.with_name("gen-0002"))
        await cache.link_inputs(_spec(scene), scene.job.grants, after)
        await scene.until((after.cache / partial.name).exists)

        assert (after.cache / partial.name).read_bytes() == partial.read_bytes()

    async def test_what_a_generation_did_not_come_to_upload_the_next_one_uploads(
        self, scene: Scene, cache: InputCache, folder: RunDir
    ) -> None:
        await cache.link_inputs(_spec(scene), scene.job.grants, folder)
        _leave(scene, folder, b"tokens")
        after = RunDir(folder.root.with_name("gen-0002"))
        await cache.link_inputs(_spec(scene), scene.job.grants, after)
        shutil.rmtree(folder.root)
        async with _sharing(_container(scene), after):
            await scene.until(lambda: scene.job.names("cache/"))
            await scene.until(lambda: not list(after.cache.glob(f"*{RECORD}")))

        assert (after.cache / _name(scene)).read_bytes() == b"tokens"

    async def test_tokens_wait_for_a_store_that_is_away_and_for_fresh_grants(
        self, azurite: Azurite, scene: Scene, folder: RunDir, caplog: pytest.LogCaptureFixture
    ) -> None:
        caplog.set_level("INFO")
        partial = _leave(scene, folder, b"tokens")
        name = scene.job.container.container_name
        expired = azurite.container_sas(name, hours=-1.0)
        async with laid_to(azurite.port) as proxy:
            container = JobContainer(scene.access, proxy.through(expired))
            proxy.cut()
            async with _sharing(container, folder, proxy.through(scene.job.grants.job)):
                await scene.until(lambda: "not_shared_yet" in caplog.text, 40.0)
                assert partial.with_suffix(RECORD).exists()
                proxy.mend()
                await scene.until(lambda: scene.job.names("cache/"), 40.0)

    async def test_what_is_not_what_its_maker_wrote_is_neither_shared_nor_kept(
        self, scene: Scene, folder: RunDir
    ) -> None:
        partial = _leave(scene, folder, b"tokens")
        write_atomically(partial, b"tokenz")
        async with _sharing(_container(scene), folder):
            await scene.until(lambda: not partial.with_suffix(RECORD).exists())

        assert scene.job.names("cache/") == []
        assert not partial.exists()

    async def test_a_file_that_does_not_fit_its_checksum_is_done_without(
        self, scene: Scene, cache: InputCache, folder: RunDir, caplog: pytest.LogCaptureFixture
    ) -> None:
        caplog.set_level("INFO")
        metadata = {"crc64nvme": "0" * 16}
        scene.job.container.upload_blob(f"cache/{_name(scene)}", b"tokens", metadata=metadata)
        await cache.link_inputs(_spec(scene), scene.job.grants, folder)
        await scene.until(lambda: "crc64nvme is" in caplog.text)

        assert not (folder.cache / _name(scene)).exists()
        assert folder.input(_spec(scene).training_file.path).exists()

    async def test_a_generation_neither_waits_for_tokens_nor_fetches_them_twice(
        self, scene: Scene, folder: RunDir
    ) -> None:
        other_folder = RunDir(folder.root.parent / "other")
        partial = _leave(scene, other_folder, b"tokens" * 4_000_000)
        async with _sharing(_container(scene), other_folder):
            await scene.until(lambda: scene.job.names("cache/"))
        container = Held(scene.access, scene.job.grants.job)
        cache = _cache(folder.root.parent / "node", container)
        await cache.prefetch(scene.job.grants)
        await cache.link_inputs(_spec(scene), scene.job.grants, folder)
        assert not (folder.cache / partial.name).exists()
        container.let_go.set()
        await scene.until((folder.cache / partial.name).exists)
        await cache.close()

        assert container.asked == 1
        assert (folder.cache / partial.name).read_bytes() == partial.read_bytes()


class Held(JobContainer):
    """A container that says what it holds no sooner than it may."""

    asked = 0

    def __init__(self, access: BlobAccess, url: str) -> None:
        super().__init__(access, url)
        self.let_go = asyncio.Event()

    async def list_blobs(self, prefix: str) -> dict[str, ListedBlob]:
        """As asked, but late."""
        self.asked += 1
        await self.let_go.wait()
        return await super().list_blobs(prefix)


def _cache(work_folder: Path, container: JobContainer) -> InputCache:
    return InputCache(work_folder, MemoryFolder(work_folder / "memory"), container, 1)


def _container(scene: Scene) -> JobContainer:
    return JobContainer(scene.access, scene.job.grants.job)


def _spec(scene: Scene) -> RunSpec:
    return RunSpec.from_json(scene.job.container.download_blob(RUN_SPEC).readall())


def _commit(scene: Scene, step: int, data: bytes, flipped: int | None = None) -> Committed:
    """Commit a checkpoint of one file to Blob and HEAD; ``flipped``: offset of a wrong byte."""
    name = "rank-00000.bin"
    flipped_files = {} if flipped is None else {name: flipped}
    return commit_newest(scene.job, {name: data}, flipped_files, step=step)


def _withdraw(scene: Scene) -> None:
    """Take everything away that was there to be fetched, but for the run spec and HEAD."""
    for name in scene.job.names():
        if name not in (HEAD, RUN_SPEC):
            scene.job.container.delete_blob(name)
    inputs = {path: url.replace("sig=", "sig=x") for path, url in scene.job.grants.inputs.items()}
    scene.job.grants = replace(scene.job.grants, inputs=inputs)


def _name(scene: Scene) -> str:
    return tokens_name(_spec(scene), _spec(scene).training_file)


def _leave(scene: Scene, folder: RunDir, data: bytes) -> Path:
    """Write what a trainer's child process leaves after tokenizing the training file."""
    path = folder.cache / _name(scene)
    write_atomically(path, data)
    write_atomically(path.with_suffix(RECORD), describe_file(path, path.name).to_json())
    return path


@asynccontextmanager
async def _sharing(container: JobContainer, folder: RunDir, fresh: str = "") -> AsyncIterator[None]:
    """As a run does it; ``fresh`` is what the service grants when it is asked."""

    async def regrant() -> None:
        container.renew(fresh)

    limits = replace(QUICK, log_flush=0.01)
    task = asyncio.create_task(share_tokens(container, folder, limits, regrant))
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
