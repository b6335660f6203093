"""A manifest says of each file what its rank and Blob have said of it."""

from tests.integration.test_supervisor_commit import GENERATION, PATH
from trainer.checksum import describe_blocks
from trainer.contract import BLOCK
from trainer.rundir import RankSave
from trainer.supervisor.blobs import Stored
from trainer.supervisor.commit import manifest_of


def test_the_manifest_has_the_crc_of_every_block_that_a_record_has() -> None:
    file = describe_blocks(memoryview(bytes(BLOCK) + b"more"), "rank-00000.safetensors")
    record = RankSave(
        path=PATH,
        rank=0,
        writers=1,
        step=10,
        consumed_samples=80,
        world_size=1,
        generation=1,
        kind="stop",
        saved_at=0.0,
        files=(file,),
    )
    stored = {file.name: Stored(size=file.size, etag="0x1", crc64nvme=file.crc64nvme)}
    (entry,) = manifest_of([record], stored, GENERATION).files

    assert entry.blocks == file.blocks
    assert [entry.span(number) for number in range(2)] == [(0, BLOCK), (BLOCK, 4)]
