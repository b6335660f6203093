"""What a rank reads of another world's checkpoint is all it needs, and comes bit for bit."""

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.nodes import partitioned
from tests.nodes.partitioned import Cut, Sizes, flat, shares, split
from trainer.checkpoint.fragments import STATES, Fragment
from trainer.checkpoint.index import tensor_key
from trainer.checkpoint.loader import (
    CheckpointFiles,
    TensorRead,
    open_checkpoint,
    plan_reads,
    ranges_to_read,
)
from trainer.checkpoint.partial_tensors import BlockState, PartialTensors
from trainer.checkpoint.safetensors_file import TensorLayout, build_header
from trainer.contract import MANIFEST, Manifest
from trainer.rundir import ByteRange, WantedRanges, is_tensors, tensors_name
from trainer.supervisor.input.fetch import files_needed_in_full
from trainer.supervisor.input.tensor_blocks import TensorBlock, own_blocks, requested_blocks

CUTS = st.sampled_from([flat, split, shares])
PARAMETERS = st.lists(st.integers(1, 50), min_size=1, max_size=4).map(
    lambda sizes: {f"layer.{n}.weight": size for n, size in enumerate(sizes)}
)
SIZES: Sizes = {"a": 100, "b": 31, "c": 7}


@settings(max_examples=60)  # files are written
@given(
    PARAMETERS,
    CUTS,
    st.integers(1, 5),
    CUTS,
    st.integers(1, 5),
    st.sampled_from([32, 64, 256, 4096]),
)
def test_the_blocks_of_an_ask_are_those_of_what_the_rank_reads_and_no_others(
    sizes: Sizes, saved_cut: Cut, before: int, loading_cut: Cut, now: int, block_size: int
) -> None:
    files = partitioned.files_of(saved_cut, sizes, before)
    manifest = partitioned.manifest_of(files, before, block_size)
    with tempfile.TemporaryDirectory() as root:
        folder = laid(Path(root), files, manifest)
        for rank in range(now):
            fragments = partitioned.empty(loading_cut(sizes, rank, now))
            ask, reads = requested_ranges(
                open_checkpoint(folder, partitioned.SPEC_SHA256), fragments
            )
            blocks = requested_blocks(ask, manifest)
            arrive(folder, files, manifest, blocks)
            for planned_read in reads:
                planned_read.tensors.copy(planned_read.begin, planned_read.end, planned_read.into)

            assert len(blocks) == len(set(blocks))
            assert set(blocks) == set(touched(fragments, saved_cut, sizes, before, block_size))
            assert partitioned.is_filled(fragments)


def test_a_rank_of_the_same_world_asks_for_its_own_file_from_its_beginning_to_its_end(
    tmp_path: Path,
) -> None:
    files = partitioned.files_of(flat, SIZES, 2)
    manifest = partitioned.manifest_of(files, 2, 64)
    checkpoint = open_checkpoint(laid(tmp_path, files, manifest), partitioned.SPEC_SHA256)
    ask, _ = requested_ranges(checkpoint, partitioned.empty(flat(SIZES, 1, 2)))

    size = len(files[tensors_name(1)])
    assert ask.ranges == (ByteRange(file=tensors_name(1), begin=0, end=size),)
    assert requested_blocks(ask, manifest) == own_blocks(manifest, 2, 1)
    assert own_blocks(manifest, 3, 1) == []


def test_tensors_that_do_not_lie_as_their_index_says_are_refused(tmp_path: Path) -> None:
    files = partitioned.files_of(flat, SIZES, 1)
    files[tensors_name(0)] = partitioned.tensors_of(flat(SIZES, 0, 1)[::-1])
    manifest = partitioned.manifest_of(files, 1, 4096)
    folder = laid(tmp_path, files, manifest)
    _, reads = requested_ranges(
        open_checkpoint(folder, partitioned.SPEC_SHA256), partitioned.empty(flat(SIZES, 0, 1))
    )
    arrive(folder, files, manifest, own_blocks(manifest, 1, 0))

    with pytest.raises(ValueError, match="do not lie as its index says"):
        reads[0].tensors.copy(reads[0].begin, reads[0].end, reads[0].into)


