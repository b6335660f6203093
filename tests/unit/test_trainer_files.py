"""The files of a save, and the random generators in them."""

import random
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import load_file

from trainer.checkpoint import randomness
from trainer.checkpoint.files import write_tensors, write_text
from trainer.checksum import describe


def test_a_flat_buffer_is_written_as_safetensors(tmp_path: Path) -> None:
    flat = torch.arange(7, dtype=torch.float32)

    saved = write_tensors(tmp_path / "a.safetensors", {"x|master": 3, "y": 4}, flat)

    read = load_file(tmp_path / "a.safetensors")
    assert read["x|master"].tolist() == [0, 1, 2]
    assert read["y"].tolist() == [3, 4, 5, 6]
    assert saved == describe(tmp_path / "a.safetensors", "a.safetensors")


def test_a_rank_that_owns_nothing_writes_an_empty_file(tmp_path: Path) -> None:
    write_tensors(tmp_path / "a.safetensors", {}, torch.empty(0))

    assert load_file(tmp_path / "a.safetensors") == {}


def test_the_checksum_is_the_one_that_blob_storage_computes(tmp_path: Path) -> None:
    saved = write_text(tmp_path / "check", "123456789")

    assert (saved.size, saved.crc64nvme) == (9, "ae8b14860a799888")


def draw() -> tuple[list[float], float, float]:
    return torch.rand(3).tolist(), random.random(), float(np.random.rand())


def test_generators_go_on_where_they_were_captured() -> None:
    randomness.seed(1, 2, 3)
    draw()
    state = randomness.Randomness.from_json(randomness.capture().to_json())
    first = draw()
    randomness.seed(9)

    randomness.restore(state)

    assert draw() == first


def test_seeds_differ_by_every_part() -> None:
    drawn = []
    for parts in ((1, 2, 3), (1, 2, 4), (1, 3, 3), (2, 2, 3)):
        randomness.seed(*parts)
        drawn.append(draw())

    assert len({str(d) for d in drawn}) == 4
