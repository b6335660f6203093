"""The memory that saves are copied into is, as it lies, the file that goes to Blob."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from tests.unit.trainer.checkpoint.test_saver import room_for
from trainer.checkpoint.checksum import describe_file
from trainer.checkpoint.host_buffers import SaveSlot, make_slots
from trainer.contract import BLOCK
from trainer.rundir import RunDir, tensors_name

SIZES = {"x|master": 3, "y": 4}


def slots_of(root: Path, sizes: dict[str, int]) -> list[SaveSlot]:
    return make_slots(RunDir(root), 2, sizes, pinned=False)


def test_a_slot_is_a_safetensors_file_of_what_was_copied_into_it(tmp_path: Path) -> None:
    slot = slots_of(tmp_path, SIZES)[0]
    slot.flat.copy_(torch.arange(7))
    saved = slot.link_into(tmp_path, 2)

    path = tmp_path / tensors_name(2)
    read = load_file(path)
    assert read["x|master"].tolist() == [0, 1, 2]
    assert read["y"].tolist() == [3, 4, 5, 6]
    whole = replace(describe_file(path, path.name), sha256="")  # of blocks, once it is uploaded
    assert replace(saved, block_size=0, blocks=()) == whole
    assert (saved.block_size, saved.blocks) == (BLOCK, (saved.crc64nvme,))


def test_a_rank_that_owns_nothing_saves_an_empty_file(tmp_path: Path) -> None:
    slots_of(tmp_path, {})[0].link_into(tmp_path, 2)

    assert load_file(tmp_path / tensors_name(2)) == {}


def test_a_slot_is_taken_until_its_save_has_left_the_outbox(tmp_path: Path) -> None:
    folder = tmp_path / "outbox"
    folder.mkdir()
    first, second = slots_of(tmp_path, SIZES)
    first.link_into(folder, 2)
    taken = first.is_free, second.is_free
    folder.rename(tmp_path / "sent")

    assert taken == (False, True)
    assert first.is_free


def test_a_full_memory_is_told_and_leaves_nothing_behind(tmp_path: Path) -> None:
    with room_for(100), pytest.raises(OSError, match="File too large"):
        slots_of(tmp_path, SIZES)

    assert [p for p in tmp_path.rglob("*") if p.is_file()] == []
