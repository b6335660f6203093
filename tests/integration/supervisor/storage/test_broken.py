"""A run that loads a checkpoint; if it is broken, a node says so and another one is loaded.

The node's part and the service's look and fence, over the same blobs of a real Azurite.
"""

import hashlib
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import replace

import pytest

from service.domain.storage.checkpoint_faults import CheckpointFault
from service.operations.attempts import findings, heads
from service.storage.azure import AzureBlobStore
from tests.azurite import Azurite
from tests.nodes import partitioned
from tests.nodes.partitioned import commit_newest
from tests.nodes.supervised import Scene
from trainer.contract import MANIFEST, BrokenCheckpoint, Committed, NodePhase
from trainer.rundir import tensors_name

SHARDS = ("rank-00000.bin", "rank-00001.bin")
SIZES = {"layer.weight": 30_000, "layer.bias": 77}
BLOCK = 16 * 2**10
Damage = Callable[[Scene, str], None]


@pytest.fixture
async def store(azurite: Azurite) -> AsyncIterator[AzureBlobStore]:
    """Yield the storage account as the service sees it."""
    blob_store = AzureBlobStore(azurite.connection_string)
    yield blob_store
    await blob_store.close()


def saved(scene: Scene, step: int, flipped: int | None = None) -> Committed:
    """Commit a checkpoint of two files; ``flipped``: offset of a wrong byte in the second."""
    files = {name: f"{name} of step {step}".encode() for name in SHARDS}
    flipped_files = {} if flipped is None else {SHARDS[1]: flipped}
    return commit_newest(scene.job, files, flipped_files, step=step)


def _flip(scene: Scene, path: str) -> None:
    blob = f"{path}/{SHARDS[1]}"
    data = bytearray(scene.job.container.download_blob(blob).readall())
    data[3] ^= 1
    scene.job.container.upload_blob(blob, bytes(data), overwrite=True)


def _cut(scene: Scene, path: str) -> None:
    blob = f"{path}/{SHARDS[1]}"
    data = scene.job.container.download_blob(blob).readall()
    scene.job.container.upload_blob(blob, data[:-1], overwrite=True)


def _other_jobs_manifest(scene: Scene, path: str) -> None:
    older = scene.job.head().checkpoints[0].path
    older_manifest = scene.job.container.download_blob(f"{older}/{MANIFEST}").readall()
    scene.job.container.upload_blob(f"{path}/{MANIFEST}", older_manifest, overwrite=True)


def _unreadable_manifest(scene: Scene, path: str) -> None:
    """Let HEAD name a manifest of the right hash that no release can read."""
    scene.job.container.upload_blob(f"{path}/{MANIFEST}", b"{}", overwrite=True)
    older, newest = scene.job.head().checkpoints
    newest = replace(newest, manifest_sha256=hashlib.sha256(b"{}").hexdigest())
    scene.job.write_head(replace(scene.job.head(), checkpoints=(older, newest)))


@pytest.mark.parametrize(
    ("damage", "file", "reason"),
    [
        (_flip, SHARDS[1], "was written again since it was committed"),
        (_cut, SHARDS[1], "has 24 bytes instead of 25"),
        (lambda s, path: s.job.container.delete_blob(f"{path}/{SHARDS[1]}"), SHARDS[1], "is gone"),
        (_other_jobs_manifest, MANIFEST, "is another one than was committed"),
        (_unreadable_manifest, MANIFEST, "is another one than was committed"),
        (lambda s, path: s.job.container.delete_blob(f"{path}/{MANIFEST}"), MANIFEST, "is gone"),
    ],
    ids=["flipped", "truncated", "missing", "of another job", "unreadable", "no manifest"],
)
async def test_whatever_is_wrong_training_goes_on_from_the_checkpoint_before(
    scene: Scene, store: AzureBlobStore, damage: Damage, file: str, reason: str
) -> None:
    job, before, newest = scene.job.container.container_name, saved(scene, 10), saved(scene, 20)
    damage(scene, newest.path)
    node = await scene.run_one()
    await scene.until(lambda: node.has_reported(NodePhase.STOPPED, 1))
    broken = node.last_heartbeat.broken
    fault = await findings.find_fault(store, job, newest)
    await heads.fence(store, job, 1, {newest.path})
    second = await scene.generation(node, number=2)
    await scene.until(lambda: scene.progress("one") > before.step)

    assert broken is not None
    assert (broken.path, broken.file) == (newest.path, file)
    assert fault == CheckpointFault(file=file, reason=reason)
    assert second.checkpoint == before
    assert await findings.find_fault(store, job, before) is None
    assert node.last_heartbeat.broken is None


@pytest.mark.parametrize("file", [SHARDS[1], tensors_name(1)], ids=["whole", "in blocks"])
async def test_bytes_that_only_a_reader_sees_to_differ_are_told_and_not_seen_by_the_service(
    scene: Scene, store: AzureBlobStore, file: str
) -> None:
    in_blocks = file not in SHARDS
    newest = saved_by_two(scene, {file: 2 * BLOCK}) if in_blocks else saved(scene, 20, flipped=3)
    node = await scene.run_one("loads")
    await scene.until(lambda: node.has_reported(NodePhase.STOPPED, 1))
    broken = node.last_heartbeat.broken

    assert isinstance(broken, BrokenCheckpoint)
    assert broken.file == file
    assert broken.reason.startswith("crc64nvme is ")
    assert file not in scene.checkpoint_files("one")
    assert await findings.find_fault(store, scene.job.container.container_name, newest) is None


async def test_all_that_is_asked_for_comes_and_is_let_go_once_training_has_begun(
    scene: Scene,
) -> None:
    saved_by_two(scene)
    node = await scene.run_one("loads")
    await scene.until(lambda: scene.progress("one") > 10)

    await scene.until(lambda: not scene.checkpoint_files("one"))
    assert node.last_heartbeat.phase is NodePhase.RUNNING


async def test_a_trainer_that_ends_and_never_asked_has_failed(scene: Scene) -> None:
    saved_by_two(scene)
    node = await scene.run_one("crash")
    await scene.until(lambda: node.has_reported(NodePhase.FAILED, 1))

    assert "the loss is not a number" in node.last_heartbeat.error


def saved_by_two(scene: Scene, flipped: Mapping[str, int] | None = None) -> Committed:
    """Two ranks' checkpoint, in Blob and in HEAD."""
    files = partitioned.files_of(partitioned.flat, SIZES, 2)
    return partitioned.commit_newest(scene.job, files, flipped, world=2, block_size=BLOCK)