def test_a_whole_file_is_read_as_its_own_header_says(tmp_path: Path) -> None:
    files = partitioned.files_of(flat, SIZES, 1)
    files[tensors_name(0)] = partitioned.tensors_of(flat(SIZES, 0, 1)[::-1])
    folder = laid(tmp_path, files, partitioned.manifest_of(files, 1, 0))
    fragments = partitioned.empty(flat(SIZES, 0, 1))
    _, reads = requested_ranges(open_checkpoint(folder, partitioned.SPEC_SHA256), fragments)
    for planned_read in reads:
        planned_read.tensors.copy(planned_read.begin, planned_read.end, planned_read.into)

    assert partitioned.is_filled(fragments)


@pytest.mark.parametrize(
    ("byte_range", "expected"),
    [
        (ByteRange(file="rank-00009.safetensors", begin=0, end=1), "has no such file"),
        (ByteRange(file=tensors_name(0), begin=-1, end=1), "wants bytes -1 to 1 of"),
        (ByteRange(file=tensors_name(0), begin=5, end=5), "wants bytes 5 to 5 of"),
        (ByteRange(file=tensors_name(0), begin=0, end=10**6), "wants bytes 0 to 1000000 of"),
    ],
)
def test_an_ask_for_what_is_not_there_is_an_error_that_says_so(
    byte_range: ByteRange, expected: str
) -> None:
    manifest = partitioned.manifest_of(partitioned.files_of(flat, SIZES, 1), 1, 64)

    with pytest.raises(ValueError, match=expected):
        requested_blocks(WantedRanges(ranges=(byte_range,)), manifest)


def test_tensors_without_blocks_come_whole_to_the_ranks_that_may_read_them() -> None:
    manifest = partitioned.manifest_of(partitioned.files_of(flat, SIZES, 2), 2, block_size=0)
    whole = [files_needed_in_full(manifest, world, range(1)) for world in (2, 3)]
    names = [{file.name for file in files if is_tensors(file.name)} for files in whole]

    assert names == [{tensors_name(0)}, {tensors_name(0), tensors_name(1)}]


def requested_ranges(
    checkpoint: CheckpointFiles, fragments: list[Fragment]
) -> tuple[WantedRanges, list[TensorRead]]:
    """Return the ranges that a rank requests and the tensors that it will read."""
    reads = plan_reads(fragments, checkpoint)
    return ranges_to_read(reads), reads


def laid(folder: Path, files: dict[str, bytes], manifest: Manifest) -> Path:
    """Make a checkpoint folder that has all whole files but no blocks."""
    coming = {f.name for f in manifest.files if f.blocks}
    partitioned.write({n: d for n, d in files.items() if n not in coming}, folder)
    for file in manifest.files:
        if file.blocks:
            PartialTensors(folder / file.name, file).create()
    (folder / MANIFEST).write_text(manifest.to_json())
    return folder


def arrive(
    folder: Path,
    files: dict[str, bytes],
    manifest: Manifest,
    blocks: list[TensorBlock],
    *,
    spill: bool = False,
) -> None:
    """Write the contents of these blocks; with ``spill`` to the disk."""
    entries = {file.name: file for file in manifest.files}
    for block in blocks:
        coming = PartialTensors(folder / block.file, entries[block.file])
        offset, length = coming.entry.span(block.number)
        path = coming.path
        if spill:
            path = folder / "disk" / block.file
            coming.create_spilled(path)
        with path.open("r+b") as file:
            file.seek(offset)
            file.write(files[block.file][offset : offset + length])
        coming.set_block_state(block.number, BlockState.SPILLED if spill else BlockState.IN_PLACE)


def touched(
    fragments: list[Fragment], saved_cut: Cut, sizes: Sizes, world: int, block_size: int
) -> Iterator[TensorBlock]:
    """Element by element: where it lies in the files, and the headers of these files."""
    for rank in range(world):
        stored = saved_cut(sizes, rank, world)
        layout = TensorLayout.of(build_header(partitioned.sizes_of(stored)))
        for s in stored:
            for fragment in (f for f in fragments if f.name == s.name):
                first = max(s.start, fragment.start)
                end = min(s.start + s.numel, fragment.start + fragment.numel)
                for element in range(first, end):
                    for state in STATES:
                        at = layout.offsets[tensor_key(s.name, state)] + 4 * (element - s.start)
                        yield TensorBlock(tensors_name(rank), at // block_size)
                if first < end:
                    for at in range(len(layout.beginning)):
                        yield TensorBlock(tensors_name(rank), at // block_size)
