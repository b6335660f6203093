"""Tensors come to a node in the blocks that its ranks read, each once, verified; real Azurite."""

import asyncio
import errno
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from azure.storage.blob import ContainerClient

from tests.azurite import Azurite
from tests.nodes import partitioned
from tests.nodes.cable import laid_to
from tests.nodes.partitioned import Cut, flat, split
from tests.waiting import until_true
from trainer.checkpoint.fragments import Fragment
from trainer.checkpoint.loader import open_checkpoint, plan_reads, ranges_to_read
from trainer.checkpoint.partial_tensors import BlockState, PartialTensors
from trainer.contract import Committed, FileEntry, Manifest, checkpoint_path
from trainer.rundir import ByteRange, RunDir, WantedRanges, tensors_name, write_atomically
from trainer.supervisor.blob.blocks import BlockClient
from trainer.supervisor.blob.container import BlobAccess, BlobUnavailableError, JobContainer
from trainer.supervisor.input.cache import InputCache
from trainer.supervisor.input.fetch import BrokenCheckpointError
from trainer.supervisor.input.tensor_blocks import TensorBlock, requested_blocks
from trainer.supervisor.machine.memory_files import MemoryFolder

SIZES = {"embedding": 40_000, "layer.weight": 50_001, "layer.bias": 77}
BLOCK = 16 * 2**10
PATH = checkpoint_path(10, "0badcafe")
Take = Callable[[memoryview, int], object]


