"""A manifest says of each file what its rank and Blob have said of it."""

from dataclasses import replace

import pytest

from tests.integration.supervisor.storage.test_commit import GENERATION, PATH
from trainer.checkpoint.checksum import describe_blocks
from trainer.contract import BLOCK, StaleGeneration
from trainer.rundir import RankSave
from trainer.supervisor.blob.container import ListedBlob
from trainer.supervisor.blob.transfer import CorruptError
from trainer.supervisor.upload.commit import build_manifest

FILE = replace(
    describe_blocks(memoryview(bytes(BLOCK) + b"more"), "rank-00000.safetensors"),
    sha256="5" * 64,
    block_sha256=("6" * 64, "7" * 64),
)
RECORD = RankSave(
    path=PATH,
    rank=0,
    writers=1,
    step=10,
    consumed_samples=80,
    world_size=1,
    generation=1,
    kind="stop",
    saved_at=0.0,
    files=(FILE,),
)
STORED = ListedBlob(size=FILE.size, etag="0x1", crc64nvme=FILE.crc64nvme)


def test_the_manifest_has_every_checksum_that_a_record_has() -> None:
    (entry,) = build_manifest([RECORD], {FILE.name: STORED}, GENERATION).files

    assert (entry.crc64nvme, entry.blocks) == (FILE.crc64nvme, FILE.blocks)
    assert (entry.sha256, entry.block_sha256) == (FILE.sha256, FILE.block_sha256)
    assert [entry.span(number) for number in range(2)] == [(0, BLOCK), (BLOCK, 4)]


@pytest.mark.parametrize(
    "stored",
    [
        pytest.param({}, id="no blob"),
        pytest.param({FILE.name: replace(STORED, size=FILE.size - 1)}, id="another size"),
        pytest.param({FILE.name: replace(STORED, crc64nvme="0" * 16)}, id="another checksum"),
        pytest.param({FILE.name: replace(STORED, crc64nvme="")}, id="no checksum"),
    ],
)
def test_a_blob_that_is_not_what_the_record_says_is_refused(stored: dict[str, ListedBlob]) -> None:
    with pytest.raises(CorruptError, match="not what the rank's record says"):
        build_manifest([RECORD], stored, GENERATION)


@pytest.mark.parametrize(
    "other",
    [
        replace(RECORD, rank=1, step=11),
        replace(RECORD, rank=1, consumed_samples=81),
        replace(RECORD, rank=1, generation=2),
        replace(RECORD, rank=1, kind="periodic"),
        replace(RECORD, rank=1, world_size=2),
    ],
    ids=["step", "samples", "generation", "kind", "world size"],
)
def test_ranks_that_disagree_about_what_they_saved_have_no_manifest(other: RankSave) -> None:
    with pytest.raises(CorruptError, match="disagree"):
        build_manifest([RECORD, other], {FILE.name: STORED}, GENERATION)


def test_two_ranks_cannot_have_written_the_same_file() -> None:
    with pytest.raises(CorruptError, match="a file of the same name"):
        build_manifest([RECORD, replace(RECORD, rank=1)], {FILE.name: STORED}, GENERATION)


def test_a_save_of_an_earlier_generation_has_no_manifest() -> None:
    later = replace(GENERATION, number=2)

    with pytest.raises(StaleGeneration, match="saved by generation 1"):
        build_manifest([RECORD], {FILE.name: STORED}, later)