class Watched(BlockClient):
    """Knows which blocks were asked for; from ``full`` on the memory takes no more of them."""

    def __init__(self) -> None:
        super().__init__(16)
        self.asked: list[TensorBlock] = []
        self.full: int | None = None

    def get_range(
        self, url: str, offset: int, length: int, take: Take, etag: str = ""
    ) -> tuple[int, int]:
        """As it is, and noted."""
        name = urlsplit(url).path.rpartition("/")[2]
        if name.endswith(".safetensors"):
            is_repeated = TensorBlock(name, offset // BLOCK) in self.asked
            self.asked.append(TensorBlock(name, offset // BLOCK))
            if self.full is not None and len(self.asked) > self.full and not is_repeated:
                raise OSError(errno.ENOSPC, "no room")
        return super().get_range(url, offset, length, take, etag)


@dataclass
class Node:
    """One machine, and the ranks of a world on it."""

    cache: InputCache
    folder: RunDir
    watched: Watched
    ranks: range
    world: int

    async def lay(self, committed: Committed) -> None:
        """As a run does before the ranks load."""
        await self.cache.link_checkpoint(committed, self.folder, self.world, self.ranks)

    async def serve(self, committed: Committed) -> None:
        """And while they do."""
        await self.cache.serve_tensor_blocks(
            committed, self.folder, self.world, self.ranks, _patiently
        )

    def load(self, rank: int, partition: Cut) -> list[Fragment]:
        """As a rank does."""
        fragments = partitioned.empty(partition(SIZES, rank, self.world))
        reads = plan_reads(
            fragments, open_checkpoint(self.folder.checkpoint, partitioned.SPEC_SHA256)
        )
        write_atomically(self.folder.wanted_ranges(rank), ranges_to_read(reads).to_json())
        for planned_read in reads:
            planned_read.tensors.copy(planned_read.begin, planned_read.end, planned_read.into)
        return fragments

    async def loads_all(self, committed: Committed, partition: Cut) -> bool:
        """Load on every rank; whether all is there and right."""
        await self.lay(committed)
        loading = [asyncio.to_thread(self.load, rank, partition) for rank in self.ranks]
        loaded, _ = await asyncio.gather(asyncio.gather(*loading), self.serve(committed))
        return all(partitioned.is_filled(fragments) for fragments in loaded)


Place = Callable[..., Node]


@pytest.fixture
async def place(azurite: Azurite, client: ContainerClient, tmp_path: Path) -> AsyncIterator[Place]:
    """Yield a function that makes a machine with these ranks.

    Called with a known name, it gives the same machine a new supervisor.
    """
    nodes: list[Node] = []
    accesses: list[BlobAccess] = []

    def make(ranks: range, world: int, name: str = "one", url: str = "") -> Node:
        access, work_folder = BlobAccess(), tmp_path / name
        access.blocks = watched = Watched()
        sas = url or azurite.container_sas(client.container_name)
        cache = InputCache(
            work_folder, MemoryFolder(work_folder / "memory"), JobContainer(access, sas), len(ranks)
        )
        folder = RunDir(work_folder / f"gen-{len(nodes):04d}")
        nodes.append(Node(cache, folder, watched, ranks, world))
        accesses.append(access)
        return nodes[-1]

    yield make
    for node, access in zip(nodes, accesses, strict=True):
        await node.cache.close()
        access.close()


def commit(
    client: ContainerClient,
    partition: Cut,
    flipped_block: TensorBlock | None = None,
    *,
    forging: bool = False,
) -> tuple[Committed, Manifest]:
    """Commit a checkpoint of two ranks to Blob; a byte of ``flipped_block`` differs."""
    files = partitioned.files_of(partition, SIZES, 2)
    flipped = {flipped_block.file: flipped_block.number * BLOCK + 100} if flipped_block else {}
    return partitioned.commit(client, PATH, files, 2, BLOCK, flipped, forging=forging)


@pytest.mark.parametrize("partition", [flat, split])
async def test_each_of_three_nodes_fetches_of_two_ranks_files_what_it_reads_and_no_more(
    client: ContainerClient, place: Place, partition: Cut
) -> None:
    committed, manifest = commit(client, partition)
    for rank in range(3):
        node = place(range(rank, rank + 1), 3, f"node-{rank}")

        assert await node.loads_all(committed, partition)
        requests = node.watched.asked
        assert sorted(requests, key=str) == sorted(blocks_of(node, manifest), key=str)
        assert len(requests) < sum(len(f.blocks) for f in manifest.files) * 2 / 3


async def test_what_two_ranks_of_a_node_want_comes_once(
    client: ContainerClient, place: Place
) -> None:
    committed, manifest = commit(client, split)
    node = place(range(3), 3)

    assert await node.loads_all(committed, flat)
    assert len(set(node.watched.asked)) == len(node.watched.asked)
    assert set(node.watched.asked) == blocks_of(node, manifest)


async def test_blocks_come_in_the_order_in_which_a_rank_wants_them(
    client: ContainerClient, place: Place
) -> None:
    committed, manifest = commit(client, split)
    node = place(range(1), 1)

    assert await node.loads_all(committed, split)
    request = WantedRanges.from_json(node.folder.wanted_ranges(0).read_bytes())
    order = {block: at for at, block in enumerate(requested_blocks(request, manifest))}
    displacements = [order[block] - at for at, block in enumerate(node.watched.asked)]
    assert max(map(abs, displacements)) < 16  # as many at once


async def test_ranks_of_the_same_world_need_not_ask_for_what_they_saved(
    client: ContainerClient, place: Place
) -> None:
    committed, manifest = commit(client, flat)
    node = place(range(1, 2), 2)
    await node.lay(committed)
    server_task = asyncio.create_task(node.serve(committed))
    last = len(entry_of(manifest, 1).blocks) - 1
    partial = PartialTensors(node.folder.checkpoint / tensors_name(1), entry_of(manifest, 1))
    await until_true(lambda: partial.block_state(last) is BlockState.IN_PLACE)
    assert not server_task.done()
    fetched = list(node.watched.asked)
    loaded = await asyncio.to_thread(node.load, 1, flat)
    await server_task

    assert partitioned.is_filled(loaded)
    assert node.watched.asked == fetched
    assert {block.file for block in fetched} == {tensors_name(1)}


@pytest.mark.parametrize(
    ("forging", "reason"), [(False, "crc64nvme"), (True, "sha256")], ids=["flipped", "forged"]
)
async def test_a_wrong_block_is_told_with_its_file_and_is_not_marked(
    client: ContainerClient, place: Place, forging: bool, reason: str
) -> None:
    wrong_block = TensorBlock(tensors_name(1), 2)
    committed, manifest = commit(client, flat, flipped_block=wrong_block, forging=forging)
    node = place(range(1), 1)
    await node.lay(committed)
    ask_for_all(node, manifest)
    with pytest.raises(BrokenCheckpointError) as error:
        await node.serve(committed)

    finding = error.value.finding
    assert (finding.path, finding.file) == (PATH, wrong_block.file)
    assert finding.reason.startswith(reason)
    assert f"of the {BLOCK} bytes at {2 * BLOCK}" in finding.reason
    partial = PartialTensors(node.folder.checkpoint / wrong_block.file, entry_of(manifest, 1))
    assert partial.block_state(2) is BlockState.MISSING


async def test_a_file_that_was_written_again_is_named(
    client: ContainerClient, place: Place
) -> None:
    committed, manifest = commit(client, flat)
    node = place(range(1), 1)
    await node.lay(committed)
    ask_for_all(node, manifest)
    blob = client.get_blob_client(f"{PATH}/{tensors_name(1)}")
    data = blob.download_blob().readall()
    blob.upload_blob(data, overwrite=True)
    with pytest.raises(BrokenCheckpointError, match="is gone, or was written again") as error:
        await node.serve(committed)

    assert error.value.finding.file == tensors_name(1)


async def test_a_supervisor_that_was_killed_half_way_has_its_successor_fetch_the_rest(
    client: ContainerClient, place: Place
) -> None:
    committed, manifest = commit(client, flat)
    first = place(range(1), 1)
    await first.lay(committed)
    whole_file = ByteRange(file=tensors_name(0), begin=0, end=entry_of(manifest, 0).size)
    write_atomically(first.folder.wanted_ranges(0), WantedRanges(ranges=(whole_file,)).to_json())
    await first.serve(committed)
    second = place(range(1), 1)

    assert await second.loads_all(committed, split)
    assert {block.file for block in first.watched.asked} == {tensors_name(0)}
    assert {block.file for block in second.watched.asked} == {tensors_name(1)}


async def test_a_store_that_is_away_half_way_is_waited_for(
    azurite: Azurite, client: ContainerClient, place: Place
) -> None:
    committed, _ = commit(client, flat)
    async with laid_to(azurite.port) as proxy:
        url = proxy.through(azurite.container_sas(client.container_name))
        node = place(range(1), 1, url=url)
        await node.lay(committed)
        proxy.cut()
        loading = asyncio.create_task(asyncio.to_thread(node.load, 0, flat))
        server_task = asyncio.create_task(node.serve(committed))
        await until_true(lambda: len(node.watched.asked) > 16)
        assert not loading.done()
        proxy.mend()
        await server_task

        assert partitioned.is_filled(await loading)


async def test_what_memory_has_no_room_for_is_read_from_the_disk(
    client: ContainerClient, place: Place
) -> None:
    committed, manifest = commit(client, flat)
    node = place(range(1), 1)
    node.watched.full = 5

    assert await node.loads_all(committed, flat)
    marks = [
        PartialTensors(node.folder.checkpoint / f.name, f).block_state(number)
        for f in manifest.files
        for number in range(len(f.blocks))
    ]
    assert marks.count(BlockState.IN_PLACE) == 5
    assert marks.count(BlockState.SPILLED) == len(marks) - 5
    await node.cache.drop_checkpoint()
    assert not list(node.folder.root.parent.rglob("*.safetensors*"))


async def test_a_node_whose_supervisor_was_killed_while_it_dropped_a_checkpoint_loads_it_again(
    client: ContainerClient, place: Place
) -> None:
    committed, _ = commit(client, flat)
    node = place(range(1), 1)
    node.watched.full = 5
    await node.loads_all(committed, flat)
    for link in node.folder.checkpoint.glob("*.spilled"):
        link.unlink()  # these went first, and nothing else
    node.watched.full = None

    assert await node.loads_all(committed, flat)


async def test_what_a_crashed_trainer_has_left_here_is_neither_laid_nor_fetched(
    client: ContainerClient, place: Place
) -> None:
    committed, _ = commit(client, flat)
    node = place(range(1), 1)
    tensors = partitioned.files_of(flat, SIZES, 2)[tensors_name(0)]
    write_atomically(node.folder.root.parent / "memory" / "gen-0001" / "rank-00000.b", tensors)

    assert await node.loads_all(committed, flat)
    assert {block.file for block in node.watched.asked} == {tensors_name(1)}


async def _patiently(operation: Callable[[], Awaitable[None]]) -> None:
    while True:
        try:
            await operation()
        except BlobUnavailableError:
            await asyncio.sleep(0.05)
        else:
            return


def blocks_of(node: Node, manifest: Manifest) -> set[TensorBlock]:
    """Return the blocks that the node's ranks have asked for."""
    requests = [
        WantedRanges.from_json(node.folder.wanted_ranges(rank).read_bytes()) for rank in node.ranks
    ]
    return {block for request in requests for block in requested_blocks(request, manifest)}


def ask_for_all(node: Node, manifest: Manifest) -> None:
    """Have rank 0 want every byte."""
    ranges = [ByteRange(file=f.name, begin=0, end=f.size) for f in manifest.files if f.blocks]
    write_atomically(node.folder.wanted_ranges(0), WantedRanges(ranges=tuple(ranges)).to_json())


def entry_of(manifest: Manifest, rank: int) -> FileEntry:
    """Of a rank's tensors."""
    return next(f for f in manifest.files if f.name == tensors_name(rank))
